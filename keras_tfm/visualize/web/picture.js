// An image's patches: what a patch reads of the others, over the picture, and head by head below.

class Picture {
  static title = "Picture";
  static suits = (recording) => Boolean(recording.picture);
  static takes = (recording, entry) => Boolean(recording.sides[entry.key].grid);

  constructor(page, stage) {
    this.page = page;
    this.image = make("img", { alt: "" });
    this.prefix = make("div", { className: "chips", role: "radiogroup", ariaLabel: "Tokens before the patches" });
    this.canvas = make("canvas", { tabIndex: 0, role: "application" });
    this.canvas.setAttribute("aria-roledescription", "picture");
    this.canvas.setAttribute("aria-label", "Patches of the picture");
    this.small = make("div", { className: "small-pictures" });
    this.caption = make("p", { className: "caption", id: "caption" });
    stage.append(this.prefix, make("div", { className: "picture" }, this.canvas, this.small), this.caption);
    const under = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const at = (place, size, count) => Math.max(0, Math.min(count - 1, Math.floor((place / size) * count)));
      return this.grid.first + at(event.clientY - box.top, box.height, this.grid.rows) * this.grid.columns +
        at(event.clientX - box.left, box.width, this.grid.columns);
    };
    this.canvas.addEventListener("pointermove", (event) => page.point("query", under(event)));
    this.canvas.addEventListener("pointerleave", () => page.point("query", -1));
    this.canvas.addEventListener("click", (event) => page.choose("query", under(event)));
    this.canvas.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.grid.columns, ArrowDown: this.grid.columns }[event.key];
      if (!move) return;
      event.preventDefault();
      page.step("query", move);
    });
  }

  async draw(layer, entry) {
    const { page } = this;
    const side = page.recording.sides[entry.key];
    if (this.image.recording !== page.recording) {
      this.image.recording = page.recording;
      this.image.src = page.recording.picture;
      await this.image.decode();
    }
    this.grid = side.grid;
    const { pointed, query: chosen } = page.state;
    const query = pointed ? pointed.index : Math.max(0, chosen);
    this.prefix.replaceChildren(...side.tokens.slice(0, this.grid.first).map((token, at) =>
      radio("prefix", at, seen(token), at === query, () => page.choose("query", at))));
    const widest = Math.min(560, this.canvas.parentElement.clientWidth);
    const weights = layer.mean(page.heads(), query);
    this.paint(this.canvas, widest, weights, query);
    if (!pointed) {
      const heads = page.heads();
      this.small.replaceChildren(...(heads.length > 1 ? heads : []).map((head) => {
        const canvas = make("canvas", { role: "img", ariaLabel: `Head ${head + 1}` });
        this.paint(canvas, 120, layer.mean([head], query), query);
        return make("figure", {}, canvas, make("figcaption", { textContent: `Head ${head + 1}` }));
      }));
    }
    const outside = weights.slice(0, this.grid.first).reduce((sum, weight) => sum + weight, 0);
    this.caption.textContent = `What ${page.named(entry.query, query)} reads, ${page.headsSaid()}; the brightest patch ` +
      `has ${share(Math.max(...weights.slice(this.grid.first)))}` +
      (this.grid.first ? `, the tokens before the patches ${share(outside)}.` : ".");
  }

  paint(canvas, width, weights, query) {
    const { rows, columns, first } = this.grid;
    const height = Math.round((width * this.image.naturalHeight) / this.image.naturalWidth);
    const context = fresh(canvas, width, height);
    context.imageSmoothingEnabled = this.image.naturalWidth > width / 2;
    context.drawImage(this.image, 0, 0, width, height);
    const patches = weights.subarray(first, first + rows * columns);
    const most = largestOf(patches, 0, patches.length) || 1;
    const [x, y] = [width / columns, height / rows];
    patches.forEach((weight, at) => {
      context.fillStyle = `rgb(8 10 20 / ${0.82 * (1 - Math.sqrt(weight / most))})`;
      const [left, top] = [Math.round((at % columns) * x), Math.round(Math.floor(at / columns) * y)];
      const [right, bottom] = [Math.round(((at % columns) + 1) * x), Math.round((Math.floor(at / columns) + 1) * y)];
      context.fillRect(left, top, right - left, bottom - top);
    });
    if (query >= first) {
      const at = query - first;
      context.lineWidth = Math.max(2, width / 200);
      context.strokeStyle = "#ffb000";
      context.strokeRect((at % columns) * x, Math.floor(at / columns) * y, x, y);
    }
    canvas.drawn = patches;
  }
}
