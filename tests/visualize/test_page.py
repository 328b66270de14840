"""The page of a task: its data, and what a real browser draws of it."""

import base64
import zlib

import numpy as np
import pytest
from PIL import Image

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.data.worlds.dates import date_splits
from keras_tfm.generation import DecodingDefaults
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2
from keras_tfm.visualize import attention_page, look
from keras_tfm.visualize.document import Page
from keras_tfm.visualize.packing import packed_layers
from tests import contract
from tests.visualize.browser import Tab
from tests.visualize.conftest import PAIRS
from tests.visualize.screenshot import take

EVIL = "</script><img src=x onerror=alert(1)><b>"


def unpacked(page, entry):
    """The weights (H, T, S) that a page holds."""
    data = zlib.decompress(base64.b64decode(page.blocks[f"weights-{entry['index']}"]))
    shape = entry["heads"], entry["queries"], entry["keys"]
    maxima = np.frombuffer(data[: 4 * shape[0] * shape[1]], "<f4").reshape(*shape[:2], 1)
    packed = np.frombuffer(data[maxima.nbytes :], "uint8")
    parts = np.stack([packed & 15, packed >> 4], -1).reshape(-1)[: np.prod(shape)].reshape(shape)
    return maxima * parts / entry["top"]


def test_it_holds_what_look_sees(translator, page):
    seen = look(translator, "the cat sat", max_new_tokens=6)
    entries = page.header["entries"]
    assert [entry["kind"] for entry in entries] == [attention.kind for attention in seen.attention]
    for attention, entry in zip(seen.attention, entries, strict=True):
        bound = attention.weights.max(-1, keepdims=True) / 30 + 1e-6
        assert (np.abs(unpacked(page, entry) - attention.weights) <= bound).all()
        tokens = page.header["sides"][entry["query"]]["tokens"], page.header["sides"][entry["key"]]["tokens"]
        assert tokens == (list(attention.query_tokens), list(attention.key_tokens))
        assert not entry["is_biased"] and entry["key_dim"] == 8  # weights are the products' softmax alone


def test_steps_are_what_was_written(translator, page):
    steps = page.header["steps"]
    written = translator.generate(["the cat sat"], max_new_tokens=6)
    assert page.header["answer"] == written[0]
    assert len(steps) == 7  # six tokens, and what would come next
    for place, step in enumerate(steps):
        names, probabilities = zip(*step["alternatives"], strict=True)
        assert step["query"] == place and len(names) == 5
        assert step["token"] == names[0] and step["probability"] == probabilities[0]  # greedy search
        assert sorted(probabilities, reverse=True) == list(probabilities) and sum(probabilities) <= 1.001
    target = page.header["sides"][page.header["written"]]["tokens"]
    assert target[1:] == [step["token"] for step in steps[:-1]]


def test_a_decoder_alone(browser, tmp_path):
    task = tasks.TextGenerator.from_texts(
        ["the cat sat on the mat"] * 3,
        tokenizer="characters",
        dim=16,
        num_heads=2,
        num_layers=1,
        max_length=24,
    )
    page = attention_page(task, "the cat", max_new_tokens=4)
    assert [step["query"] for step in page.header["steps"]] == [*range(len("the cat"), len("the cat") + 5)]
    assert "the cat" + page.header["answer"] == task.generate(["the cat"], max_new_tokens=4)[0]
    assert not page.header["notes"]
    cut = attention_page(task, "the cat sat on the mat" * 3, max_new_tokens=4)
    assert "The text was cut: the last 47 of its tokens" in cut.header["notes"][0]
    page.write(tmp_path / "page.html")
    tab = Tab(browser, (tmp_path / "page.html").as_uri())
    assert tab.page.get_attribute("#stage", "data-view") == "Steps" and not tab.errors


def test_every_view_draws_without_a_word_on_the_console(browser, address):
    for scheme, width in (("light", 1280), ("dark", 390)):
        tab = Tab(browser, address, width=width, scheme=scheme)
        views = tab.page.eval_on_selector_all("#views button", "tabs => tabs.map((tab) => tab.textContent)")
        assert views == ["Lines", "All heads", "Matrix", "Query · key", "Patterns", "Steps"]
        for view in views:
            tab.view(view)
            assert tab.text("#caption")
        wide = tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, "the page is wider than its window"
        assert tab.errors == []
        tab.page.close()


def test_lines_are_the_weights(browser, address, translator):
    tab = Tab(browser, address)
    tab.view("Lines")
    tab.page.click("#kinds label:has-text('Encoder')")
    tab.page.click("#layers label:has-text('1')")
    tab.drawn("Lines 0 0,1")
    weights = look(translator, "the cat sat").attention[0].weights
    drawn = tab.marks(".between canvas")
    found = np.zeros_like(weights)
    for head, query, key, weight in drawn:
        found[int(head), int(query), int(key)] = weight
    assert (np.abs(found - weights) <= weights.max(-1, keepdims=True) / 30 + 1e-6).all()

    tab.page.hover(".tokens.query li:nth-child(2)")
    tab.drawn()
    assert {query for _, query, *_ in tab.marks(".between canvas")} == {1}
    tab.page.mouse.move(640, 800)
    tab.page.focus(".tokens.query")
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press("ArrowDown")
    tab.page.keyboard.press(".")
    tab.drawn("Lines 0 0")
    assert {(head, query) for head, query, *_ in tab.marks(".between canvas")} == {(0, 2)}
    assert tab.page.get_attribute("#query-2", "aria-selected") == "true"
    most = look(translator, "the cat sat").attention[0]
    name = most.key_tokens[most.weights[0, 2].argmax()]
    assert tab.text("#chosen tbody tr:first-child th") == name
    assert tab.errors == []


