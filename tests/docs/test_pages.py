"""The pages' code runs: the book's and the guides', each page in an empty folder; README's with stand-in
files.
"""

import importlib
import pathlib
import re

import pytest

from tests.docs.pages import ROOT, blocks, compare, run, run_python

PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*/*.md") if path.parent.name != "api"
)
SLOW = (
    "docs/book/alignment.md",
    "docs/guides/fine_tune.md",
    "docs/guides/own_data.md",
    "docs/guides/serve.md",
)  # each trains
PACKAGES = (
    "layers", "models", "heads", "tasks", "data", "generation", "training", "visualize", "word_vectors",
    "convert",
)  # fmt: skip
pytestmark = pytest.mark.skipif(not PAGES, reason="the pages are not part of the wheel")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in PAGES]
)
def test_a_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(ROOT / name)


QUICKER = {
    'size="small"': 'size="tiny", vocabulary_size=300',
    "epochs=20": "epochs=1, jit=False",
    "minutes=30": "epochs=1, epoch_batches=2, jit=False",
    'strategy("mirrored")': 'strategy("none")',  # several must be asked for at the start
    "epochs=10": "epochs=1",
}


@pytest.mark.slow
def test_the_python_of_readme_runs(tmp_path, monkeypatch):
    """With stand-in files: dates for texts, a tiny classifier for that of photos. Its commands are parsed by
    test_commands.py alone, since most of them train for minutes.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    from keras_tfm.data import date_pairs
    from keras_tfm.tasks import ImageClassifier, Translator

    monkeypatch.chdir(tmp_path)
    pairs = date_pairs(200)
    lines = ["\t".join(pair) for pair in zip(*pairs, strict=True)]
    for name in ("pairs.tsv", "input.txt", "text.txt"):
        pathlib.Path(name).write_text("\n".join(lines * 5) + "\n", "utf-8")
    translator = Translator.from_pairs(pairs, size="tiny", vocabulary_size=300)
    classifier = ImageClassifier.from_size("tiny", ["a", "b"], image_size=32, patch_size=8)
    for task, name in ((translator, "dates"), (translator, "mine"), (classifier, "fine")):
        task.save(f"runs/{name}")
    classifier.export("saved_models/photos")
    image = np.zeros((40, 30, 3), "uint8")
    tf.io.write_file("photo.jpg", tf.io.encode_jpeg(image))
    tf.io.write_file("other.png", tf.io.encode_png(image + 9))

    inputs = keras.Input((4,))
    examples = tf.data.Dataset.from_tensor_slices((np.ones((8, 4), "float32"), np.arange(8) % 3)).batch(4)
    given = {
        "inputs": inputs,
        "outputs": keras.layers.Dense(3)(inputs),
        "dataset": examples,
        "validation": examples,
    }

    def quicker(code):
        for slow, quick in QUICKER.items():
            code = code.replace(slow, quick)
        return code

    found = run(ROOT / "README.md", quicker, ("python",), **given)
    assert found["embedding"].input_dim > 10 and pathlib.Path("alignment.png").stat().st_size > 1_000
    assert found["model"].count_params() == 15 and list(pathlib.Path("runs/mine/checkpoints").glob("step-*"))


def test_what_is_not_run():
    """Blocks that are left out, by page: a new one is named here, with its reason on the page."""
    left_out = {name: sum(block.why is not None for block in blocks(ROOT / name)) for name in PAGES}
    assert {name: count for name, count in left_out.items() if count} == {
        "docs/book/bert.md": 1,
        "docs/book/encoder_decoder.md": 1,
        "docs/book/gpt.md": 1,
        "docs/book/index.md": 1,
        "docs/guides/convert.md": 1,
        "docs/guides/fine_tune.md": 1,
        "docs/guides/serve.md": 1,
    }


def test_comments_are_compared():
    run_python(
        "import numpy as np\nx = np.zeros((2, 3))  # (2, 3)\nx.shape, x.T.shape  # (2, 3), and (3, 2)",
        {},
        "p",
    )
    run_python(
        '1 + 1 == 2  # True\n"a" + "b"  # "ab", both\n1_000 * 2  # 2,000 in all\n7  # of a kind', {}, "p"
    )
    for value, comment in ((1, "2"), ((2, 3), "(2, 4)"), ("a", '"b"'), (False, "True: so it is")):
        with pytest.raises(AssertionError):
            compare(value, comment, "here")


def test_names_on_the_pages_are_there():
    """`layers.X` and the like, in the text of the book, the guides and README; KerasHub's column apart."""
    for name in ["README.md", *PAGES]:
        text = (ROOT / name).read_text("utf-8")
        if name.endswith("coming_from.md"):
            text = re.sub(r"^\| `?[^|]*\|", "", text, flags=re.MULTILINE)
        for package, path in re.findall(
            rf"(?<![\w.])(?:keras_tfm\.)?({'|'.join(PACKAGES)})\.(?!json|md|py|png)([A-Za-z_0-9]+)", text
        ):
            found = importlib.import_module(f"keras_tfm.{package}")
            assert hasattr(found, path), f"{name}: {package}.{path}"


def test_links_between_pages_lead_to_files():
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        *PAGES,
        "docs/images.md",
        "docs/clusters.md",
        "docs/index.md",
    ]:
        page = ROOT / name
        for address in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if not address.startswith("http") and "/api/" not in address and not address.startswith("api/"):
                assert (page.parent / address).exists(), f"{name}: {address}"
