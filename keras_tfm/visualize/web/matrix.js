// The weights as a table of shades, a query a row; `Grid` draws it, the views "Matrix" and "Steps" hold it.

const LABELS = 96; // pixels at most for the tokens' names
const CELL = 36; // pixels at most of a cell
const LETTERS = [9, 12]; // pixels of the names, at least and at most, as cells have room

class Grid {
  /** `onchoose(query, key)`, with `isPointed` where the pointer is only above. */
  constructor(stage, label, onchoose) {
    this.onchoose = onchoose;
    this.canvas = make("canvas", { tabIndex: 0, role: "application" });
    this.canvas.setAttribute("aria-roledescription", "matrix");
    this.canvas.setAttribute("aria-label", label);
    this.space = make("div", { className: "space" }, this.canvas);
    this.scroller = make("div", { className: "matrix", onscroll: () => this.paint() }, this.space);
    this.canvas.addEventListener("pointermove", (event) => this.onchoose(...this.under(event), true));
    this.canvas.addEventListener("pointerleave", () => this.onchoose(-1, -1, true));
    this.canvas.addEventListener("click", (event) => this.onchoose(...this.under(event), false));
    stage.append(this.scroller);
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const key = Math.floor((event.clientX - box.left - this.left + this.scroller.scrollLeft) / this.cell);
    const query = Math.floor((event.clientY - box.top - this.top + this.scroller.scrollTop) / this.cell);
    const isInside = event.clientX - box.left >= this.left && event.clientY - box.top >= this.top &&
      query >= 0 && key >= 0 && query < this.rows.length && key < this.columns.length;
    return isInside ? [query, key] : [-1, -1];
  }

  /** `values` in 0…1, row by row; `rows` and `columns` are tokens; `shown` rows of them are known yet. */
  draw({ values, rows, columns, zoom = 1, shown = rows.length, chosen = [-1, -1] }) {
    const isNew = this.values !== values || this.dark !== isDark() || this.shown !== shown;
    Object.assign(this, { values, rows, columns, shown, chosen, dark: isDark() });
    this.size = LETTERS[1];
    const widest = this.scroller.clientWidth - LABELS;
    if (widest / columns.length < this.size + 1) this.size = Math.max(LETTERS[0], Math.floor(widest / columns.length) - 1);
    this.font = `${this.size}px system-ui, sans-serif`;
    this.left = this.longest(rows);
    this.top = this.longest(columns);
    const room = this.scroller.clientWidth - this.left - 1;
    this.cell = Math.max(1, Math.min(CELL, room / columns.length)) * zoom;
    if (this.cell > 4) this.cell = Math.floor(this.cell);
    this.width = this.left + Math.ceil(this.cell * columns.length) + 1;
    this.height = this.top + Math.ceil(this.cell * rows.length) + 1;
    this.space.style.width = `${this.width}px`;
    this.space.style.height = `${this.height}px`;
    if (isNew) this.bitmap();
    this.paint();
  }

  /** Pixels for the longest name. */
  longest(tokens) {
    const context = this.canvas.getContext("2d");
    context.font = this.font;
    const most = tokens.reduce((most, token) => Math.max(most, context.measureText(seen(token)).width), 16);
    return Math.min(LABELS, Math.ceil(most) + 14);
  }

  bitmap() {
    const [width, height] = [this.columns.length, this.rows.length];
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    const table = shades();
    for (let at = 0; at < this.shown * width; at++) pixels[at] = table[Math.round(this.values[at] * (SHADES - 1))];
    this.picture = new OffscreenCanvas(width, height);
    this.picture.getContext("2d").putImageData(image, 0, 0);
  }

  paint() {
    if (!this.picture) return;
    const { scroller, cell, left, top } = this;
    const width = Math.min(scroller.clientWidth, this.width);
    const height = Math.min(scroller.clientHeight, this.height);
    const context = fresh(this.canvas, width, height);
    const [x, y] = [left - scroller.scrollLeft, top - scroller.scrollTop]; // of the first cell
    const [across, down] = [cell * this.columns.length, cell * this.rows.length];
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    context.imageSmoothingEnabled = cell < 2;
    context.drawImage(this.picture, x, y, across, down);
    if (cell >= 8) this.rule(context, x, y, across, down);
    const [query, key] = this.chosen;
    context.strokeStyle = variable("--accent");
    context.lineWidth = 2;
    if (query >= 0) context.strokeRect(x, y + query * cell, across, cell);
    if (key >= 0) context.strokeRect(x + key * cell, y, cell, down);
    context.restore();
    this.names(context, this.rows, query, [top, y, height], left, false);
    this.names(context, this.columns, key, [left, x, width], top, true);
    Object.assign(this.canvas.dataset, { cell, left: x, top: y });
  }

