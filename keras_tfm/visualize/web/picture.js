// An image's patches: what a patch reads of the others, over the picture, and head by head below. A layer that
// attends within windows of a map of them is shown in the window of the chosen patch. Where words, or a detector's
// objects, read patches, one of them is chosen, and the picture shows what was read for it.

class Picture {
  static title = "Picture";
  static suits = (recording) => Boolean(recording.picture) && recording.entries.some((entry) => recording.map(entry));
  static takes = (recording, entry) => Boolean(recording.map(entry));

  /** Where no token stands before the patches, one of them is always chosen: at first, and in another layer, the
   *  one at the same spot. */
  static settle({ recording, state }) {
    const entry = recording.entries[state.entry];
    const map = recording.map(entry, "query");
    if (!map || map.first || (state.query >= 0 && (!entry.windows || state.window >= 0))) return;
    Object.assign(state, placeOf(map, entry, cellAt(map, ...state.spot)));
  }

  constructor(page, stage) {
    this.page = page;
    this.image = make("img", { alt: "" });
    this.prefix = make("div", { className: "chips", role: "radiogroup" });
    this.canvas = make("canvas", { tabIndex: 0, role: "application" });
    this.canvas.setAttribute("aria-roledescription", "picture");
    this.canvas.setAttribute("aria-label", "Patches of the picture");
    this.small = make("div", { className: "small-pictures" });
    this.caption = make("p", { className: "caption", id: "caption" });
    stage.append(this.prefix, make("div", { className: "picture" }, this.canvas, this.small), this.caption);
    const under = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return cellAt(this.from, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    };
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.words) return;
      const { query, window } = placeOf(this.from, page.entry, under(event));
      page.point("query", query, window);
    });
    this.canvas.addEventListener("pointerleave", () => page.point("query", -1));
    this.canvas.addEventListener("click", (event) => this.words || this.choose(under(event)));
    this.canvas.addEventListener("keydown", (event) => {
      const { rows, columns } = this.from || this.map;
      const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
      if (!move) return;
      event.preventDefault();
      if (this.words) return this.chooseWord(this.words.findIndex(([row]) => row === this.row) + Math.sign(move));
      if (this.from.first) return page.step("query", move);
      const to = this.cell + move;
      if (to < 0 || to >= rows * columns || (Math.abs(move) === 1 && Math.floor(to / columns) !== Math.floor(this.cell / columns))) return;
      this.choose(to);
      page.recording.read(page.entry).then((layer) => page.say(page.readSaid(layer, page.entry, page.state.query)));
    });
  }

  choose(cell) {
    const { from, page } = this;
    const { query, window = -1 } = placeOf(from, page.entry, cell);
    if (from.first) return page.choose("query", query);
    const spot = [((cell % from.columns) + 0.5) / from.columns, (Math.floor(cell / from.columns) + 0.5) / from.rows];
    page.update({ window, query, key: -1, pointed: null, spot });
  }

  /** The words or objects for which a layer reads patches, [row, word] each; null where patches read patches. */
  wordsOf(entry) {
    const { recording } = this.page;
    if (recording.map(entry, "query")) return null;
    const { objects, tokens } = recording.sides[entry.query];
    if (objects) return objects.shown.map((row) => [row, tokens[row]]);
    if (entry.query === recording.written) return recording.steps.map(({ query, token }) => [query, token]);
    return recording.tokens(entry.query).map((token, row) => [row, token]);
  }

  chooseWord(at) {
    const { page, words } = this;
    const [row, word] = words[Math.max(0, Math.min(words.length - 1, at))];
    page.update({ query: row, key: -1, pointed: null });
    page.recording.read(page.entry).then((layer) => page.say(`“${seen(word)}”: ${page.readSaid(layer, page.entry, row)}`));
  }

  async draw(layer, entry) {
    const { page } = this;
    if (this.image.recording !== page.recording) {
      this.image.recording = page.recording;
      this.image.src = page.recording.picture;
      await this.image.decode();
    }
    this.map = page.recording.map(entry);
    this.from = page.recording.map(entry, "query");
    const { first } = this.map;
    const { pointed, query: chosen } = page.state;
    this.words = this.wordsOf(entry);
    const isWord = this.words?.some(([row]) => row === chosen);
    const query = this.words ? (isWord ? chosen : this.words[0][0]) : pointed ? pointed.index : Math.max(0, chosen);
    this.row = query;
    this.cells = this.map.cells[entry.window ?? 0];
    this.cell = this.words || query < this.from.first ? -1 : this.from.cells[entry.window ?? 0][query - this.from.first];
    this.box = page.recording.sides[entry.query.split("/")[0]].objects?.boxes[query];
    this.prefix.ariaLabel = this.box ? "Objects" : this.words ? "Words" : "Tokens before the patches";
    this.prefix.replaceChildren(...(this.words
      ? this.words.map(([row, word], at) => radio("prefix", row, seen(word), row === query, () => this.chooseWord(at)))
      : page.recording.tokens(entry.query).slice(0, this.from.first).map((token, at) =>
        radio("prefix", at, seen(token), at === query, () => page.choose("query", at)))));
    this.prefix.hidden = !this.words && !this.from.first;
    const widest = Math.min(560, this.canvas.parentElement.clientWidth);
    const weights = layer.mean(page.heads(), query);
    this.paint(this.canvas, widest, weights);
    if (!pointed) {
      const heads = page.heads();
      this.small.replaceChildren(...(heads.length > 1 ? heads : []).map((head) => {
        const canvas = make("canvas", { role: "img", ariaLabel: `Head ${head + 1}` });
        this.paint(canvas, 120, layer.mean([head], query));
        return make("figure", {}, canvas, make("figcaption", { textContent: `Head ${head + 1}` }));
      }));
    }
    const outside = weights.reduce((sum, weight, at) => sum + (at < first || this.cells[at - first] < 0 ? weight : 0), 0);
    const beside = first ? `, the tokens before the patches ${share(outside)}` : outside ? `, padding ${share(outside)}` : "";
    const where = entry.windows > 1 ? ` in its window, number ${entry.window + 1} of ${entry.windows}` : "";
    const word = this.words?.find(([row]) => row === query)?.[1];
    const what = this.words ? `was read for “${seen(word)}”` : `${page.named(entry.query, query)} reads`;
    this.caption.textContent = `What ${what}${where}, ${page.headsSaid()}; the brightest ` +
      `patch has ${share(Math.max(...this.canvas.drawn))}${beside}.`;
  }

  paint(canvas, width, weights) {
    const { rows, columns, first } = this.map;
    const height = Math.round((width * this.image.naturalHeight) / this.image.naturalWidth);
    const context = fresh(canvas, width, height);
    context.imageSmoothingEnabled = this.image.naturalWidth > width / 2;
    context.drawImage(this.image, 0, 0, width, height);
    const patches = new Float32Array(rows * columns);
    this.cells.forEach((cell, at) => {
      if (cell >= 0) patches[cell] = weights[first + at];
    });
    const most = largestOf(patches, 0, patches.length) || 1;
    const [x, y] = [width / columns, height / rows];
    patches.forEach((weight, at) => {
      context.fillStyle = `rgb(8 10 20 / ${0.82 * (1 - Math.sqrt(weight / most))})`;
      const [left, top] = [Math.round((at % columns) * x), Math.round(Math.floor(at / columns) * y)];
      const [right, bottom] = [Math.round(((at % columns) + 1) * x), Math.round((Math.floor(at / columns) + 1) * y)];
      context.fillRect(left, top, right - left, bottom - top);
    });
    if (this.map.cells.length > 1) this.surround(context, x, y);
    context.lineWidth = Math.max(2, width / 200);
    context.strokeStyle = "#ffb000";
    if (this.cell >= 0) {
      const [wide, high] = [width / this.from.columns, height / this.from.rows];
      context.strokeRect((this.cell % this.from.columns) * wide, Math.floor(this.cell / this.from.columns) * high, wide, high);
    }
    if (this.box) {
      const [left, top, right, bottom] = this.box;
      context.strokeRect(left * width, top * height, (right - left) * width, (bottom - top) * height);
    }
    canvas.drawn = patches;
  }

  /** A line around the window; what a shift brought together lies in several pieces. */
  surround(context, x, y) {
    const { columns } = this.map;
    const inside = new Set(this.cells);
    context.beginPath();
    for (const cell of inside) {
      if (cell < 0) continue;
      const [column, row] = [cell % columns, Math.floor(cell / columns)];
      const isIn = (across, down) => column + across >= 0 && column + across < columns && inside.has(cell + across + down * columns);
      const line = (fromX, fromY, toX, toY) => {
        context.moveTo((column + fromX) * x, (row + fromY) * y);
        context.lineTo((column + toX) * x, (row + toY) * y);
      };
      if (!isIn(-1, 0)) line(0, 0, 0, 1);
      if (!isIn(1, 0)) line(1, 0, 1, 1);
      if (!isIn(0, -1)) line(0, 0, 1, 0);
      if (!isIn(0, 1)) line(0, 1, 1, 1);
    }
    context.lineWidth = 1;
    context.strokeStyle = "#ffffffb0";
    context.stroke();
  }
}

/** The cell of a map, row by row, at a spot of the picture, in parts of its width and height. */
function cellAt({ rows, columns }, x, y) {
  const at = (part, count) => Math.max(0, Math.min(count - 1, Math.floor(part * count)));
  return at(y, rows) * columns + at(x, columns);
}

/** Which token a cell of the map is: its place, and where there are windows the one that it lies in. */
function placeOf({ cells, first }, entry, cell) {
  if (!entry.windows) return { query: first + cell };
  const window = cells.findIndex((some) => some.includes(cell));
  return { window, query: cells[window].indexOf(cell) };
}