def test_the_matrix_is_dark_where_weights_are_large(browser, address, translator):
    tab = Tab(browser, address)
    tab.view("Matrix")
    tab.page.keyboard.press(".")  # the first head alone
    tab.drawn("Matrix 5 0")
    weights = look(translator, "the cat sat", max_new_tokens=6).attention[5].weights[0]
    data = tab.page.eval_on_selector(".matrix canvas", "canvas => ({...canvas.dataset})")
    cell, left, top = (float(data[name]) for name in ("cell", "left", "top"))
    places = [[left + (x + 0.5) * cell, top + (y + 0.5) * cell] for y, x in np.ndindex(weights.shape)]
    lightness = np.sum(tab.colours(".matrix canvas", places), -1).reshape(weights.shape)
    for row, seen in zip(weights, lightness, strict=True):
        assert seen.argmin() == row.argmax()  # light colours: darker is more
        shades = row / row.max()
        assert np.corrcoef(shades, seen)[0, 1] < -0.9
    tab.page.mouse.move(0, 0)
    box = tab.page.locator(".matrix canvas").bounding_box()
    tab.page.mouse.click(box["x"] + left + 1.5 * cell, box["y"] + top + 2.5 * cell)
    tab.drawn("Matrix")
    assert "(2) reads" in tab.text("#caption") and "(1):" in tab.text("#caption")
    tab.page.focus(".matrix canvas")
    tab.page.keyboard.press("ArrowRight")
    tab.drawn("Matrix")
    assert "(2):" in tab.text("#caption") and tab.errors == []


def test_steps_go_on_by_keys_and_show_alternatives(browser, address, page):
    tab = Tab(browser, address)
    tab.page.click("button[aria-label='Previous step']")
    tab.drawn("Steps")
    step = page.header["steps"][-2]
    assert tab.page.get_attribute("input[type=range]", "aria-valuetext") == f"6 of 7: {step['token']}"
    names = tab.page.eval_on_selector_all(
        ".alternatives tbody bdi", "all => all.map((one) => one.textContent)"
    )
    assert names == [name for name, _ in step["alternatives"]]
    tab.page.focus(".alignment canvas")
    tab.page.keyboard.press("ArrowUp")
    tab.drawn("Steps")
    assert tab.text(".steps h2") == "Token 5 of 7" and tab.errors == []


def test_a_pair_is_the_product_of_its_vectors(browser, address):
    tab = Tab(browser, address)
    tab.view("Query · key")
    query, key, product = (np.array(tab.marks(f".strips figure:nth-child({n}) canvas")) for n in (1, 2, 3))
    np.testing.assert_allclose(product, query * key, rtol=1e-5)
    assert f"q · k = {product.sum():.2f}" in tab.text("#caption") and tab.errors == []


def test_no_text_runs(browser, translator, tmp_path):
    page = attention_page(translator, EVIL, max_new_tokens=2)
    header = {**page.header, "answer": EVIL, "notes": [EVIL], "about": EVIL}
    for side in header["sides"].values():
        side["tokens"] = [EVIL] * len(side["tokens"])
    Page(header, page.blocks).write(tmp_path / "evil.html")
    tab = Tab(browser, (tmp_path / "evil.html").as_uri())
    for view in ("Lines", "Matrix", "Steps"):
        tab.view(view)
    assert not tab.page.query_selector_all("img, main b, #notes b") and tab.text("#notes li") == EVIL
    assert tab.errors == []


@pytest.mark.slow
def test_patches_over_the_picture(browser, tmp_path):
    sizes = {"image_size": 32, "patch_size": 8, "dim": 16, "num_heads": 2, "num_layers": 2}
    task = tasks.ImageClassifier.from_size("tiny", ["a", "b", "c"], **sizes, num_channels=3)
    contract.randomise(task.model, seed=4)
    image = np.random.default_rng(5).integers(0, 256, (32, 32, 3)).astype("uint8")
    page = attention_page(task, image, tmp_path / "page.html")
    seen = look(task, image)
    tab = Tab(browser, (tmp_path / "page.html").as_uri())
    patches = np.array(tab.marks(".picture > canvas"))
    expected = seen.attention[0].weights[:, 0, 1:].mean(0)
    assert np.abs(patches - expected).max() <= seen.attention[0].weights.max() / 30
    tab.page.focus(".picture > canvas")
    tab.page.keyboard.press("ArrowRight")
    tab.drawn("Picture")
    chosen = np.array(tab.marks(".picture > canvas"))
    assert np.abs(chosen - patches).max() > 1e-3 and tab.errors == []
    assert page.header["picture"].startswith("data:image/png") and page.header["answer"] in "abc"