  /** Lines between the cells, where those are large enough. */
  rule(context, x, y, across, down) {
    context.strokeStyle = variable("--line");
    context.lineWidth = 1;
    context.beginPath();
    for (let row = 0; row <= this.rows.length; row++) {
      const place = Math.round(y + row * this.cell) + 0.5;
      context.moveTo(x, place);
      context.lineTo(x + across, place);
    }
    for (let column = 0; column <= this.columns.length; column++) {
      const place = Math.round(x + column * this.cell) + 0.5;
      context.moveTo(place, y);
      context.lineTo(place, y + down);
    }
    context.stroke();
  }

  /** The tokens along one side, within `room` pixels, from `origin` on and between `least` and `most`; where
   *  cells are small every n-th, and always the chosen one. */
  names(context, tokens, chosen, [least, origin, most], room, isAcross) {
    const every = Math.ceil((this.size + 1) / this.cell);
    context.font = this.font;
    context.textBaseline = "middle";
    const write = (index, isChosen) => {
      const place = origin + (index + 0.5) * this.cell;
      if (place < least || place > most) return;
      context.save();
      if (isAcross) {
        context.translate(place, room - 6);
        context.rotate(-Math.PI / 2);
        context.textAlign = "left";
      } else {
        context.translate(room - 6, place);
        context.textAlign = "right";
      }
      const text = shortened(context, seen(tokens[index]), room - 8);
      if (isChosen) {
        const length = context.measureText(text).width + 8;
        context.fillStyle = variable("--accent");
        context.fillRect(isAcross ? -4 : 4 - length, -8, length, 16);
      }
      context.fillStyle = variable(isChosen ? "--surface" : index < this.shown || isAcross ? "--ink" : "--muted");
      context.fillText(text, 0, 0.5);
      context.restore();
    };
    for (let index = 0; index < tokens.length; index += every) {
      if (Math.abs(index - chosen) >= every || chosen < 0) write(index, false);
    }
    if (chosen >= 0) write(chosen, true);
  }
}

function shortened(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > room) length--;
  return `${text.slice(0, length)}…`;
}

/** Parts of each row's largest weight, or of the largest of all, its square root: small weights are seen. */
function relative(means, columns, isByRow) {
  const values = new Float32Array(means.length);
  const most = largestOf(means, 0, means.length);
  for (let first = 0; first < means.length; first += columns) {
    const top = (isByRow ? largestOf(means, first, first + columns) : most) || 1;
    for (let at = first; at < first + columns; at++) {
      values[at] = isByRow ? means[at] / top : Math.sqrt(means[at] / top);
    }
  }
  return values;
}

function largestOf(values, from, to) {
  let most = 0;
  for (let at = from; at < to; at++) if (values[at] > most) most = values[at];
  return most;
}

class Matrix {
  static title = "Matrix";

  constructor(page, stage) {
    this.page = page;
    this.zoom = 1;
    this.isByRow = true;
    const button = (text, label, act) => make("button", { type: "button", textContent: text, ariaLabel: label, onclick: act });
    const zoomed = (by) => () => {
      this.zoom = Math.max(1, Math.min(32, this.zoom * by));
      page.draw();
    };
    const shading = make("select", { ariaLabel: "Shades are parts of", onchange: (event) => {
      this.isByRow = event.target.value === "row";
      this.shaded = null;
      page.draw();
    } }, make("option", { value: "row", textContent: "each row's largest" }),
    make("option", { value: "all", textContent: "the largest of all" }));
    stage.append(make("p", { className: "tools" }, make("label", {}, "Shade ", shading),
      button("−", "Smaller", zoomed(0.5)), button("+", "Larger", zoomed(2))));
    this.grid = new Grid(stage, "Weights, a query a row, a key a column", (query, key, isPointed) => {
      if (isPointed) this.say(query, key);
      else page.choosePair(query, key);
    });
    this.grid.canvas.addEventListener("keydown", (event) => {
      const move = { ArrowDown: ["query", 1], ArrowUp: ["query", -1], ArrowRight: ["key", 1], ArrowLeft: ["key", -1] };
      if (!move[event.key]) return;
      event.preventDefault();
      page.step(...move[event.key], true);
    });
    this.caption = make("p", { className: "caption", id: "caption" });
    stage.append(this.caption);
  }

  draw(layer, entry) {
    const heads = this.page.heads();
    const name = `${entry.index} ${heads} ${this.isByRow}`;
    if (this.shaded !== name || this.layer !== layer) {
      this.values = relative(layer.means(heads), layer.keys, this.isByRow);
      this.shaded = name;
    }
    Object.assign(this, { layer, entry });
    const { query, key } = this.page.state;
    const [rows, columns] = [entry.query, entry.key].map((side) => this.page.recording.tokens(side));
    this.grid.draw({ values: this.values, rows, columns, zoom: this.zoom, chosen: [query, key] });
    this.say(query, key);
  }

  say(query, key) {
    if (query < 0 || key < 0) ({ query, key } = this.page.state);
    this.caption.textContent = query < 0 || key < 0
      ? `Rows read, columns are read; ${this.page.headsSaid()}.`
      : this.page.pairSaid(this.layer, this.entry, query, key);
  }
}
