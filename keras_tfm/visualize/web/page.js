// The page: what is chosen, the controls that choose it, and the view that draws it.

const VIEWS = [Lines, Model, Matrix, QueryKey, Patterns, Picture, Steps];
const KINDS = { encoder: "Encoder", decoder: "Decoder", cross: "Cross-attention" };
const THEMES = ["", "light", "dark"];
const MOST_READ = 10; // tokens beside the view

function radio(group, value, text, isChosen, act) {
  const input = make("input", { type: "radio", name: group, value, checked: isChosen, onchange: act });
  return make("label", { className: "chip" }, input, make("span", { textContent: text }));
}

class Page {
  constructor(recording) {
    this.parts = Object.fromEntries([...document.querySelectorAll("[id]")].map((part) => [part.id, part]));
    this.state = { view: "Lines", kind: null, entry: 0, heads: new Set(), window: -1, query: -1, key: -1, pointed: null, step: 0, spot: [0.5, 0.5] };
    this.parts.theme.addEventListener("click", () => this.turn());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    document.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => this.draw()).observe(this.parts.stage);
    this.open(recording);
  }

  /** Show another text or image. */
  open(recording) {
    const { parts } = this;
    this.recording = recording;
    const suited = VIEWS.filter((view) => !view.suits || view.suits(recording));
    const isWritten = recording.steps.length > 0;
    const entry = recording.entries.filter(({ kind }) => kind === "cross").at(-1) || recording.entries.at(isWritten ? -1 : 0);
    const has = suited.some(({ title }) => title === this.state.view) && this.isOpen;
    const opening = suited.includes(Picture) ? "Picture" : isWritten ? "Steps" : "Lines";
    this.isOpen = true;
    parts.about.textContent = recording.about;
    parts.example.hidden = !(recording.text && recording.answer);
    parts.asked.textContent = recording.text;
    parts.answered.textContent = recording.answer;
    parts.precision.textContent = recording.precision;
    parts.notes.replaceChildren(...recording.notes.map((note) => make("li", { textContent: note })));
    parts.views.replaceChildren(...suited.map(({ title }, number) => make("button", {
      type: "button", role: "tab", id: `view-${number}`, "aria-controls": "stage", textContent: title,
      onclick: () => this.update({ view: title }),
    })));
    parts.views.onkeydown = (event) => this.turnTab(event);
    this.view = null;
    this.update({
      kind: entry.kind, entry: entry.index, heads: allHeads(entry), query: -1, key: -1, pointed: null,
      step: Math.max(0, recording.steps.length - 1), view: has ? this.state.view : opening,
    });
  }

  get entry() {
    const { entry, pointed, window } = this.state;
    return this.recording.at(entry, pointed?.window ?? window);
  }

  heads() {
    return [...this.state.heads].sort((one, other) => one - other);
  }

  headsSaid() {
    const heads = this.heads().map((head) => head + 1);
    if (heads.length === 1) return `head ${heads[0]}`;
    return heads.length === this.entry.heads ? `mean of ${heads.length} heads` : `mean of heads ${heads.join(", ")}`;
  }

  named(side, index) {
    return `“${seen(this.recording.tokens(side)[index])}”`;
  }

  pairSaid(layer, entry, query, key) {
    const weight = layer.mean(this.heads(), query)[key];
    return `${this.named(entry.query, query)} (${query}) reads ${this.named(entry.key, key)} (${key}): ` +
      `${share(weight)}, ${this.headsSaid()}`;
  }

  /** Change what is chosen, and draw. */
  update(changes) {
    const { recording, state } = this;
    const before = recording.entries[state.entry];
    Object.assign(state, changes);
    if ("view" in changes || "kind" in changes) this.settle();
    const entry = recording.entries[state.entry];
    if (changes.entry !== undefined) state.kind = entry.kind;
    if (before && before !== entry) {
      const all = state.heads.size === before.heads || !state.heads.size;
      const kept = [...state.heads].filter((head) => head < entry.heads);
      if (all || !kept.length) state.heads = changes.heads || allHeads(entry);
      else state.heads = new Set(kept);
      if (before.query !== entry.query) state.query = state.window = -1;
      if (before.key !== entry.key) state.key = -1;
      state.pointed = null;
    }
    if (!entry.windows) state.window = -1;
    if (entry.windows === 1) state.window = 0;
    VIEWS.find(({ title }) => title === state.view).settle?.(this);
    this.draw();
  }

  /** A view takes some layers only: go to one that it takes. */
  settle() {
    const { recording, state } = this;
    const view = VIEWS.find(({ title }) => title === state.view);
    const takes = (entry) => !view.takes || view.takes(recording, entry);
    this.kinds = recording.kinds.filter((kind) => recording.layersOf(kind).some(takes));
    if (!this.kinds.includes(state.kind)) state.kind = this.kinds.at(-1);
    const layers = recording.layersOf(state.kind).filter(takes);
    if (!layers.some(({ index }) => index === state.entry)) {
      const same = layers.find(({ layer }) => layer === this.entry.layer);
      state.entry = (same || layers.at(-1)).index;
    }
    this.layers = layers;
  }

  /** Draw in the next frame; the document is `aria-busy` until all is drawn. */
  draw() {
    document.documentElement.ariaBusy = true;
    this.asked ??= requestAnimationFrame(() => {
      this.asked = null;
      this.drawNow();
    });
  }

  async drawNow() {
    const began = performance.now();
    const { entry, recording, state, parts } = this;
    const Kind = VIEWS.find(({ title }) => title === state.view);
    if (!(this.view instanceof Kind)) {
      this.view?.stop?.();
      parts.stage.replaceChildren();
      this.view = new Kind(this, parts.stage);
      parts.stage.dataset.view = Kind.title;
    }
    this.control();
    const { view } = this;
    const layer = await recording.read(entry);
    if (entry !== this.entry || view !== this.view || recording !== this.recording) return;
    await view.draw(layer, entry);
    if (view !== this.view || recording !== this.recording) return;
    this.tell(layer, entry);
    const { dataset } = document.documentElement;
    dataset.drawn = `${recording.number || 0} ${state.view} ${entry.index} ${this.heads()}${entry.window === undefined ? "" : ` window ${entry.window}`}`;
    dataset.milliseconds = Math.round(performance.now() - began);
    if (!this.asked) document.documentElement.ariaBusy = false;
  }

  /** The controls, as what is chosen has them. */
  control() {
    const { parts, recording, state } = this;
    for (const tab of parts.views.children) {
      const isChosen = tab.textContent === state.view;
      tab.setAttribute("aria-selected", isChosen);
      tab.tabIndex = isChosen ? 0 : -1;
      if (isChosen) parts.stage.setAttribute("aria-labelledby", tab.id);
    }
    const name = `${state.view} ${state.kind} ${recording.number}`;
    if (this.controlled !== name) {
      this.controlled = name;
      parts.kinds.hidden = this.kinds.length < 2;
      parts.kinds.lastElementChild.replaceChildren(...this.kinds.map((kind) =>
        radio("kind", kind, KINDS[kind] || kind, kind === state.kind, () => this.update({ kind }))));
      parts.layers.lastElementChild.replaceChildren(...this.layers.map((entry) =>
        radio("layer", entry.index, entry.layer + 1, false, () => this.update({ entry: entry.index }))));
      parts.heads.parentElement.dataset.view = state.view;
    }
    for (const input of parts.layers.querySelectorAll("input")) input.checked = Number(input.value) === state.entry;
    this.controlWindows();
    this.controlHeads();
    const theme = document.documentElement.dataset.theme || "";
    parts.theme.textContent = { "": "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[theme];
    parts.theme.ariaLabel = `Colours: ${theme || "as the system"}`;
  }

  /** Which window of the layer; each is named by where its first and its last cell lie. */
  controlWindows() {
    const { parts, recording, state } = this;
    const { index, key, windows } = recording.entries[state.entry];
    parts.windows.hidden = !(windows > 1) || state.view === "Picture";
    if (parts.windows.hidden) return;
    const box = parts.windows.lastElementChild;
    const name = `${recording.number} ${index}`;
    if (box.dataset.name !== name) {
      box.dataset.name = name;
      const named = (window) => recording.sides[key].windows
        ? `${window + 1}: ${recording.tokens(`${key}/${window}`).filter((cell) => cell !== "padding").filter((_, at, all) =>
          at === 0 || at === all.length - 1).join(" to ")}` : window + 1;
      box.replaceChildren(make("select", { ariaLabel: "Window", onchange: (event) =>
        this.update({ window: Number(event.target.value), query: -1, key: -1, pointed: null }) },
      make("option", { value: -1, textContent: `mean of ${windows}` }),
      ...Array.from({ length: windows }, (_, window) => make("option", { value: window, textContent: named(window) }))));
    }
    box.firstChild.value = state.window;
  }

  controlHeads() {
    const { entry, state } = this;
    const box = this.parts.heads.lastElementChild;
    if (box.childElementCount !== entry.heads + 1 || box.dark !== isDark()) {
      box.dark = isDark();
      const all = make("button", { type: "button", className: "quiet", textContent: "all", onclick: () =>
        this.update({ heads: allHeads(this.entry) }) });
      box.replaceChildren(...Array.from({ length: entry.heads }, (_, head) => {
        const input = make("input", { type: "checkbox", value: head, ariaLabel: `Head ${head + 1}` });
        const chip = make("label", { className: "chip head", title: "Shift: this head alone" }, input,
          make("span", { textContent: head + 1 }));
        chip.style.setProperty("--colour", colourOf(head));
        input.addEventListener("click", (event) => this.turnHead(head, event.shiftKey || event.altKey));
        return chip;
      }), all);
    }
    for (const input of box.querySelectorAll("input")) input.checked = state.heads.has(Number(input.value));
  }

  /** One head more or less; of all heads the first choice leaves that head alone. */
  turnHead(head, isAlone) {
    const heads = new Set(this.state.heads);
    if (isAlone || heads.size === this.entry.heads) heads.clear();
    if (heads.has(head)) heads.delete(head);
    else heads.add(head);
    this.update({ heads: heads.size ? heads : allHeads(this.entry) });
  }

  turn() {
    const { dataset } = document.documentElement;
    dataset.theme = THEMES[(THEMES.indexOf(dataset.theme || "") + 1) % THEMES.length];
    this.draw();
  }

  turnTab(event) {
    const tabs = [...this.parts.views.children];
    const at = tabs.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = tabs[(to + tabs.length) % tabs.length];
    next.focus();
    next.click();
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) &&
        event.target.type !== "radio" && event.target.type !== "checkbox") return;
    const at = this.layers.findIndex(({ index }) => index === this.state.entry);
    const move = { "[": -1, "]": 1 }[event.key];
    const turn = { ",": -1, ".": 1 }[event.key];
    const count = this.entry.heads;
    if (move && this.layers[at + move]) this.update({ entry: this.layers[at + move].index });
    else if (turn) {
      const [head] = this.heads();
      const next = this.state.heads.size === count && count > 1 ? (turn > 0 ? 0 : count - 1) : (head + turn + count) % count;
      this.update({ heads: new Set([next]) });
    } else if (event.key === "a") this.update({ heads: allHeads(this.entry) });
    else if (event.key === "Escape") this.update({ query: -1, key: -1, pointed: null });
    else return;
    this.say(`Layer ${this.entry.layer + 1}, ${this.headsSaid()}`);
  }

  /** The pointer stands on a token, of a window or of none, or with -1 on none. */
  point(side, index, window) {
    const pointed = index < 0 ? null : { side, index, window };
    const { pointed: before } = this.state;
    if (before?.side === pointed?.side && before?.index === pointed?.index && before?.window === pointed?.window) return;
    this.update({ pointed });
  }

  /** Choose a token; again lets it go. */
  choose(side, index) {
    const other = side === "query" ? "key" : "query";
    const isPair = this.state.view === "Query · key";
    const again = this.state[side] === index && !isPair;
    this.update({ [side]: again ? -1 : index, ...(isPair ? {} : { [other]: -1 }), pointed: null });
  }

  choosePair(query, key) {
    this.update({ query, key });
  }

  /** The next token, or the one before; in a matrix both sides stay chosen. */
  step(side, move, isPair = false) {
    const { entry, state } = this;
    const last = this.recording.tokens(entry[side]).length - 1;
    const index = Math.max(0, Math.min(last, (state[side] < 0 ? 0 : state[side]) + move));
    const other = side === "query" ? "key" : "query";
    this.update({ [side]: index, [other]: isPair ? Math.max(0, state[other]) : -1, pointed: null });
    this.recording.read(entry).then((layer) => this.say(isPair
      ? this.pairSaid(layer, entry, state.query, state.key)
      : side === "query" ? this.readSaid(layer, entry, index) : this.named(entry.key, index)));
  }

  readSaid(layer, entry, query) {
    const most = largest(layer.mean(this.heads(), query), 3);
    return `${this.named(entry.query, query)} reads ` +
      most.map(([key, weight]) => `${this.named(entry.key, key)} ${share(weight)}`).join(", ");
  }

  /** What a screen reader says. */
  say(text) {
    this.parts.status.textContent = text;
  }

  /** Beside the view: what the token in focus reads, as a table. */
  tell(layer, entry) {
    const { parts, state, recording } = this;
    const pointed = state.pointed?.side === "query" ? state.pointed.index : -1;
    const always = { Steps: recording.steps[state.step]?.query, "Query · key": Math.max(0, state.query) }[state.view];
    const isPicture = state.view === "Picture"; // one token or another is always shown there
    const at = isPicture ? this.view.row : always ?? (pointed >= 0 ? pointed : state.query);
    if (at < 0) {
      parts.chosen.replaceChildren(make("h2", { textContent: "No token chosen" }),
        make("p", { textContent: "Choose a token to read here, in numbers, what it reads." }));
      return;
    }
    const isWritten = state.view === "Steps" || (isPicture && entry.query === recording.written);
    const name = isWritten ? recording.steps.find(({ query }) => query === at).token : recording.tokens(entry.query)[at];
    const heads = this.heads();
    const rows = largest(layer.mean(heads, at), MOST_READ).filter(([, weight]) => weight > 0);
    const [, top] = rows[0] || [0, 1];
    parts.chosen.replaceChildren(
      make("h2", {}, make("small", { textContent: isWritten ? "For " : "" }), make("bdi", { textContent: seen(name) }),
        make("small", { textContent: `${isWritten ? " it read" : " reads"}, ${this.headsSaid()}` })),
      make("table", { ariaLabel: "What it reads most" }, make("thead", { className: "unseen" }, make("tr", {}, ...["Token", "Weight", "By head"].map((name) =>
        make("th", { scope: "col", textContent: name })))), make("tbody", {}, ...rows.map(([key, weight]) => {
        const bar = make("span", { className: "bar" });
        bar.style.setProperty("--part", weight / top);
        const sum = heads.reduce((all, head) => all + layer.weight(head, at, key), 0) || 1;
        bar.append(...heads.map((head) => {
          const part = make("i");
          part.style.setProperty("--colour", colourOf(head));
          part.style.flexGrow = layer.weight(head, at, key) / sum;
          return part;
        }));
        const strongest = heads.reduce((one, other) => layer.weight(other, at, key) > layer.weight(one, at, key) ? other : one);
        return make("tr", { title: `place ${key}; most by head ${strongest + 1}` },
          make("th", { scope: "row" }, make("bdi", { textContent: seen(recording.tokens(entry.key)[key]) })),
          make("td", {}, bar, make("span", { textContent: share(weight) })),
          make("td", { className: "unseen", textContent: `most by head ${strongest + 1}` }));
      }))),
    );
  }
}

function allHeads(entry) {
  return new Set(Array.from({ length: entry.heads }, (_, head) => head));
}

/** Where the page is served, texts are typed and answered: the form sends them to where the page came from. */
function serve(page) {
  const { ask, text, answer } = page.parts;
  ask.hidden = false;
  text.value = page.recording.text;
  ask.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [button] = ask.getElementsByTagName("button");
    button.disabled = true;
    answer.textContent = "…";
    try {
      const body = JSON.stringify({ text: text.value });
      const response = await fetch("look", { method: "POST", headers: { "Content-Type": "application/json" }, body });
      const got = await response.json();
      if (!response.ok) throw new Error(got.error);
      answer.textContent = "";
      page.open(new Recording({ ...got.header, number: page.recording.number + 1 }, (name) => got.blocks[name]));
    } catch (error) {
      answer.textContent = error.message;
    }
    button.disabled = false;
  });
}

const header = JSON.parse(document.getElementById("data").textContent);
const page = new Page(new Recording({ ...header, number: 0 }, (name) => document.getElementById(name).textContent));
if (header.is_live) serve(page);
