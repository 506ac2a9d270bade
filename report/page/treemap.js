// A map of the weights by the parts of their names: areas are bytes. A block that repeats is one
// area, which says how often.

const MAP_HEIGHT = 520;
const DEEPEST = 8;
const MOST_CELLS = 1500;
/** A smaller area than this, in pixels, is one cell. */
const LEAST_OPENED = 4000;
const LABEL_HEIGHT = 18;

class WeightMap {
  constructor(data, tensors) {
    this.tensors = tensors;
    this.path = [data.tree];
    this.kind = "dtype";
    this.kinds = { dtype: tensors.columns.dtypes, storage: tensors.columns.storages, file: data.files.map((file) => file.location) };
    this.box = element("div", { class: "map", role: "group", "aria-label": "Map of the weights: arrow keys move, Enter opens, Escape goes up" });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.crumbs = element("nav", { class: "crumbs", "aria-label": "Module" });
    this.legendBox = element("div");
    this.tableBox = element("div");
    const tools = element("div", { class: "tools" }, this.crumbs, this.chooser());
    this.node = section("weights", "Weights", tools, this.box, this.legendBox, this.tableBox);
  }

  chooser() {
    const option = ([value, text]) => element("option", { value }, text);
    const options = [["dtype", "element type"], ["storage", "storage"], ["file", "file"]];
    const select = element("select", { id: "map-colour" }, ...options.map(option));
    select.addEventListener("change", () => {
      this.kind = select.value;
      this.draw();
    });
    return element("label", { class: "chooser", for: "map-colour" }, "Colour by ", select);
  }

  ready() {
    this.draw();
    let width = this.box.clientWidth;
    new ResizeObserver(() => {
      if (Math.abs(this.box.clientWidth - width) < 2) return;
      width = this.box.clientWidth;
      this.draw();
    }).observe(this.box);
  }

  get root() {
    return this.path.at(-1);
  }

  // Colours

  /** The number of the colour of a tensor; -1 for one in no file. */
  colourOf(tensor) {
    const { columns } = this.tensors;
    if (this.kind === "file") return columns.file[tensor] ?? -1;
    return columns[this.kind][tensor];
  }

  /** The bytes of each colour in a node. */
  bytesByColour(node) {
    node.colours ??= {};
    if (!node.colours[this.kind]) {
      const sums = new Map();
      const add = (number, bytes) => sums.set(number, (sums.get(number) ?? 0) + bytes);
      if (node.c) for (const child of node.c) for (const [number, bytes] of this.bytesByColour(child)) add(number, bytes);
      else if (node.i !== undefined) for (const tensor of [node.i, ...(node.o ?? [])]) add(this.colourOf(tensor), this.tensors.ownBytes(tensor));
      node.colours[this.kind] = sums;
    }
    return node.colours[this.kind];
  }

  mainColour(node) {
    let [best, most] = [-1, -1];
    for (const [number, bytes] of this.bytesByColour(node)) if (bytes > most) [best, most] = [number, bytes];
    return best;
  }

  // Drawing

  draw() {
    this.drawCrumbs();
    this.drawCells();
    this.drawLegend();
    this.drawTable();
  }

  drawCrumbs() {
    const crumb = (node, i) => {
      const text = i === 0 ? "all weights" : cut(this.label(node), 60);
      if (i === this.path.length - 1) return element("span", { "aria-current": "true" }, text);
      return element("button", { type: "button", onclick: () => this.goTo(i) }, text);
    };
    this.crumbs.replaceChildren(...this.path.map(crumb));
  }

  label(node) {
    return node.x > 1 ? `${node.n} ×${node.x}` : node.n;
  }

  drawCells() {
    const width = Math.max(200, this.box.clientWidth || 1000);
    const tree = d3.hierarchy(this.opened(width * MAP_HEIGHT)).sum(({ node, children }) => (children ? 0 : Number(node.b)));
    d3.treemap().size([width, MAP_HEIGHT]).paddingTop((it) => (it.depth ? LABEL_HEIGHT : 0)).paddingInner(2).paddingRight((it) => (it.depth ? 2 : 0)).paddingBottom((it) => (it.depth ? 2 : 0)).paddingLeft((it) => (it.depth ? 2 : 0)).round(true)(tree);
    const seen = tree.descendants().filter((it) => it.depth > 0 && it.x1 - it.x0 >= 3 && it.y1 - it.y0 >= 3);
    seen.sort((a, b) => b.value - a.value);
    const kept = new Set(seen.slice(0, MOST_CELLS));
    // Each module is before what is in it.
    this.cells = [];
    tree.eachBefore((it) => {
      if (kept.has(it)) this.cells.push(it);
    });
    const nodes = this.cells.map((it, i) => this.cell(it, i, width));
    if (!nodes.length) nodes.push(element("p", { class: "note" }, "There are no weights here."));
    this.box.replaceChildren(...nodes);
  }