def large_page():
    """12 layers of 12 heads over 512 tokens, of random scores: hardly any other weights deflate as badly."""
    rng, tokens = np.random.default_rng(6), [f"token{i % 97}" for i in range(512)]
    weights = [np.exp(rng.standard_normal((12, 512, 512), "float32")) for _ in range(12)]
    blocks, levels = packed_layers([some / some.sum(-1, keepdims=True) for some in weights])
    sizes = {"heads": 12, "queries": 512, "keys": 512, "query": "all", "key": "all", "top": levels}
    entries = [{"index": i, "kind": "encoder", "layer": i, "name": str(i), **sizes} for i in range(12)]
    header = {"about": "", "text": "", "answer": "", "notes": [], "precision": "", "entries": entries}
    header |= {"sides": {"all": {"tokens": tokens, "grid": None}}, "patterns": [], "picture": None}
    return Page(header | {"steps": [], "written": None}, blocks)


@pytest.mark.slow
def test_a_large_page_is_small_and_quick(browser, tmp_path):
    path = tmp_path / "large.html"
    large_page().write(path)
    assert path.stat().st_size < 15e6
    tab = Tab(browser, path.as_uri())
    assert tab.page.evaluate("performance.now()") < 2000
    taken = []
    for layer in range(2, 8):
        taken.append(
            tab.page.evaluate(
                """layer => new Promise((done) => {
                const began = performance.now();
                const root = document.documentElement;
                new MutationObserver(() => requestAnimationFrame(() => done(performance.now() - began)))
                  .observe(root, { attributeFilter: ["data-drawn"] });
                document.querySelector(`#layers label:nth-child(${layer}) input`).click();
            })""",
                layer,
            )
        )
    assert np.median(taken) < 200, taken
    tab.view("All heads")
    assert tab.errors == []


def test_what_cannot_be_shown(translator, folder, capsys):
    with pytest.raises(ValueError, match=r"would show \d+ tokens, more than 3"):
        attention_page(translator, "the cat sat", max_tokens=3)
    with pytest.raises(ValueError, match="`layer` must number one of 6 layers; it is 6"):
        attention_page(translator, "the cat", layer=6)
    ids_alone = tasks.TextGenerator(
        LanguageModel(GPT2.from_size("tiny", vocabulary_size=9, dim=8, num_heads=2, num_layers=1)),
        None,
        tasks.TextGeneratorConfig(has_tokenizer=False, decoding=DecodingDefaults(end_ids=(0,))),
    )
    with pytest.raises(ValueError, match="has no tokenizer"):
        attention_page(ids_alone, "the cat")
    without = tasks.Translator.from_pairs(
        PAIRS, "recurrent", size="tiny", max_length=8, dim=8, hidden_dim=8, attention="none"
    )
    with pytest.raises(ValueError, match="no attention"):
        attention_page(without, "the cat")


def command(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(["attention", *map(str, arguments)])
    return stop.value.code


def test_the_command(folder, capsys):
    main(["attention", str(folder / "run"), "--text", "the cat " * 20, "--out", str(folder / "cli.html")])
    assert "The text was cut" in (folder / "cli.html").read_text("utf-8")
    assert "open it in a browser" in capsys.readouterr().err
    run, out = folder / "run", ("--out", folder / "x.html")
    assert (
        command(run, "--image", "x.png", *out) == 2 and command(run, "--text", "a", *out, "--layer", 9) == 2
    )
    assert command(run, "--text", "a", "--serve", "--port", 70_000) == 2
    assert command(folder, "--text", "a", *out) == 2
    assert command(run, "--text", "a") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 5 and all(line.startswith("keras-tfm") for line in errors)
    assert not (folder / "x.html").exists()


@pytest.mark.slow
def test_the_alignment_of_a_date_can_be_read(browser, jit, tmp_path):
    train, _ = date_splits()
    task = tasks.Translator.from_pairs(train, size="tiny", vocabulary_size=1_000, max_length=64)
    task.fit(train, epochs=4, batch_tokens=4096, learning_rate=2e-3, label_smoothing=0.0)
    tab = take(browser, task, tmp_path / "attention.png")
    assert tab.text("#answered") == "1984-07-15" and tab.errors == []
    read = {}
    for _ in range(tab.page.locator(".written button").count()):
        written = tab.text(".written .now").strip("▁")
        read[written] = tab.page.inner_text("#chosen tbody tr:first-child th").strip("▁")
        tab.page.click("button[aria-label='Previous step']")
        tab.drawn("Steps")
    assert read["1984"] == "1984" and read["15"] == "15" and read["07"].startswith("Ju")
    with Image.open(tmp_path / "attention.png") as image:
        assert image.size == (1100, 624) and len(image.convert("RGB").getcolors(1100 * 624)) > 20
