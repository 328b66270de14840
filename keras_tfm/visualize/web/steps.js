// A text as it is written, token by token: what could have come, and what the model read for it.

class Steps {
  static title = "Steps";
  static suits = (recording) => recording.steps.length > 0;
  static takes = (recording, entry) => entry.query === recording.written;

  constructor(page, stage) {
    this.page = page;
    const button = (text, label, act) => make("button", { type: "button", textContent: text, ariaLabel: label, onclick: act });
    this.slider = make("input", { type: "range", min: 0, ariaLabel: "Step", oninput: () => this.go(Number(this.slider.value)) });
    this.player = button("▶", "Play", () => this.play());
    this.text = make("p", { className: "written", dir: "auto" });
    this.title = make("h2");
    this.alternatives = make("table", { className: "alternatives", ariaLabel: "What could have come" });
    const left = make("div", {}, this.title, this.alternatives);
    const right = make("div", { className: "alignment" });
    stage.append(make("p", { className: "tools" }, button("‹", "Previous step", () => this.go(page.state.step - 1)),
      this.player, button("›", "Next step", () => this.go(page.state.step + 1)), this.slider),
    this.text, make("div", { className: "steps" }, left, right));
    this.caption = make("p", { className: "caption", id: "caption" });
    this.matrix = new Grid(right, "What was read for each token so far", (query, key, isPointed) => {
      if (!isPointed && query >= 0) this.go(query);
    });
    this.matrix.canvas.addEventListener("keydown", (event) => {
      const move = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
      if (!move) return;
      event.preventDefault();
      this.go(page.state.step + move);
    });
    right.append(this.caption);
  }

  go(step) {
    const last = this.page.recording.steps.length - 1;
    this.page.update({ step: Math.max(0, Math.min(last, step)) });
    const { token, probability } = this.page.recording.steps[this.page.state.step];
    this.page.say(`Step ${this.page.state.step + 1}: ${seen(token)}, ${share(probability)}`);
  }

  play() {
    if (this.timer) return this.stop();
    if (this.page.state.step >= this.page.recording.steps.length - 1) this.go(0);
    this.player.textContent = "❚❚";
    this.player.ariaLabel = "Pause";
    this.timer = setInterval(() => {
      const isLast = this.page.state.step >= this.page.recording.steps.length - 1;
      if (isLast || !this.player.isConnected) this.stop();
      else this.go(this.page.state.step + 1);
    }, 700);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.player.textContent = "▶";
    this.player.ariaLabel = "Play";
  }

  draw(layer, entry) {
    const { recording, state } = this.page;
    const { steps } = recording;
    const at = Math.max(0, Math.min(state.step, steps.length - 1));
    const step = steps[at];
    Object.assign(this.slider, { max: steps.length - 1, value: at });
    this.slider.setAttribute("aria-valuetext", `${at + 1} of ${steps.length}: ${seen(step.token)}`);
    this.text.replaceChildren(...steps.map(({ token }, index) => make("button", {
      type: "button", className: index < at ? "past" : index === at ? "now" : "future",
      textContent: seen(token), "aria-current": index === at ? "step" : "false", onclick: () => this.go(index),
    })));
    this.title.textContent = `Token ${at + 1} of ${steps.length}`;
    this.alternatives.replaceChildren(
      make("thead", { className: "unseen" }, make("tr", {}, ...["Token", "Probability"].map((name) =>
        make("th", { scope: "col", textContent: name })))),
      make("tbody", {}, ...step.alternatives.map(([token, probability]) => {
        const bar = make("span", { className: "bar" });
        bar.style.setProperty("--part", probability);
        return make("tr", { className: token === step.token ? "taken" : "" },
          make("th", { scope: "row" }, make("bdi", { textContent: seen(token) })),
          make("td", {}, bar, make("span", { textContent: share(probability) })));
      })),
    );
    this.align(layer, entry, at);
  }

  /** The rows of the tokens so far; each is named by the token that it wrote. */
  align(layer, entry, at) {
    const { recording } = this.page;
    const { steps } = recording;
    const heads = this.page.heads();
    const name = `${entry.index} ${heads}`;
    if (this.name !== name || this.recording !== recording) {
      const means = new Float32Array(steps.length * layer.keys);
      steps.forEach(({ query }, row) => means.set(layer.mean(heads, query), row * layer.keys));
      this.values = relative(means, layer.keys, true);
      Object.assign(this, { name, recording, rows: steps.map(({ token }) => token) });
    }
    const columns = recording.tokens(entry.key);
    this.matrix.draw({ values: this.values, rows: this.rows, columns, shown: at + 1, chosen: [at, -1] });
    const [[key, weight]] = largest(layer.mean(heads, steps[at].query), 1);
    this.caption.textContent = `For “${seen(steps[at].token)}” it read “${seen(columns[key])}” most, ${share(weight)}; ` +
      `${this.page.headsSaid()}.`;
  }
}
