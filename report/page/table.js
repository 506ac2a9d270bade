// A table of very many rows, of which only those that are seen are elements. It can be sorted,
// searched and gone through by keys.

const ROW_HEIGHT = 28;
const SPARE_ROWS = 6;
/** Browsers do not have taller elements than about twice this: more rows share it. */
const TALLEST = 8000000;
const PRINTED_ROWS = 200;

/**
 * `columns`: `{ title, width, least, right, text(row), key(row), cell(row) }`, where `key` is what is
 * sorted by, and `cell` makes a node in place of the text. `open(row)` is called for a row that was
 * chosen, `words(row)` says what is searched.
 */
class LongTable {
  constructor({ id, label, rows, columns, words, open, placeholder }) {
    Object.assign(this, { id, label, rows, columns, words, open });
    this.shown = rows;
    this.sorted = { column: -1, down: false };
    this.active = -1;
    this.prints = false;
    this.build(placeholder);
  }

  build(placeholder) {
    this.search = element("input", { type: "search", id: `${this.id}-search`, placeholder, autocomplete: "off", spellcheck: "false" });
    this.search.addEventListener("input", () => this.filter());
    this.search.addEventListener("keydown", (event) => this.searchKey(event));
    this.counted = element("output", { class: "counted", "aria-live": "polite", for: `${this.id}-search` });
    const label = element("label", { for: `${this.id}-search` }, "Search");
    const tools = element("div", { class: "tools" }, label, this.search, this.counted);
    this.body = element("tbody");
    this.heads = this.columns.map((column, i) => this.head(column, i));
    const cols = this.columns.map(({ width }) => {
      const col = element("col");
      if (width) col.style.width = `${width}px`;
      return col;
    });
    this.table = element(
      "table",
      { class: "long", role: "grid", tabindex: 0, "aria-label": this.label, "aria-rowcount": this.rows.length + 1, "aria-colcount": this.columns.length },
      element("colgroup", {}, ...cols),
      element("thead", {}, element("tr", { role: "row", "aria-rowindex": 1 }, ...this.heads)),
      this.body,
    );
    const width = this.columns.reduce((sum, column) => sum + (column.width ?? column.least ?? 260), 0);
    this.table.style.minWidth = `${width}px`;
    this.scroller = element("div", { class: "scroller" }, this.table);
    this.scroller.style.height = `${Math.min(620, (this.rows.length + 1) * ROW_HEIGHT + 22)}px`;
    this.node = element("div", { class: "long-box" }, tools, this.scroller);
    this.scroller.addEventListener("scroll", () => this.draw());
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.click(event));
    window.addEventListener("beforeprint", () => this.print(true));
    window.addEventListener("afterprint", () => this.print(false));
    this.count();
  }

  head(column, i) {
    const button = element("button", { type: "button", tabindex: -1, onclick: () => this.sort(i) }, column.title);
    return element("th", { scope: "col", role: "columnheader", class: column.right ? "right" : null, "aria-sort": "none", title: column.help }, button);
  }

  /** Draws the rows when the table is on the page. */
  ready() {
    this.draw();
    new ResizeObserver(() => this.draw()).observe(this.scroller);
  }

  // Rows

  sort(column) {
    const down = this.sorted.column === column ? !this.sorted.down : this.columns[column].right === true;
    this.sorted = { column, down };
    this.heads.forEach((head, i) => {
      head.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending");
    });
    this.order();
    this.toTop();
  }

  order() {
    const { column, down } = this.sorted;
    if (column < 0) return;
    const key = this.columns[column].key;
    const keyed = this.shown.map((row) => [key(row), row]);
    const sign = down ? -1 : 1;
    keyed.sort(([a], [b]) => {
      if (a === b) return 0;
      // What is not known comes last.
      if (a === null || a === undefined) return 1;
      if (b === null || b === undefined) return -1;
      return a < b ? -sign : sign;
    });
    this.shown = keyed.map(([, row]) => row);
  }

  filter() {
    const wanted = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (wanted.length && !this.searched) this.searched = new Map(this.rows.map((row) => [row, this.words(row).toLowerCase()]));
    const has = (row) => wanted.every((word) => this.searched.get(row).includes(word));
    this.shown = wanted.length ? this.rows.filter(has) : this.rows;
    this.order();
    this.count();
    this.toTop();
  }

  count() {
    const [shown, all] = [this.shown.length, this.rows.length];
    this.counted.textContent = shown === all ? `${whole(all)} rows` : `${whole(shown)} of ${whole(all)} rows`;
    this.table.setAttribute("aria-rowcount", shown + 1);
  }

  /** Shows the rows that contain the words. */
  find(words) {
    this.search.value = words;
    this.filter();
  }

  toTop() {
    this.active = -1;
    this.table.removeAttribute("aria-activedescendant");
    this.scroller.scrollTop = 0;
    this.draw();
  }

  // Drawing

  /** The first row that is seen, and how the rows lie in the height of the element. */
  window() {
    const all = this.shown.length * ROW_HEIGHT;
    const tall = Math.min(all, TALLEST);
    const view = Math.max(ROW_HEIGHT, this.scroller.clientHeight - ROW_HEIGHT);
    const top = Math.min(this.scroller.scrollTop, Math.max(0, tall - view));
    const from = all > tall ? (top / Math.max(1, tall - view)) * (all - view) : top;
    return { tall, view, top, from };
  }

  draw() {
    if (this.prints) return;
    const { tall, view, top, from } = this.window();
    const first = Math.max(0, Math.floor(from / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(this.shown.length, Math.ceil((from + view) / ROW_HEIGHT) + SPARE_ROWS);
    const before = Math.max(0, top - (from - first * ROW_HEIGHT));
    const after = Math.max(0, tall - before - (last - first) * ROW_HEIGHT);
    const rows = [];
    for (let i = first; i < last; i++) rows.push(this.row(i));
    this.body.replaceChildren(this.space(before), ...rows, this.space(after));
    if (!this.shown.length) this.body.append(this.nothing());
  }

  space(height) {
    const row = element("tr", { class: "space", "aria-hidden": "true" }, element("td", { colspan: this.columns.length }));
    row.style.height = `${height}px`;
    return row;
  }

  nothing() {
    const cell = element("td", { colspan: this.columns.length, class: "nothing" }, "Nothing has these words in it.");
    return element("tr", { role: "row" }, cell);
  }

  row(i) {
    const row = this.shown[i];
    const cells = this.columns.map((column) => {
      const value = column.cell ? column.cell(row) : column.text(row);
      return element("td", { role: "gridcell", class: column.right ? "right" : null }, value);
    });
    const active = i === this.active;
    return element(
      "tr",
      { role: "row", id: `${this.id}-row-${i}`, "data-at": i, "aria-rowindex": i + 2, "aria-selected": active ? "true" : null, class: i % 2 ? "odd" : null },
      ...cells,
    );
  }

  /** On paper there is no scrolling: the first rows are all elements. */
  print(prints) {
    this.prints = prints;
    if (!prints) return this.draw();
    const most = Math.min(PRINTED_ROWS, this.shown.length);
    const rows = [];
    for (let i = 0; i < most; i++) rows.push(this.row(i));
    const rest = this.shown.length - most;
    if (rest > 0) {
      const note = element("td", { colspan: this.columns.length }, `and ${whole(rest)} more rows`);
      rows.push(element("tr", {}, note));
    }
    this.body.replaceChildren(...rows);
  }

  // Keys and clicks

  click(event) {
    const row = event.target.closest("tr[data-at]");
    if (!row || event.target.closest("a")) return;
    this.active = Number(row.dataset.at);
    this.table.focus({ preventScroll: true });
    this.choose();
  }

  choose() {
    this.draw();
    this.table.setAttribute("aria-activedescendant", `${this.id}-row-${this.active}`);
    this.open?.(this.shown[this.active]);
  }

  searchKey(event) {
    if (event.key === "Escape" && this.search.value) {
      this.find("");
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      this.table.focus();
      this.move(0);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.window().view / ROW_HEIGHT) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    const ends = { Home: 0, End: this.shown.length - 1 };
    if (event.target !== this.table || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in steps) this.move(this.active < 0 ? 0 : this.active + steps[event.key]);
    else if (event.key in ends) this.move(ends[event.key]);
    else if (event.key === "Enter" && this.active >= 0) this.choose();
    else if (event.key === "Escape" && this.search.value) this.find("");
    else return;
    event.preventDefault();
  }

  /** Makes the row at this place the active one, and scrolls to it. */
  move(at) {
    if (!this.shown.length) return;
    this.active = Math.max(0, Math.min(this.shown.length - 1, at));
    const { tall, view, from } = this.window();
    const all = this.shown.length * ROW_HEIGHT;
    const top = this.active * ROW_HEIGHT;
    let wanted = from;
    if (top < from) wanted = top;
    else if (top + ROW_HEIGHT > from + view) wanted = top + ROW_HEIGHT - view;
    this.scroller.scrollTop = all > tall ? (wanted / Math.max(1, all - view)) * (tall - view) : wanted;
    this.draw();
    this.table.setAttribute("aria-activedescendant", `${this.id}-row-${this.active}`);
  }
}
