// Elements. Texts are set as texts and never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element with these attributes and children: nodes, or texts. */
function element(tag, attributes = {}, ...children) {
  return filledWith(document.createElement(tag), attributes, children);
}

function drawing(tag, attributes = {}, ...children) {
  return filledWith(document.createElementNS(SVG, tag), attributes, children);
}

function filledWith(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** A name, cut, with the whole of it in its title. */
function nameNode(name, most = 160) {
  const shown = cut(name, most);
  const title = shown === name ? null : cut(name, 4000);
  return element("span", { class: "name", title, dir: "ltr" }, shown);
}

/** A section of the page. */
function section(id, title, ...children) {
  const heading = element("h2", { id: `${id}-title` }, title);
  return element("section", { id, "aria-labelledby": `${id}-title` }, heading, ...children);
}

/**
 * A table that shows all of its rows. A column is a title and how it is shown: `right` for numbers.
 * More rows than `most` are only counted.
 */
function plainTable(caption, columns, rows, most = 1000) {
  const heads = columns.map(([title, kind]) => element("th", { scope: "col", class: kind }, title));
  const cell = (value, i) => {
    const tag = i === 0 ? "th" : "td";
    return element(tag, { class: columns[i][1], scope: i === 0 ? "row" : null }, value ?? "");
  };
  const body = rows.slice(0, most).map((row) => element("tr", {}, ...row.map(cell)));
  const rest = rows.length - body.length;
  const more = rest > 0 ? element("p", { class: "note" }, `and ${whole(rest)} more`) : null;
  const table = element(
    "table",
    { class: "plain" },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...body),
  );
  return element("div", { class: "plain-box", tabindex: 0, role: "region", "aria-label": caption }, table, more);
}

/** A bar of a part of the whole. */
function bar(part, all, kind = "") {
  const node = element("span", { class: `bar ${kind}`, "aria-hidden": "true" });
  node.style.width = `${all > 0 ? Math.max(1, (100 * part) / all) : 0}%`;
  return element("span", { class: "bar-box", "aria-hidden": "true" }, node);
}

/** The number of colours in the style. */
const COLOURS = 10;

/** The class of the colour for the number of a kind. */
function colour(number) {
  return number < 0 ? "c-none" : `c${number % COLOURS}`;
}

/** What colours mean: pairs of a number and a text. */
function legend(entries) {
  const item = ([number, text]) =>
    element("li", {}, element("span", { class: `swatch ${colour(number)}`, "aria-hidden": "true" }), text);
  return element("ul", { class: "legend" }, ...entries.map(item));
}
