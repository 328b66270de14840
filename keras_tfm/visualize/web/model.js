// The whole model at once: a small picture of each head, and how far each head follows a pattern.

const THUMBNAIL = 64; // pixels at most

/** The head's weights in parts of their row's maximum, the largest of each square of cells. */
function thumbnail(layer, head) {
  const size = (length) => Math.min(length, THUMBNAIL);
  const [width, height] = [size(layer.keys), size(layer.queries)];
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const most = new Uint8Array(width * height);
  for (let query = 0; query < layer.queries; query++) {
    const first = (head * layer.queries + query) * layer.keys;
    const row = Math.floor((query * height) / layer.queries) * width;
    for (let key = 0; key < layer.keys; key++) {
      const place = row + Math.floor((key * width) / layer.keys);
      const level = layer.levels[first + key];
      if (level > most[place]) most[place] = level;
    }
  }
  const table = shades();
  for (let at = 0; at < most.length; at++) pixels[at] = table[Math.round((most[at] * (SHADES - 1)) / layer.top)];
  return image;
}

class Model {
  static title = "All heads";

  constructor(page, stage) {
    this.page = page;
    this.grid = make("div", { className: "heads-grid", role: "group", ariaLabel: "All heads, a row for each layer" });
    this.caption = make("p", { className: "caption", id: "caption" });
    stage.append(this.grid, this.caption);
  }

  async draw(layer, entry) {
    const { page } = this;
    const { kind } = page.state;
    const name = `${kind} ${isDark()}`;
    if (this.drawn !== name || this.recording !== page.recording) {
      Object.assign(this, { drawn: name, recording: page.recording });
      const entries = page.recording.layersOf(kind);
      const heads = Math.max(...entries.map((entry) => entry.heads));
      this.grid.style.setProperty("--heads", heads);
      this.cells = new Map();
      this.grid.replaceChildren(make("span"), ...Array.from({ length: heads }, (_, head) =>
        make("span", { className: "head-name", textContent: head + 1 })));
      for (const entry of entries) {
        const cells = Array.from({ length: entry.heads }, (_, head) => this.cell(entry, head));
        const blanks = Array.from({ length: heads - entry.heads }, () => make("span"));
        this.grid.append(make("span", { className: "layer-name", textContent: entry.layer + 1 }), ...cells, ...blanks);
      }
      this.caption.textContent = `${entries.length} layers, a row each; their heads side by side. ` +
        "Darker is more, in parts of each row's largest weight; choose a head to see its matrix.";
      if (isDark()) this.caption.textContent = this.caption.textContent.replace("Darker", "Brighter");
      for (const entry of entries) {
        const read = await page.recording.read(entry);
        if (this.drawn !== name || this.recording !== page.recording) return;
        for (let head = 0; head < entry.heads; head++) {
          const image = thumbnail(read, head);
          const cell = this.cells.get(`${entry.index} ${head}`);
          cell.ariaLabel = cell.title = `Layer ${entry.layer + 1}, head ${head + 1}: ${share(read.sharpness(head))} on one token`;
          const canvas = cell.firstChild;
          [canvas.width, canvas.height] = [image.width, image.height];
          canvas.getContext("2d").putImageData(image, 0, 0);
        }
      }
    }
    for (const [at, cell] of this.cells) {
      const [index, head] = at.split(" ").map(Number);
      const isChosen = index === entry.index && page.state.heads.has(head);
      cell.setAttribute("aria-pressed", isChosen);
    }
  }

  cell(entry, head) {
    const label = `Layer ${entry.layer + 1}, head ${head + 1}`;
    const cell = make("button", {
      type: "button", ariaLabel: label, title: label,
      onclick: () => this.page.update({ entry: entry.index, heads: new Set([head]), view: "Matrix" }),
    }, make("canvas", { width: 1, height: 1 }));
    this.cells.set(`${entry.index} ${head}`, cell);
    return cell;
  }
}

class Patterns {
  static title = "Patterns";
  static suits = (recording) => recording.patterns.length > 0;
  static takes = (recording, entry) =>
    recording.patterns.some(({ scores }) => scores.some((some) => some.entry === entry.index));

  constructor(page, stage) {
    this.page = page;
    this.choice = make("div", { className: "chips", role: "radiogroup", ariaLabel: "Pattern" });
    this.about = make("p", { className: "caption", id: "caption" });
    this.table = make("table", { className: "scores", ariaLabel: "Scores, a row for each layer, a column for each head" });
    stage.append(this.choice, this.about, make("div", { className: "wide" }, this.table));
  }

  draw(layer, chosen) {
    const { page } = this;
    const patterns = page.recording.patterns.filter((pattern) => pattern.scores.some((some) => some.kind === chosen.kind));
    const most = ({ scores }) => Math.max(...scores.filter(({ kind }) => kind === chosen.kind).flatMap(({ values }) => values));
    const [strongest] = [...patterns].sort((one, other) => most(other) - most(one));
    const pattern = patterns.find(({ name }) => name === this.name) || strongest;
    this.choice.replaceChildren(...patterns.map(({ name }) => radio("pattern", name, name, name === pattern.name, () => {
      this.name = name;
      page.draw();
    })));
    this.about.textContent = pattern.about;
    const rows = pattern.scores.filter((some) => some.kind === chosen.kind);
    const heads = Math.max(...rows.map(({ values }) => values.length));
    const header = make("tr", {}, make("th", { scope: "col", textContent: "Layer" }),
      ...Array.from({ length: heads }, (_, head) => make("th", { scope: "col", textContent: head + 1 })));
    this.table.replaceChildren(make("thead", {}, header), make("tbody", {}, ...rows.map(({ entry, values }) => {
      const { layer } = page.recording.entries[entry];
      return make("tr", {}, make("th", { scope: "row", textContent: layer + 1 }),
        ...values.map((value, head) => this.cell(entry, layer, head, value)));
    })));
  }

  cell(entry, layer, head, value) {
    const said = value === null ? "–" : value.toFixed(2);
    const button = make("button", { type: "button", textContent: said,
      title: `Layer ${layer + 1}, head ${head + 1}: ${said}`,
      onclick: () => this.page.update({ entry, heads: new Set([head]), view: "Matrix" }) });
    button.style.backgroundColor = shade(value || 0);
    button.style.color = (value > 0.45) === isDark() ? "#0b1320" : "#ffffff";
    return make("td", {}, button);
  }
}
