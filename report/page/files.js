// The places of tensors in the weights files.

/** The most rectangles of a file: tensors that are less than a pixel wide are drawn together. */
const STRIP_PARTS = 1500;

function filesSection({ files, model_bytes, summary }, tensors) {
  const inside = `${count(summary.totals.inline, "tensor")} of ${byteSize(summary.totals.inline_bytes)} in the model itself, whose file has ${byteSize(model_bytes)}.`;
  const node = section("files", "Files", element("p", {}, inside));
  if (!files.length) return node;
  const row = (file) => [nameNode(file.location), file.bytes === null ? fileState(file) : byteSize(file.bytes), whole(file.tensors), byteSize(file.used), file.gap_bytes ? byteSize(file.gap_bytes) : "none", file.sharing ? whole(file.sharing) : "none", file.overlap_count ? whole(file.overlap_count) : "none"];
  const columns = [["File"], ["Length", "right"], ["Tensors", "right"], ["Used", "right"], ["Gaps", "right"], ["Sharing", "right"], ["Overlaps", "right"]];
  node.append(plainTable(count(files.length, "weights file"), columns, files.map(row)));
  const byFile = tensorsByFile(files, tensors);
  const shown = files.slice(0, 100);
  node.append(...shown.map((file, i) => fileMap(file, byFile[i], tensors)));
  if (files.length > shown.length) node.append(element("p", { class: "note" }, `Maps of ${whole(files.length - shown.length)} more files are not drawn.`));
  const kinds = [...new Set(byFile.slice(0, 100).flat().map((i) => tensors.columns.dtype[i]))].sort((a, b) => a - b);
  node.append(legend([...kinds.map((kind) => [kind, tensors.columns.dtypes[kind]]), [-1, "no tensor"]]));
  return node;
}

function fileState(file) {
  return file.is_missing ? "missing" : cut(file.reason, 100);
}

/** For each file the numbers of its tensors, in the order of their offsets. */
function tensorsByFile(files, tensors) {
  const byFile = files.map(() => []);
  tensors.columns.file.forEach((file, i) => {
    if (file !== null) byFile[file].push(i);
  });
  const offset = (i) => Number(tensors.offset(i));
  for (const all of byFile) all.sort((a, b) => offset(a) - offset(b) || a - b);
  return byFile;
}

function fileMap(file, numbers, tensors) {
  const facts = element("p", { class: "note" }, fileFacts(file, numbers, tensors));
  const lists = [];
  if (file.gaps.length) lists.push(partTable(`${count(file.gap_count, "gap")}, the largest first`, file.gaps));
  if (file.overlaps.length) lists.push(partTable(count(file.overlap_count, "overlap"), file.overlaps));
  const shared = numbers.filter((i) => tensors.columns.shares[i] !== null);
  if (shared.length) {
    const rows = shared.map((i) => [linked(tensors, tensors.name(i)), linked(tensors, tensors.name(tensors.columns.shares[i])), byteSize(tensors.bytes(i))]);
    lists.push(plainTable(count(shared.length, "tensor with the bytes of another", "tensors with the bytes of others"), [["Tensor"], ["Has the bytes of"], ["Bytes", "right"]], rows, 200));
  }
  const details = lists.length ? element("details", {}, element("summary", {}, "Gaps, overlaps and sharing"), ...lists) : null;
  return element("div", { class: "file" }, element("h3", {}, nameNode(file.location)), strip(file, numbers, tensors), facts, details);
}

function fileFacts(file, numbers, tensors) {
  const parts = [file.bytes === null ? fileState(file) : byteSize(file.bytes), count(numbers.length, "tensor")];
  parts.push(file.gap_count ? `${count(file.gap_count, "gap")} of ${byteSize(file.gap_bytes)} in all` : "no gaps");
  if (file.overlap_count) parts.push(count(file.overlap_count, "overlap"));
  if (file.sharing) parts.push(`${count(file.sharing, "tensor")} with the bytes of another`);
  const least = numbers.reduce((least, i) => Math.min(least, tensors.alignment(i)), 4096);
  parts.push(least === 1 ? "offsets are not aligned" : `every offset is a multiple of ${least}`);
  if (file.bytes !== null && Number(file.end) > Number(file.bytes)) parts.push("cut off: its tensors need more bytes than it has");
  return `${parts.join("; ")}.`;
}

function partTable(caption, parts) {
  return plainTable(caption, [["First byte", "right"], ["Bytes", "right"]], parts.map(([offset, bytes]) => [whole(offset), `${byteSize(bytes)}${Number(bytes) >= 1000 ? ` (${whole(bytes)})` : ""}`]), 100);
}

/** The file from its first byte to its last, with the tensors in the colours of their types. */
function strip(file, numbers, tensors) {
  const length = Math.max(1, Number(file.bytes ?? 0), Number(file.end));
  const parts = stripParts(numbers, tensors, length);
  const x = (bytes) => (1000 * bytes) / length;
  const rects = parts.map(({ from, to, kind, text, first }) => {
    const rect = drawing("rect", { class: colour(kind), x: x(from), y: 0, width: Math.max(0.3, x(to - from)), height: 30 }, drawing("title", {}, text()));
    rect.addEventListener("click", () => {
      location.hash = tensorLink(tensors.name(first));
    });
    return rect;
  });
  const overlaps = file.overlaps.map(([offset, bytes]) => drawing("rect", { class: "overlap", x: x(Number(offset)), y: 0, width: Math.max(0.6, x(Number(bytes))), height: 30 }));
  const label = `${cut(file.location, 100)} from its first byte to its last`;
  return drawing("svg", { class: "strip", viewBox: "0 0 1000 30", preserveAspectRatio: "none", role: "img", "aria-label": label }, drawing("rect", { class: "c-none", width: 1000, height: 30 }), ...rects, ...overlaps);
}

/** Runs of tensors: of one type, and longer than what can be told apart, or a tensor alone. */
function stripParts(numbers, tensors, length) {
  const least = length / STRIP_PARTS;
  const parts = [];
  for (const i of numbers) {
    const from = Number(tensors.offset(i));
    const to = from + Number(tensors.columns.stored[i]);
    const kind = tensors.columns.dtype[i];
    const last = parts.at(-1);
    if (last && last.kind === kind && last.to - last.from < least && from - last.to < least && to - from < least) {
      last.to = Math.max(last.to, to);
      last.tensors += 1;
      continue;
    }
    const part = { from, to, kind, first: i, tensors: 1 };
    part.text = () => {
      const name = part.tensors === 1 ? cut(tensors.name(i), 300) : count(part.tensors, "tensor");
      return `${name}\n${tensors.dtype(i)}${part.tensors === 1 ? ` ${tensors.shape(i)}` : ""}\n${byteSize(part.to - part.from)} from byte ${whole(part.from)}`;
    };
    parts.push(part);
  }
  return parts;
}
