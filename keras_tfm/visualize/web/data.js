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
    const { heads, queries, keys, top, windows = 1 } = entry;
    Object.assign(this, { heads, queries, keys, top, windows });
    const rows = windows * heads * queries;
    this.maxima = new Float32Array(bytes.slice(0, 4 * rows).buffer);
    this.levels = new Uint8Array(rows * this.keys + 1);
    for (let from = 4 * rows, to = 0; from < bytes.length; from++) {
      this.levels[to++] = bytes[from] & 15;
      this.levels[to++] = bytes[from] >> 4;
    }
  }

  /** The same layer within one of its windows; with -1 the mean of all. */
  within(window) {
    const { heads, queries, keys, top, windows } = this;
    const rows = heads * queries;
    const some = Object.assign(Object.create(Layer.prototype), { heads, queries, keys, top, windows: 1 });
    if (window >= 0) {
      const [from, to] = [window * rows, (window + 1) * rows];
      return Object.assign(some, { maxima: this.maxima.subarray(from, to), levels: this.levels.subarray(from * keys, to * keys) });
    }
    Object.assign(some, { top: 255, maxima: new Float32Array(rows), levels: new Uint8Array(rows * keys) });
    for (let row = 0; row < rows; row++) {
      const sums = new Float32Array(keys);
      for (let from = row; from < windows * rows; from += rows) {
        const scale = this.maxima[from] / top / windows;
        for (let key = 0; key < keys; key++) sums[key] += scale * this.levels[from * keys + key];
      }
      some.maxima[row] = Math.max(...sums);
      if (some.maxima[row]) sums.forEach((sum, key) => (some.levels[row * keys + key] = Math.round((255 * sum) / some.maxima[row])));
    }
    return some;
  }

  weight(head, query, key) {
    const row = head * this.queries + query;
    return (this.maxima[row] * this.levels[row * this.keys + key]) / this.top;
  }

  /** A head's largest weight of each query, their mean. */
  sharpness(head) {
    const { maxima, queries } = this;
    return maxima.subarray(head * queries, (head + 1) * queries).reduce((sum, weight) => sum + weight, 0) / queries;
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

/** Queries and keys of one layer: signed bytes, in parts of each vector's largest entry, a float32. Within
 *  windows a head is counted on from one window to the next. */
class Vectors {
  constructor(entry, bytes) {
    const { heads, queries, keys, key_dim: size, windows = 1 } = entry;
    const [rows, columns] = [windows * heads * queries, windows * heads * keys];
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
    this.made = new Map();
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
    const read = this.kept.get(name);
    if (kind !== "weights" || !entry.windows) return read;
    const window = entry.window ?? -1;
    return this.once(`${name}/${window}`, () => read.then((layer) => layer.within(window)));
  }

  once(name, make) {
    if (!this.made.has(name)) this.made.set(name, make());
    return this.made.get(name);
  }

  /** The entry of a layer within one of its windows; with -1, or where it has none, as it is. */
  at(index, window) {
    const entry = this.entries[index];
    if (!entry?.windows || window < 0) return entry;
    const [query, key] = [entry.query, entry.key].map((side) => `${side}/${window}`);
    return this.once(`entry-${index}/${window}`, () => ({ ...entry, window, query, key }));
  }

  /** The names of the tokens on a side, "side-0", or in a window of it, "side-0/5": of a map its cells. */
  tokens(side) {
    const [name, window] = side.split("/");
    const { tokens, windows } = this.sides[name];
    if (window === undefined || !windows) return tokens;
    return this.once(`tokens-${side}`, () => windows.cells[window].map((cell) =>
      cell < 0 ? "padding" : `${Math.floor(cell / windows.columns)},${cell % windows.columns}`));
  }

  /** Where an entry's keys, or its queries, lie on the picture: `rows` and `columns`, how many tokens stand
   *  `first`, and the `cells` (row by row) of the others, window by window, -1 for padding; null for no map. */
  map(entry, side = "key") {
    const [name] = entry[side].split("/");
    const { grid, tokens, windows } = this.sides[name];
    if (windows) return { ...windows, first: 0 };
    return grid && this.once(`map-${name}`, () => ({ ...grid, cells: [tokens.slice(grid.first).map((_, cell) => cell)] }));
  }
}
