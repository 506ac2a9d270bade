// Texts as people read them. Names come from strangers: characters that are not seen, or that turn
// the direction of text, are shown by their numbers, and a long name loses its middle.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** The text with a number for each hidden character. */
function visible(text) {
  return String(text).replace(HIDDEN, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/** The text without its middle, when it has more than `most` characters. */
function cut(text, most = 160) {
  text = String(text);
  if (text.length <= most) return visible(text);
  const kept = most - 1;
  const start = text.slice(0, Math.ceil(kept / 2)).replace(/[\ud800-\udbff]$/, "");
  const end = text.slice(text.length - Math.floor(kept / 2)).replace(/^[\udc00-\udfff]/, "");
  return visible(`${start}…${end}`);
}

const UNITS = ["kB", "MB", "GB", "TB", "PB", "EB"];

/** A length in bytes, in powers of 1000, as the command says it. */
function byteSize(bytes) {
  if (bytes === null || bytes === undefined) return "unknown";
  let value = Number(bytes);
  if (value < 1000) return `${value} B`;
  for (const unit of UNITS) {
    value /= 1000;
    if (Math.round(value * 10) < 100) return `${value.toFixed(1)} ${unit}`;
    if (Math.round(value) < 1000) return `${Math.round(value)} ${unit}`;
  }
  return `${bytes} B`;
}

const WHOLE = new Intl.NumberFormat("en-US");

/** An integer with its digits in groups; a text, which is longer than numbers are, as it is. */
function whole(number) {
  if (number === null || number === undefined) return "";
  return typeof number === "number" ? WHOLE.format(number) : String(number);
}

/** A number of so many digits. */
function real(number, digits = 6) {
  if (number === null || number === undefined) return "";
  if (typeof number !== "number") return String(number);
  const rounded = Number(number.toPrecision(digits));
  const size = Math.abs(rounded);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? rounded.toExponential() : String(rounded);
}

/** A large number in words: 124 M. */
function short(number) {
  let value = Number(number);
  if (value < 10000) return whole(value);
  for (const unit of ["k", "M", "G", "T", "P"]) {
    value /= 1000;
    if (value < 999.5) return `${value < 9.95 ? value.toFixed(1) : Math.round(value)} ${unit}`;
  }
  return whole(number);
}

function count(number, what, many = `${what}s`) {
  return `${whole(number)} ${number === 1 ? what : many}`;
}

function percent(part, all) {
  if (!all) return "";
  const share = (100 * part) / all;
  return share > 0 && share < 0.1 ? "< 0.1 %" : `${share.toFixed(1)} %`;
}

function shapeText(shape) {
  return `[${shape.join(", ")}]`;
}

/** A key that sorts `layer.9` before `layer.10`. */
function natural(text) {
  return text.replace(/\d+/g, (digits) => digits.padStart(12, "0"));
}
