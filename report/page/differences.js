// What differs between the model and another one.

function differencesSection({ other, found }, tensors, details) {
  const { tensors: changes } = found;
  const verdict = found.same ? "The same content" : "Different";
  const told = changes.by_digests ? `; ${count(changes.by_digests, "tensor")} told by stored digests` : "";
  const said = element(
    "p",
    { class: found.same ? "notice good" : "notice" },
    element("strong", {}, verdict),
    ` compared with ${cut(other, 400)}: ${count(changes.equal, "tensor")} equal and in place; ${byteSize(changes.bytes_read)} of weights read${told}. What is added is in the other model alone, what is removed in this one alone.`,
  );
  const node = section("differences", "Differences", said);
  if (found.properties.length) node.append(propertyTable(found.properties));
  if (found.operators.length) node.append(operatorTable(found.operators));
  if (found.other_changes.length) node.append(element("p", { class: "note" }, "Also different: ", found.other_changes.map(otherChange).join("; "), "."));
  const rows = changedRows(changes);
  if (!rows.length) return { node };
  const table = changedTable(rows, tensors, details);
  node.append(element("h3", {}, "Tensors"), table.node);
  return { node, table };
}

/** A kind of changes that have no names, as the command `diff` says it. */
function otherChange({ what, added, removed, changed }) {
  if (what === "node_order") return `the order of nodes: ${whole(changed)} in other places`;
  if (what === "attribute_order") return `the order of attributes: ${count(changed, "node")}`;
  const kind = { value_types: "types of values between nodes", documentation: "documentation" }[what];
  if (kind === undefined) return "fields that are not compared one by one";
  const counts = [[added, "added"], [removed, "removed"], [changed, "changed"]].filter(([number]) => number > 0);
  return `${kind}: ${counts.map(([number, how]) => `${whole(number)} ${how}`).join(", ")}`;
}

function propertyTable(properties) {
  const side = (text) => (text === null ? "(none)" : cut(text, 400));
  const row = ({ what, name, a, b }) => [what.replaceAll("_", " "), name === null ? "" : nameNode(name), side(a), side(b)];
  return plainTable("Structure", [["What"], ["Name"], ["This model"], ["The other"]], properties.map(row));
}

function operatorTable(operators) {
  const row = ({ operator, a, b, changed }) => [nameNode(operator), whole(a), whole(b), changed ? whole(changed) : ""];
  return plainTable("Operators", [["Operator"], ["This model", "right"], ["The other", "right"], ["Changed nodes", "right"]], operators.map(row));
}

/** One list of all changes of tensors: what became of each, and what it is. */
function changedRows(changes) {
  const form = ({ dtype, shape }) => `${dtype} ${shapeText(shape)}`;
  const place = (file, offset) => `${file ?? "model"}${offset === null ? "" : ` at ${whole(offset)}`}`;
  return [
    ...changes.changed.map((it) => ({ what: "changed", name: it.name, bytes: it.a.bytes, a: form(it.a), b: form(it.b), difference: it.difference })),
    ...changes.added.map((it) => ({ what: "added", name: it.name, bytes: it.bytes, a: "", b: form(it) })),
    ...changes.removed.map((it) => ({ what: "removed", name: it.name, bytes: it.bytes, a: form(it), b: "" })),
    ...changes.renamed.map((it) => ({ what: "renamed", name: it.from, bytes: it.bytes, a: form(it), b: `now ${it.to}` })),
    ...changes.moved.map((it) => ({ what: "moved", name: it.name, bytes: it.bytes, a: place(it.from_file, it.from_offset), b: place(it.to_file, it.to_offset) })),
  ];
}

function changedTable(rows, tensors, details) {
  // No number is in the data where it is infinite, and where all elements that differ are not finite.
  const far = ({ difference }) => (difference ? (difference.max_abs ?? Infinity) : null);
  const farText = ({ difference }) => {
    if (!difference || difference.max_abs !== null) return real(difference?.max_abs);
    return Number(difference.differing) > Number(difference.not_finite) ? "infinite" : "not finite";
  };
  const notFinite = ({ difference }) => {
    if (!difference || !Number(difference.not_finite)) return "";
    return `${whole(difference.not_finite_a)} | ${whole(difference.not_finite_b)}`;
  };
  const number = (value) => (value === null || value === undefined ? null : Number(value));
  const columns = [
    { title: "What", width: 90, cell: (row) => element("span", { class: `severity ${row.what}` }, row.what), key: (row) => row.what },
    { title: "Name", cell: (row) => nameNode(row.name, 200), key: (row) => natural(row.name) },
    { title: "Bytes", width: 90, right: true, text: (row) => byteSize(row.bytes), key: (row) => number(row.bytes) },
    { title: "This model", width: 230, cell: (row) => nameNode(row.a, 60), key: (row) => row.a },
    { title: "The other", width: 230, cell: (row) => nameNode(row.b, 60), key: (row) => row.b },
    { title: "Farthest", width: 110, right: true, help: "The largest difference of two elements", text: farText, key: (row) => number(far(row)) },
    { title: "Differing", width: 110, right: true, help: "How many elements differ", text: (row) => whole(row.difference?.differing), key: (row) => number(row.difference?.differing) },
    { title: "NaN, infinite", width: 120, right: true, help: "How many of those are NaN or infinite: in this model | in the other", text: notFinite, key: (row) => number(row.difference?.not_finite) },
  ];
  const words = (row) => `${row.what} ${row.name} ${row.a} ${row.b}`;
  const open = (row) => {
    const i = tensors.find(row.name);
    if (i !== undefined) details.open(i);
  };
  return new LongTable({ id: "change", label: "Tensors that differ", rows, columns, words, open, placeholder: "what, name or type" });
}