  /** The modules in the current one with what is in them, the largest first, as far as it is seen. */
  opened(area) {
    const top = { node: this.root, depth: 0 };
    const least = (LEAST_OPENED * Number(this.root.b)) / area;
    const waiting = [top];
    for (let cells = 0; waiting.length && cells < MOST_CELLS; ) {
      const next = waiting.shift();
      const { node, depth } = next;
      if (!node.c || depth >= DEEPEST || (depth > 0 && Number(node.b) < least)) continue;
      next.children = node.c.map((child) => ({ node: child, depth: depth + 1 }));
      cells += next.children.length;
      waiting.push(...next.children.slice(0, MOST_CELLS));
      waiting.sort((a, b) => Number(b.node.b) - Number(a.node.b));
    }
    return top;
  }

  cell(it, i, width) {
    const { node } = it.data;
    it.button = i;
    const isModule = Boolean(node.c);
    const what = `${byteSize(node.b)}, ${count(node.t, "tensor")}${isModule ? "" : `, ${this.tensors.dtype(node.i)} ${this.tensors.shape(node.i)}`}`;
    const label = cut(this.label(node), 80);
    const path = it.ancestors().reverse().slice(1).map((up) => this.label(up.data.node)).join(".");
    const button = element(
      "button",
      { type: "button", class: `cell ${it.children ? "module" : colour(this.mainColour(node))}`, tabindex: i === 0 ? 0 : -1, "data-cell": i, title: `${cut(path, 300)}\n${what}`, "aria-label": `${label}: ${what}`, onclick: () => this.openCell(it) },
      it.y1 - it.y0 >= 14 && it.x1 - it.x0 >= 24 ? element("span", { class: "cell-name", dir: "ltr" }, label) : null,
      !it.children && it.y1 - it.y0 >= 34 && it.x1 - it.x0 >= 50 ? element("span", { class: "cell-size" }, byteSize(node.b)) : null,
    );
    // In parts of the whole, so that paper of another width has the same picture.
    const part = (length) => `${(100 * length) / width}%`;
    Object.assign(button.style, { left: part(it.x0), top: `${it.y0}px`, width: part(it.x1 - it.x0), height: `${it.y1 - it.y0}px` });
    return button;
  }

  drawLegend() {
    const entries = [...this.bytesByColour(this.root)].sort((a, b) => b[1] - a[1]);
    const text = (number) => (number < 0 ? "in the model" : cut(this.kinds[this.kind][number], 60));
    this.legendBox.replaceChildren(legend(entries.slice(0, 24).map(([number, bytes]) => [number, `${text(number)}, ${byteSize(bytes)}`])));
  }

  drawTable() {
    const children = this.root.c ?? [];
    const name = (child) => {
      if (!child.c) return element("a", { href: tensorLink(this.tensors.name(child.i)) }, nameNode(this.label(child)));
      return element("button", { type: "button", class: "link", onclick: () => this.enter([child]) }, nameNode(this.label(child)));
    };
    const row = (child) => [name(child), whole(child.t), whole(child.p), byteSize(child.b), percent(Number(child.b), Number(this.root.b)), bar(Number(child.b), Number(this.root.b))];
    const title = this.path.length === 1 ? "Modules" : `In ${cut(this.label(this.root), 80)}`;
    const table = plainTable(title, [["Module or tensor"], ["Tensors", "right"], ["Parameters", "right"], ["Bytes", "right"], ["Share", "right"], ["", "wide"]], children.map(row), 200);
    const open = this.tableBox.firstChild?.open ?? children.length <= 12;
    const details = element("details", { class: "as-table", open }, element("summary", {}, "As a table"), table);
    this.tableBox.replaceChildren(details);
  }

  // Moving

  enter(nodes) {
    this.path.push(...nodes);
    this.draw();
  }

  goTo(depth) {
    if (depth < 0 || depth >= this.path.length - 1) return;
    this.path.length = depth + 1;
    this.draw();
    this.focus(0);
  }

  openCell(it) {
    const { node } = it.data;
    if (!node.c) {
      location.hash = tensorLink(this.tensors.name(node.i));
      return;
    }
    const way = it.ancestors().reverse().slice(1).map((up) => up.data.node);
    this.enter(way);
    this.focus(0);
  }

  focus(i) {
    for (const cell of this.box.querySelectorAll(".cell")) cell.tabIndex = Number(cell.dataset.cell) === i ? 0 : -1;
    this.box.querySelector(`[data-cell="${i}"]`)?.focus({ preventScroll: true });
  }

  key(event) {
    const at = this.cells[Number(event.target.dataset.cell)];
    if (!at) return;
    const drawn = (all) => (all ?? []).filter((it) => it.button !== undefined);
    const beside = drawn(at.parent.children);
    const place = beside.indexOf(at);
    const next = {
      ArrowRight: beside[place + 1],
      ArrowLeft: beside[place - 1],
      ArrowDown: drawn(at.children)[0],
      ArrowUp: at.parent.button === undefined ? undefined : at.parent,
    };
    if (event.key === "Escape" || event.key === "Backspace") this.goTo(this.path.length - 2);
    else if (event.key in next) {
      if (next[event.key]) this.focus(next[event.key].button);
    } else return;
    event.preventDefault();
  }
}
