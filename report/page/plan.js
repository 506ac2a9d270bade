// The plan of memory: offset against step, a rectangle for each block.

const MOST_BLOCKS = 4000;

function planSection(plan) {
  const facts = [
    ["Memory", `${byteSize(plan.arena_bytes)} (${whole(plan.arena_bytes)} bytes)${plan.optimal ? ", the least possible" : ""}`],
    ["Lower bound", byteSize(plan.lower_bound)],
    ["Without sharing", byteSize(plan.unshared_bytes)],
    ["Peak", `step ${whole(plan.peak_step)}`],
    ["Dimensions", plan.sizes.length ? cut(plan.sizes.join(", "), 1000) : null],
  ];
  const node = section("plan", "Memory plan", factList(facts));
  if (plan.barrier !== null) node.append(element("p", { class: "notice" }, cut(plan.barrier, 1000)));
  const largest = [...plan.blocks].sort((a, b) => Number(b.bytes) - Number(a.bytes));
  node.append(planDrawing(plan, largest.slice(0, MOST_BLOCKS)));
  if (largest.length > MOST_BLOCKS) node.append(element("p", { class: "note" }, `The ${whole(MOST_BLOCKS)} largest of ${whole(largest.length)} blocks are drawn.`));
  const row = (it) => [nameNode(it.name), byteSize(it.bytes), whole(it.offset), `${whole(it.first_step)} to ${whole(Math.max(Number(it.first_step), Number(it.end_step) - 1))}`];
  const table = plainTable("Blocks, the largest first", [["Tensor"], ["Bytes", "right"], ["Offset", "right"], ["Steps", "right"]], largest.map(row), 200);
  node.append(element("details", {}, element("summary", {}, "As a table"), table));
  return node;
}

function planDrawing(plan, blocks) {
  const [width, height, left, bottom, top] = [1000, 420, 70, 28, 8];
  const steps = blocks.reduce((most, it) => Math.max(most, Number(it.end_step)), 1);
  const bytes = Math.max(1, Number(plan.arena_bytes));
  const x = (step) => left + ((width - left - 4) * step) / steps;
  const y = (offset) => height - bottom - ((height - bottom - top) * offset) / bytes;
  const nodes = [];
  for (let k = 0; k <= 4; k++) {
    const offset = (bytes * k) / 4;
    nodes.push(drawing("line", { class: "grid", x1: left, x2: width - 4, y1: y(offset), y2: y(offset) }));
    nodes.push(drawing("text", { class: "tick end", x: left - 6, y: y(offset) + 4 }, byteSize(Math.round(offset))));
    nodes.push(drawing("text", { class: k === 4 ? "tick end" : "tick middle", x: x((steps * k) / 4), y: height - 10 }, whole(Math.round((steps * k) / 4))));
  }
  for (const it of blocks) {
    const [from, end, offset, length] = [it.first_step, it.end_step, it.offset, it.bytes].map(Number);
    if (!length || end <= from) continue;
    const peak = from <= plan.peak_step && plan.peak_step < end;
    const title = `${cut(it.name, 200)}\n${byteSize(length)} at ${whole(it.offset)}, steps ${from} to ${end - 1}`;
    nodes.push(drawing("rect", { class: peak ? "block peak" : "block", x: x(from), y: y(offset + length), width: Math.max(0.5, x(end) - x(from)), height: Math.max(0.3, y(offset) - y(offset + length)) }, drawing("title", {}, title)));
  }
  const bound = y(Number(plan.lower_bound));
  nodes.push(drawing("line", { class: "bound", x1: left, x2: width - 4, y1: bound, y2: bound }));
  const svg = drawing("svg", { class: "plan", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Blocks of memory: offset against step" }, ...nodes);
  const key = element("p", { class: "note" }, "Upward: offset. To the right: steps of a run. Blocks that are needed at the peak are orange; the dashed line is the lower bound.");
  return element("figure", {}, svg, element("figcaption", {}, key));
}
