// What the model is: totals, versions, inputs and outputs, element types, operators, findings.

function overview(data) {
  const { summary, files } = data;
  const fileBytes = files.reduce((sum, file) => sum + Number(file.bytes ?? 0), 0);
  const cards = [
    ["Parameters", short(summary.parameters), whole(summary.parameters)],
    ["On disk", byteSize(Number(data.model_bytes) + fileBytes), storedText(data, fileBytes)],
    ["Tensors", whole(summary.totals.tensors), `${whole(summary.totals.external)} external, ${whole(summary.totals.inline)} in the model, ${whole(summary.totals.tied)} tied`],
    ["Nodes", whole(summary.nodes + summary.inner_nodes), `${count(summary.functions, "function")}, ${count(summary.subgraphs, "subgraph")}`],
    ["Element types", summary.dtypes.slice(0, 3).map(({ dtype }) => dtype).join(", ") || "none", summary.dtypes.length > 3 ? `and ${summary.dtypes.length - 3} more` : ""],
    ["Opset", opsetText(summary), summary.ir_version === null ? "" : `IR version ${summary.ir_version}`],
  ];
  const card = ([title, value, more]) =>
    element("div", { class: "card" }, element("dt", {}, title), element("dd", {}, element("strong", {}, cut(value, 60)), element("span", {}, more)));
  const node = section("overview", "Overview", element("dl", { class: "cards" }, ...cards.map(card)));
  const refused = summary.refused.map((reason) => element("p", { class: "notice" }, cut(reason, 400)));
  node.append(...refused, element("div", { class: "columns" }, versions(data), dtypes(summary)));
  return node;
}

function storedText({ model_bytes, files }, fileBytes) {
  if (!files.length) return "all in the model";
  const missing = files.filter((file) => file.bytes === null).length;
  const there = `model ${byteSize(model_bytes)}, ${count(files.length, "weights file")} ${byteSize(fileBytes)}`;
  return missing ? `${there}, ${whole(missing)} not there` : there;
}

function opsetText({ opsets }) {
  const own = opsets.find(({ domain }) => domain === "ai.onnx");
  if (own) return String(own.version ?? "none");
  return opsets.length ? `${opsets[0].domain} ${opsets[0].version}` : "none";
}

function versions({ summary, model }) {
  const producer = [summary.producer, summary.producer_version].filter(Boolean).join(" ");
  const others = summary.opsets.map(({ domain, version }) => `${domain} ${version ?? "without a version"}`);
  const facts = [
    ["File", cut(model, 400)],
    ["Producer", cut(producer)],
    ["Graph", summary.graph === null ? null : cut(summary.graph)],
    ["Domain", summary.domain === null ? null : cut(summary.domain)],
    ["Model version", summary.model_version === null ? null : whole(summary.model_version)],
    ["Operator sets", cut(others.join(", "), 1000)],
    ["Digests", summary.has_digests ? "stored with the model" : null],
    ["Quantization", quantizationText(summary.quantization)],
    ["Documentation", summary.doc_string === null ? null : cut(summary.doc_string, 1000)],
  ];
  const node = element("div", {}, factList(facts));
  if (summary.metadata.length) {
    const rows = summary.metadata.map(({ key, value }) => [nameNode(key), cut(value, 1000)]);
    node.append(plainTable("Metadata", [["Key"], ["Value"]], rows));
  }
  return node;
}

function quantizationText({ pairs, weights, blocks, operators }) {
  const parts = [
    ...weights.map(({ dtype, block_size, nodes }) => `${count(nodes, "weight")} of ${dtype} by DequantizeLinear${block_size === null ? "" : ` in blocks of ${block_size}`}`),
    ...blocks.map(({ operator, bits, block_size, nodes }) => `${whole(nodes)} ${operator}${bits === null ? "" : ` of ${bits} bits`}${block_size === null ? "" : ` in blocks of ${block_size}`}`),
    ...operators.map(({ operator, nodes }) => `${whole(nodes)} ${operator}`),
  ];
  if (pairs) parts.push(count(pairs, "pair of QuantizeLinear and DequantizeLinear", "pairs of QuantizeLinear and DequantizeLinear"));
  return cut(parts.join("; "), 1000);
}

