// The table of all tensors.

function tensorsSection(tensors, details) {
  const rows = Array.from({ length: tensors.count }, (_, i) => i);
  const number = (value) => (value === null || value === undefined ? null : Number(value));
  const columns = [
    { title: "Name", least: tensors.stats ? 310 : 300, cell: (i) => nameNode(tensors.name(i), tensors.stats ? 42 : 90), key: (i) => natural(tensors.name(i)) },
    { title: "Type", width: 96, text: (i) => tensors.dtype(i), key: (i) => tensors.dtype(i) },
    { title: "Shape", width: 130, text: (i) => cut(tensors.shape(i), 60), key: (i) => number(tensors.elements(i)) },
    { title: "Bytes", width: 82, right: true, text: (i) => byteSize(tensors.bytes(i)), key: (i) => number(tensors.bytes(i)) },
    ...statisticColumns(tensors, number),
    { title: "Stored in", width: 160, cell: (i) => nameNode(tensors.place(i), 60), key: (i) => tensors.place(i) },
    { title: "Offset", width: 120, right: true, text: (i) => whole(tensors.offset(i)), key: (i) => number(tensors.offset(i)) },
  ];
  const words = (i) => `${tensors.name(i)} ${tensors.dtype(i)} ${tensors.shape(i)} ${tensors.place(i)}`;
  const table = new LongTable({ id: "tensor", label: "Tensors", rows, columns, words, open: (i) => details.open(i), placeholder: "name, type, shape or file:  / " });
  const help = element("p", { class: "note" }, "Headings sort. Arrow keys go through the rows, Enter shows a tensor, / searches, Escape clears the search.");
  const node = section("tensors", "Tensors", table.node, help);
  if (tensors.stats) node.append(suspects(tensors));
  return { node, table };
}

function statisticColumns(tensors, number) {
  if (!tensors.stats) return [];
  const four = (value) => (Number.isFinite(Number(value ?? NaN)) ? real(Number(value), 4) : real(value));
  const column = (title, name, width, shown) => ({
    title,
    width,
    right: true,
    text: (i) => shown(tensors.stat(name, i)),
    key: (i) => number(tensors.stat(name, i)),
  });
  return [
    column("Min", "min", 86, four),
    column("Max", "max", 86, four),
    column("Mean", "mean", 98, four),
    column("Std", "std", 86, four),
    column("NaN", "nan", 54, whole),
    column("Inf", "infinite", 54, whole),
    column("Zeros", "zeros", 84, whole),
    {
      title: "Histogram",
      width: 140,
      cell: (i) => {
        const found = tensors.stat("histogram", i);
        return found ? histogramNode(found, 120, 20) : "";
      },
      key: (i) => number(tensors.stat("std", i)),
    },
  ];
}

/** Tensors whose elements are seldom meant: not finite, or all equal. */
function suspects(tensors) {
  const rows = [];
  for (let i = 0; i < tensors.count && rows.length < 500; i++) {
    const bad = tensors.stat("nan", i) || tensors.stat("infinite", i);
    const flat = tensors.stat("all_equal", i) && Number(tensors.elements(i)) > 1;
    if (!bad && !flat) continue;
    const what = bad ? `${whole(tensors.stat("nan", i))} NaN, ${whole(tensors.stat("infinite", i))} infinite` : `all elements are ${real(tensors.stat("min", i))}`;
    rows.push([linked(tensors, tensors.name(i)), `${tensors.dtype(i)} ${cut(tensors.shape(i), 60)}`, what]);
  }
  if (!rows.length) return element("p", { class: "notice good" }, "All elements are finite, and no tensor has one element throughout.");
  return plainTable("Tensors that are not finite, or have one element throughout", [["Tensor"], ["Type"], ["What"]], rows);
}
