// The data of the page: read, inflated, and asked by tensor.

/** The data of the page. Long ones are deflated, and in base64. */
async function readData() {
  const node = document.getElementById("data");
  const text = node.textContent;
  if (node.dataset.encoding !== "deflate") return JSON.parse(text);
  if (typeof DecompressionStream === "undefined") {
    throw new Error("This browser cannot inflate the data of the page: take one of 2023 or later.");
  }
  const packed = atob(text.trim());
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/** The tensors of the model, by their numbers. */
class Tensors {
  constructor(data) {
    this.columns = data.tensors;
    this.files = data.files;
    this.stats = data.stats;
    this.names = this.columns.name;
    this.count = this.names.length;
    this.numbers = null;
  }

  name(i) {
    return this.names[i];
  }

  dtype(i) {
    return this.columns.dtypes[this.columns.dtype[i]];
  }

  shape(i) {
    return shapeText(this.columns.shape[i]);
  }

  elements(i) {
    return this.columns.elements[i];
  }

  bytes(i) {
    return this.columns.bytes[i];
  }

  /** Its bytes; none where another tensor before it has the same. */
  ownBytes(i) {
    return this.columns.shares[i] === null ? Number(this.bytes(i) ?? 0) : 0;
  }

  storage(i) {
    return this.columns.storages[this.columns.storage[i]];
  }

  /** Where the elements are: a file, or the field of the model. */
  place(i) {
    const file = this.columns.file[i];
    return file === null ? `model (${this.storage(i)})` : this.files[file].location;
  }

  offset(i) {
    return this.columns.offset[i];
  }

  /** The largest power of two up to 4096 of which the offset is a multiple. */
  alignment(i) {
    const offset = this.offset(i);
    if (offset === null) return null;
    let exact = BigInt(offset);
    let power = 1;
    while (power < 4096 && exact % 2n === 0n) {
      power *= 2;
      exact /= 2n;
      if (exact === 0n) return 4096;
    }
    return power;
  }

  /** A statistic of the tensor. */
  stat(name, i) {
    return this.stats?.[name][i];
  }

  /** The number of the tensor with this name. */
  find(name) {
    if (!this.numbers) {
      this.numbers = new Map();
      for (let i = this.count - 1; i >= 0; i--) this.numbers.set(this.names[i], i);
    }
    return this.numbers.get(name);
  }
}

/** The fragment of the address that shows a tensor. */
function tensorLink(name) {
  return `#tensor=${encodeURIComponent(name)}`;
}

/** A link to a tensor, if there is one of that name. */
function linked(tensors, name, most = 160) {
  if (tensors.find(name) === undefined) return nameNode(name, most);
  return element("a", { href: tensorLink(name) }, nameNode(name, most));
}