function dtypes({ dtypes }) {
  const all = dtypes.reduce((sum, { bytes }) => sum + Number(bytes), 0);
  const row = ({ dtype, tensors, elements, bytes }) => [dtype, whole(tensors), whole(elements), byteSize(bytes), percent(Number(bytes), all)];
  const columns = [["Type"], ["Tensors", "right"], ["Elements", "right"], ["Bytes", "right"], ["Share", "right"]];
  return plainTable("Element types", columns, dtypes.map(row));
}

// Inputs and outputs

function valuesSection({ summary }) {
  const row = (value) => [nameNode(value.name), cut(declaredType(value), 400), value.has_initializer ? "has a value of its own" : ""];
  const columns = [["Name"], ["Type"], [""]];
  return section(
    "values",
    "Inputs and outputs",
    plainTable(count(summary.inputs.length, "input"), columns, summary.inputs.map(row)),
    plainTable(count(summary.outputs.length, "output"), columns.slice(0, 2), summary.outputs.map((value) => row(value).slice(0, 2))),
  );
}

function declaredType({ type, dtype, shape }) {
  if (dtype === null || dtype === undefined) return type ?? "not declared";
  return shape === null ? `${dtype}, of any rank` : `${dtype} [${shape.map((dim) => dim ?? "?").join(", ")}]`;
}

// Operators

function operatorsSection({ summary, functions }) {
  const most = summary.operators[0]?.nodes ?? 0;
  const row = ({ operator, nodes }) => [nameNode(operator), whole(nodes), bar(nodes, most)];
  const node = section(
    "operators",
    "Operators",
    plainTable(`${count(summary.operators.length, "operator")} in ${count(summary.nodes + summary.inner_nodes, "node")}`, [["Operator"], ["Nodes", "right"], ["", "wide"]], summary.operators.map(row)),
  );
  if (functions.length) {
    const rows = functions.map((it) => [nameNode(it.name), whole(it.nodes), whole(it.inputs), whole(it.outputs)]);
    node.append(plainTable(count(functions.length, "local function"), [["Function"], ["Nodes", "right"], ["Inputs", "right"], ["Outputs", "right"]], rows));
  }
  return node;
}

// Findings

/** What a check found in the model, and in the other one. */
function findingsSection({ findings, differences }, tensors) {
  if (!differences) return section("findings", "Findings", ...findingsNodes("the model", findings, tensors));
  const title = (text) => element("h3", {}, text);
  const own = findingsNodes("this model", findings, tensors);
  const other = findingsNodes("the other model", differences.findings, null);
  return section("findings", "Findings", title("This model"), ...own, title(cut(differences.other, 400)), ...other);
}

/** Without `tensors`, their names are no links. */
function findingsNodes(model, findings, tensors) {
  const errors = findings.list.filter(({ severity }) => severity === "error").length;
  const advice = findings.list.length - errors;
  const verdict = findings.ok ? `Nothing is wrong with ${model} and its files` : `Readers refuse ${model}, or read wrong data`;
  const more = findings.not_listed ? `, ${whole(findings.not_listed)} more are not listed` : "";
  const said = element(
    "p",
    { class: findings.ok ? "notice good" : "notice bad" },
    element("strong", {}, verdict),
    `: ${count(errors, "error")}, ${whole(advice)} of advice${more}. Looked at: ${findings.looked_at}.`,
  );
  const row = (it) => [
    element("span", { class: `severity ${it.severity}` }, it.severity),
    cut(it.reason, 1000),
    it.tensor === null ? "" : tensors ? linked(tensors, it.tensor) : nameNode(it.tensor),
    it.path === null ? "" : cut(it.path) + (it.offset === null ? "" : ` at byte ${whole(it.offset)}`),
  ];
  if (!findings.list.length) return [said];
  return [said, plainTable("Findings, errors first", [["Severity"], ["What"], ["Tensor"], ["File"]], findings.list.map(row))];
}
