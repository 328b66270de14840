// One query and one key of one head: their entries, their products, and the weight that comes of them.

class QueryKey {
  static title = "Query · key";
  static suits = (recording) => recording.entries.some((entry) => entry.key_dim);

  constructor(page, stage) {
    this.page = page;
    const choice = (side) => make("select", { onchange: (event) => page.choose(side, Number(event.target.value)) });
    this.choices = { query: choice("query"), key: choice("key") };
    this.strips = make("div", { className: "strips" });
    this.caption = make("p", { className: "caption", id: "caption" });
    stage.append(make("p", { className: "tools" },
      make("label", {}, "Query ", this.choices.query), make("label", {}, "Key ", this.choices.key)),
    this.strips, this.caption);
  }

  async draw(layer, entry) {
    const { page } = this;
    if (!entry.key_dim) {
      const kept = page.recording.entries.filter((entry) => entry.key_dim)
        .map((entry) => `${entry.kind} ${entry.layer + 1}`);
      this.strips.replaceChildren();
      this.caption.textContent = `The page has the queries and keys of ${kept.join(", ")}, not of this layer.`;
      return;
    }
    if (entry.windows && entry.window === undefined) { // the mean of all windows has no query and no key
      this.strips.replaceChildren();
      this.caption.textContent = "Choose a window to see its queries and keys.";
      return;
    }
    const vectors = await page.recording.read(entry, "vectors");
    const [head] = page.heads();
    const place = Math.max(0, entry.window ?? 0) * entry.heads + head;
    const query = Math.max(0, page.state.query);
    let { key } = page.state;
    if (key < 0) [[key]] = largest(layer.mean([head], query), 1);
    this.fill("query", entry.query, query);
    this.fill("key", entry.key, key);
    const [one, other] = [vectors.query(place, query), vectors.key(place, key)];
    const product = one.map((value, at) => value * other[at]);
    const dot = product.reduce((sum, value) => sum + value, 0);
    const strip = (name, values) => make("figure", {}, make("figcaption", { textContent: name }), this.bars(name, values));
    this.strips.replaceChildren(strip("query q", one), strip("key k", other), strip("products qᵢ kᵢ", product),
      this.table(one, other, product));
    const most = largest(product.map(Math.abs), 3).map(([at]) => `${at} (${product[at].toFixed(2)})`);
    this.caption.textContent = `Head ${head + 1}: q · k = ${dot.toFixed(2)}; times ${entry.scale.toPrecision(3)} it is ` +
      `${(dot * entry.scale).toFixed(2)}, and after softmax over the keys ` +
      `${share(layer.weight(head, query, key))}. Largest products at ${most.join(", ")}.`;
    if (entry.is_biased) this.caption.textContent += " Positions add to the scores of this layer, beside the products.";
    if (page.heads().length > 1) this.caption.textContent += " It is the first of the chosen heads.";
  }

  /** The bars in numbers, for those who do not see them. */
  table(...columns) {
    const row = (values, name) => make("tr", {}, ...values.map((value, at) =>
      make(at && name !== "col" ? "td" : "th", { scope: name, textContent: value })));
    return make("div", { className: "unseen" }, make("table", { ariaLabel: "The numbers of query, key and products" },
      make("thead", {}, row(["place", "query", "key", "product"], "col")),
      make("tbody", {}, ...Array.from(columns[0], (_, at) => row([at, ...columns.map((values) => values[at].toFixed(3))], "row")))));
  }

  fill(side, name, chosen) {
    const choice = this.choices[side];
    const tokens = this.page.recording.tokens(name);
    if (choice.tokens !== tokens) {
      choice.tokens = tokens;
      choice.replaceChildren(...tokens.map((token, at) => make("option", { value: at, textContent: `${at}  ${seen(token)}` })));
    }
    choice.value = chosen;
  }

  /** A bar for each entry, up or down. */
  bars(name, values) {
    const canvas = make("canvas", { role: "img", ariaLabel: `${name}: ${values.length} numbers` });
    const [height, width] = [72, Math.max(values.length * 2, Math.min(values.length * 24, this.strips.clientWidth - 2))];
    const context = fresh(canvas, width, height);
    const most = Math.max(1e-9, ...values.map(Math.abs));
    const step = width / values.length;
    context.fillStyle = variable("--line");
    context.fillRect(0, height / 2 - 0.5, width, 1);
    values.forEach((value, at) => {
      context.fillStyle = variable(value > 0 ? "--plus" : "--minus");
      const length = (Math.abs(value) / most) * (height / 2 - 2);
      context.fillRect(at * step, value > 0 ? height / 2 - length : height / 2, Math.max(1, step - 1), length);
    });
    canvas.drawn = values;
    return canvas;
  }
}
