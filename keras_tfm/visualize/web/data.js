// What the page holds: a header in JSON, and for each layer one block of bytes, deflated, in base64.

/** The bytes of a block; they are unpacked when a layer is first looked at. */
async function unpacked(base64) {
  const bytes = Uint8Array.fromBase64
    ? Uint8Array.fromBase64(base64)
    : Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The weights of one layer: 4 bits each, in parts of their row's maximum, which is a float32. */
class Layer {
  constructor(entry, bytes) {
    Object.assign(this, { heads: entry.heads, queries: entry.queries, keys: entry.keys, top: entry.top });
    const rows = this.heads * this.queries;
    this.maxima = new Float32Array(bytes.slice(0, 4 * rows).buffer);
    this.levels = new Uint8Array(rows * this.keys + 1);
    for (let from = 4 * rows, to = 0; from < bytes.length; from++) {
      this.levels[to++] = bytes[from] & 15;
      this.levels[to++] = bytes[from] >> 4;
    }
  }

  weight(head, query, key) {
    const row = head * this.queries + query;
    return (this.maxima[row] * this.levels[row * this.keys + key]) / this.top;
  }

  /** The mean over `heads` of a query's weights, one per key. */
  mean(heads, query) {
    const sums = new Float32Array(this.keys);
    for (const head of heads) {
      const row = head * this.queries + query;
      const scale = this.maxima[row] / this.top / heads.length;
      const first = row * this.keys;
      for (let key = 0; key < this.keys; key++) sums[key] += scale * this.levels[first + key];
    }
    return sums;
  }

  /** The mean over `heads` of all weights, row by row. */
  means(heads) {
    const all = new Float32Array(this.queries * this.keys);
    for (let query = 0; query < this.queries; query++) all.set(this.mean(heads, query), query * this.keys);
    return all;
  }
}

/** Queries and keys of one layer: signed bytes, in parts of each vector's largest entry, a float32. */
class Vectors {
  constructor(entry, bytes) {
    const { heads, queries, keys, key_dim: size } = entry;
    const [rows, columns] = [heads * queries, heads * keys];
    Object.assign(this, { queries, keys, size, columns: rows });
    this.scales = new Float32Array(bytes.slice(0, 4 * (rows + columns)).buffer);
    this.values = new Int8Array(bytes.buffer, 4 * (rows + columns));
  }

  at(vector) {
    const part = this.values.subarray(vector * this.size, (vector + 1) * this.size);
    return Float32Array.from(part, (value) => (value * this.scales[vector]) / 127);
  }

  query(head, query) {
    return this.at(head * this.queries + query);
  }

  key(head, key) {
    return this.at(this.columns + head * this.keys + key);
  }
}

/** The data of one text or image; `blocks` says the base64 of a block by its name. */
class Recording {
  constructor(header, blocks) {
    Object.assign(this, header);
    this.blocks = blocks;
    this.kept = new Map();
    this.kinds = [...new Set(this.entries.map((entry) => entry.kind))];
  }

  layersOf(kind) {
    return this.entries.filter((entry) => entry.kind === kind);
  }

  /** The layer's weights, or with `kind` "vectors" its queries and keys. */
  read(entry, kind = "weights") {
    const name = `${kind}-${entry.index}`;
    if (!this.kept.has(name)) {
      const Kind = kind === "weights" ? Layer : Vectors;
      this.kept.set(name, unpacked(this.blocks(name)).then((bytes) => new Kind(entry, bytes)));
    }
    return this.kept.get(name);
  }

  tokens(side) {
    return this.sides[side].tokens;
  }
}
