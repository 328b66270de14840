// Lines from each token to those that it reads: thickness is the weight, the colour its head.

const ROW = 24; // pixels of a token
const HIGH_ROW = 34; // of each of a few
const FEW = 16;
const MOST_LINES = 3000; // of which the strongest are drawn
const WIDTHS = 12; // of lines, by their weight

class Lines {
  static title = "Lines";

  constructor(page, stage) {
    this.page = page;
    this.lists = { query: this.list("query"), key: this.list("key") };
    this.canvas = make("canvas", { role: "img" });
    this.scroller = make(
      "div",
      { className: "lines", onscroll: () => this.paint() },
      make("p", { className: "side-name", textContent: "reads" }),
      make("span"),
      make("p", { className: "side-name", textContent: "is read" }),
      this.lists.query,
      make("div", { className: "between" }, this.canvas),
      this.lists.key,
    );
    this.caption = make("p", { className: "caption", id: "caption" });
    stage.append(this.scroller, this.caption);
  }

  list(side) {
    const list = make("ul", { className: `tokens ${side}`, role: "listbox", tabIndex: 0 });
    const place = (event) => [...list.children].indexOf(event.target.closest("li"));
    list.addEventListener("pointerover", (event) => this.page.point(side, place(event)));
    list.addEventListener("pointerleave", () => this.page.point(side, -1));
    list.addEventListener("click", (event) => place(event) >= 0 && this.page.choose(side, place(event)));
    list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.page.step(side, step);
    });
    list.addEventListener("focus", () => this.page.state[side] < 0 && this.page.choose(side, 0));
    return list;
  }

  fill(side, name) {
    const list = this.lists[side];
    const tokens = this.page.recording.tokens(name);
    if (list.tokens === tokens) return;
    list.tokens = tokens;
    list.setAttribute("aria-label", side === "query" ? "Tokens that read" : "Tokens that are read");
    list.replaceChildren(
      ...tokens.map((token, index) =>
        make("li", { role: "option", id: `${side}-${index}`, title: `${index}: ${seen(token)}` },
          make("bdi", { textContent: seen(token) })),
      ),
    );
  }

  draw(layer, entry) {
    const row = Math.max(layer.queries, layer.keys) <= FEW ? HIGH_ROW : ROW;
    Object.assign(this, { layer, row });
    this.scroller.style.setProperty("--row", `${row}px`);
    this.fill("query", entry.query);
    this.fill("key", entry.key);
    this.paint();
    this.mark();
  }

  /** Which token's lines are drawn alone: the pointed one before the chosen one. */
  focus() {
    const { pointed, query, key } = this.page.state;
    if (pointed) return pointed;
    if (query >= 0) return { side: "query", index: query };
    return key >= 0 ? { side: "key", index: key } : null;
  }

  /** The lines to draw, [head, query, key, weight]: all of the token in focus, else the strongest in view. */
  found(first, last) {
    const { layer } = this;
    const focus = this.focus();
    const heads = this.page.heads();
    const each = (visit) => {
      for (const head of heads) {
        for (let query = 0; query < layer.queries; query++) {
          if (focus?.side === "query" && query !== focus.index) continue;
          const row = head * layer.queries + query;
          const scale = layer.maxima[row] / layer.top;
          let [from, to] = focus?.side === "key" ? [focus.index, focus.index + 1] : [0, layer.keys];
          if (query < first || query > last) [from, to] = [Math.max(from, first), Math.min(to, last + 1)];
          for (let key = from; key < to; key++) {
            const level = layer.levels[row * layer.keys + key];
            if (level) visit(head, query, key, level * scale);
          }
        }
      }
    };
    let [largest, count] = [0, 0];
    each((head, query, key, weight) => {
      count++;
      if (weight > largest) largest = weight;
    });
    let least = 0;
    if (count > MOST_LINES) {
      const histogram = new Uint32Array(1024);
      each((head, query, key, weight) => histogram[Math.floor((weight / largest) * 1023)]++);
      let bucket = 1023;
      for (let sum = 0; bucket > 0 && sum + histogram[bucket] <= MOST_LINES; bucket--) sum += histogram[bucket];
      least = ((bucket + 1) / 1023) * largest;
    }
    const lines = [];
    each((head, query, key, weight) => {
      if (weight >= least && lines.length < MOST_LINES) lines.push([head, query, key, weight]);
    });
    return { lines, count, largest };
  }

  paint() {
    if (!this.layer) return;
    const { scroller, layer, row } = this;
    const top = Math.max(0, scroller.scrollTop - this.lists.query.offsetTop);
    const rows = Math.max(layer.queries, layer.keys);
    const height = Math.min(scroller.clientHeight - this.lists.query.offsetTop, rows * row);
    const width = this.canvas.parentElement.clientWidth;
    const context = fresh(this.canvas, width, height);
    const { lines, count, largest } = this.found(Math.floor(top / row), Math.ceil((top + height) / row));
    const paths = new Map();
    for (const [head, query, key, weight] of lines) {
      const bucket = Math.min(WIDTHS - 1, Math.floor((weight / largest) * WIDTHS));
      const name = head * WIDTHS + bucket;
      if (!paths.has(name)) paths.set(name, new Path2D());
      const [from, to] = [(query + 0.5) * row - top, (key + 0.5) * row - top];
      const path = paths.get(name);
      path.moveTo(2, from);
      path.bezierCurveTo(width * 0.4, from, width * 0.6, to, width - 2, to);
    }
    context.lineCap = "round";
    for (const [name, path] of [...paths].sort(([one], [other]) => (one % WIDTHS) - (other % WIDTHS))) {
      const strength = ((name % WIDTHS) + 1) / WIDTHS;
      context.strokeStyle = colourOf(Math.floor(name / WIDTHS));
      context.globalAlpha = 0.1 + 0.8 * strength;
      context.lineWidth = 0.5 + 5 * strength * Math.max(0.15, Math.sqrt(largest));
      context.stroke(path);
    }
    this.canvas.drawn = lines;
    const focus = this.focus();
    const said = lines.length < count ? `the ${lines.length} strongest of ${count} lines in view` : `${count} lines`;
    this.caption.textContent = `${said}, the thickest ${share(largest)}; ` +
      (focus ? "one token alone" : "point at a token, or choose it, to see its lines alone");
    this.canvas.setAttribute("aria-label", this.caption.textContent);
  }

  /** Shade the tokens by what the one in focus reads, or by who reads it. */
  mark() {
    const { layer, lists } = this;
    const { state } = this.page;
    const focus = this.focus();
    for (const side of ["query", "key"]) {
      let weights = null;
      if (focus && focus.side !== side) {
        weights = side === "key" ? layer.mean(this.page.heads(), focus.index) : this.readers(focus.index);
      }
      const most = weights ? Math.max(...weights) || 1 : 1;
      [...lists[side].children].forEach((item, index) => {
        const strength = weights ? weights[index] / most : 0;
        item.style.setProperty("--weight", strength > 0.03 ? strength.toFixed(2) : "0");
        item.classList.toggle("is-focus", focus?.side === side && focus.index === index);
        item.setAttribute("aria-selected", state[side] === index);
      });
      const isChosen = state[side] >= 0;
      if (isChosen) lists[side].setAttribute("aria-activedescendant", `${side}-${state[side]}`);
      else lists[side].removeAttribute("aria-activedescendant");
    }
    const active = document.activeElement;
    const side = active === lists.query ? "query" : active === lists.key ? "key" : null;
    if (side && state[side] >= 0) lists[side].children[state[side]].scrollIntoView({ block: "nearest" });
  }

  readers(key) {
    const heads = this.page.heads();
    return Float32Array.from({ length: this.layer.queries }, (_, query) =>
      heads.reduce((sum, head) => sum + this.layer.weight(head, query, key), 0) / heads.length);
  }
}
