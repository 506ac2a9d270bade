// One tensor, in a dialog that the address names: `#tensor=NAME`.

class Details {
  constructor(tensors) {
    this.tensors = tensors;
    this.dialog = document.getElementById("details");
    this.dialog.addEventListener("close", () => this.closed());
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    window.addEventListener("hashchange", () => this.follow());
  }

  /** Shows the tensor that the address names. */
  follow() {
    const named = location.hash.match(/^#tensor=(.*)$/s);
    if (!named) {
      this.dialog.close();
      return;
    }
    let name = named[1];
    try {
      name = decodeURIComponent(name);
    } catch {
      // A percent sign that nobody encoded.
    }
    const number = this.tensors.find(name);
    this.show(name, number);
  }

  open(number) {
    location.hash = tensorLink(this.tensors.name(number));
  }

  closed() {
    if (location.hash.startsWith("#tensor=")) history.replaceState(null, "", "#tensors");
    this.before?.focus();
  }

  show(name, number) {
    if (!this.dialog.open) this.before = document.activeElement;
    const close = element("button", { type: "button", class: "close", onclick: () => this.dialog.close() }, "Close");
    const title = element("h2", { id: "details-title" }, element("span", { class: "name", dir: "ltr" }, cut(name, 2000)));
    const content = number === undefined ? [element("p", {}, "No tensor of this model has this name.")] : this.content(number);
    this.dialog.replaceChildren(element("div", { class: "details-head" }, title, close), ...content);
    if (!this.dialog.open) this.dialog.showModal();
  }

  content(i) {
    const { tensors } = this;
    const shares = tensors.columns.shares[i];
    const alignment = tensors.alignment(i);
    const operator = tensors.columns.operators[tensors.columns.operator[i]];
    const facts = [
      ["Element type", tensors.dtype(i)],
      ["Shape", tensors.shape(i)],
      ["Elements", whole(tensors.elements(i))],
      ["Bytes", `${byteSize(tensors.bytes(i))}${tensors.bytes(i) >= 1000 ? ` (${whole(tensors.bytes(i))})` : ""}`],
      ["Stored in", cut(tensors.place(i))],
      ["First byte", tensors.offset(i) === null ? null : whole(tensors.offset(i))],
      ["Offset is a multiple of", alignment === null ? null : alignment === 4096 ? "4096 or more" : whole(alignment)],
      ["Has the bytes of", shares === null ? null : linked(tensors, tensors.name(shares))],
      ["Kind", tensors.columns.sites[tensors.columns.site[i]] + (operator ? ` of ${cut(operator)}` : "")],
      ...this.statistics(i),
    ];
    return [factList(facts), this.histogram(i)].filter(Boolean);
  }

  statistics(i) {
    if (!this.tensors.stats || this.tensors.stat("nan", i) === null) return [];
    const stat = (name) => this.tensors.stat(name, i);
    return [
      ["Smallest", real(stat("min"))],
      ["Largest", real(stat("max"))],
      ["Mean", real(stat("mean"))],
      ["Standard deviation", real(stat("std"))],
      ["NaN", whole(stat("nan"))],
      ["Infinite", whole(stat("infinite"))],
      ["Zeros", whole(stat("zeros"))],
      ["All equal", stat("all_equal") ? "yes" : null],
    ];
  }

  histogram(i) {
    const found = this.tensors.stat("histogram", i);
    return found ? histogramNode(found, 400, 90, true) : null;
  }
}

/** Pairs of a term and what is said of it; those of which nothing is said are left out. */
function factList(facts) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "");
  const pair = ([term, value]) => element("div", {}, element("dt", {}, term), element("dd", {}, value));
  return element("dl", { class: "facts" }, ...known.map(pair));
}

/** A histogram: where it starts, the width of its bins, and a hexadecimal digit for each height. */
function histogramNode([start, width, heights], across, tall, ends = false) {
  const step = across / Math.max(1, heights.length);
  const bars = [...heights].map((digit, k) => {
    const height = (tall * parseInt(digit, 16)) / 15;
    return drawing("rect", { x: k * step, y: tall - height, width: Math.max(0.5, step - 0.3), height });
  });
  const stop = typeof start === "number" && typeof width === "number" ? start + width * heights.length : null;
  const label = `Histogram from ${real(start)} to ${real(stop)}`;
  const svg = drawing("svg", { class: "histogram", viewBox: `0 0 ${across} ${tall}`, width: across, height: tall, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...bars);
  if (!ends) return svg;
  const axis = element("div", { class: "axis", "aria-hidden": "true" }, element("span", {}, real(start)), element("span", {}, real(stop)));
  return element("div", { class: "histogram-box" }, svg, axis);
}
