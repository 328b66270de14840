"""The pages' code runs: the book's and the guides', each page in an empty folder; names and links are
there.
"""

import importlib
import importlib.util
import re

import pytest

from keras_tfm.training import diagnosis
from tests.docs.pages import ROOT, STAND_IN_PAGES, blocks, compare, run, run_python
from tests.test_imports import FOR_EVERYBODY, MAY_IMPORT

PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*/*.md") if path.parent.name != "api"
)
VIDEO_PAGES = tuple(f"docs/guides/{name}.md" for name in ("video", "tracking", "video_frames"))
# Pages whose code takes files and RUNs of the reader's as given, and pages whose outcome is checked too.
RUN_ELSEWHERE = {
    "docs/guides/add_a_task.md": "test_walks.py",
    "docs/guides/clusters.md": "test_clusters.py, test_readme.py",
    "docs/guides/images.md": "test_images.py",
    "docs/guides/outside.md": "test_walks.py",
    **dict.fromkeys(VIDEO_PAGES, "test_video.py"),
    **dict.fromkeys(STAND_IN_PAGES, "test_readme.py"),
}
SLOW = (
    "docs/book/alignment.md",
    "docs/guides/command_line.md",
    "docs/guides/find_again.md",
    "docs/guides/lanes.md",
    "docs/guides/fine_tune.md",
    "docs/guides/mend_pictures.md",
    "docs/guides/own_data.md",
    "docs/guides/pictures.md",
    "docs/guides/points.md",
    "docs/guides/poses.md",
    "docs/guides/proteins.md",
    "docs/guides/serve.md",
)  # each trains or exports
PACKAGES = (
    "layers", "models", "heads", "tasks", "data", "generation", "training", "visualize", "word_vectors",
    "convert",
)  # fmt: skip
pytestmark = pytest.mark.skipif(not PAGES, reason="the pages are not part of the wheel")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW))
        for name in PAGES
        if name not in RUN_ELSEWHERE
    ],
)
def test_a_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run(ROOT / name)


def test_what_is_not_run():
    """Blocks that are left out, by page: a new one is named here, with its reason on the page."""
    left_out = {
        name: sum(block.why is not None for block in blocks(ROOT / name)) for name in ["README.md", *PAGES]
    }
    assert {name: count for name, count in left_out.items() if count} == {
        "docs/book/bert.md": 1,
        "docs/book/encoder_decoder.md": 1,
        "docs/book/families.md": 1,
        "docs/book/gpt.md": 1,
        "docs/book/index.md": 1,
        "docs/guides/convert.md": 1,
        "docs/guides/detect_and_segment.md": 4,
        "docs/guides/fine_tune.md": 1,
        "docs/guides/images_and_words.md": 2,
        "docs/guides/proteins.md": 1,
        "docs/guides/see_inside.md": 2,
        "docs/guides/serve.md": 2,
        "docs/guides/series_and_ratings.md": 2,
        "docs/guides/sums.md": 2,
        "docs/guides/text.md": 1,
        "docs/guides/word_vectors.md": 1,
    }


@pytest.mark.parametrize(
    "remark",
    [
        diagnosis.stopped_early(diagnosis.Reached(1, 2, 1)),
        diagnosis.one_class(["a"] * diagnosis.FEW),
        diagnosis.no_better("val_accuracy", 0.5, "a rule", 0.5),
        diagnosis.rule_wins("val_accuracy", 0.5, "a rule", 0.6, ""),
        diagnosis.flat_loss({"loss": [1.0, 1.0, 1.0]}),
        diagnosis.jump({"loss": [1.0, 9.0]}),
    ],
    ids=lambda remark: remark.key,
)
def test_what_is_said_of_a_training_is_explained(remark):
    page = (ROOT / "docs/guides/not_learning.md").read_text("utf-8")
    assert page.startswith(f"# {diagnosis.GUIDE}") and f"\n### {remark.key}\n" in page


def test_blocks_between_two_that_are_left_out(tmp_path):
    page = tmp_path / "page.md"
    fence = "```"
    left_out = f"<!-- not run: why -->\n{fence}\none\n{fence}\n\n"
    page.write_text(f"{left_out}{fence}python\ntwo\n{fence}\n\n{left_out}")
    assert [(block.code.strip(), block.why) for block in blocks(page)] == [
        ("one", "why"),
        ("two", None),
        ("one", "why"),
    ]


def test_comments_are_compared():
    run_python(
        "import numpy as np\nx = np.zeros((2, 3))  # (2, 3)\nx.shape, x.T.shape  # (2, 3), and (3, 2)",
        {},
        "p",
    )
    run_python(
        '1 + 1 == 2  # True\n"a" + "b"  # "ab", both\n1_000 * 2  # 2,000 in all\n7  # of a kind', {}, "p"
    )
    for value, comment in (
        (1, "2"),
        ((2, 3), "(2, 4)"),
        ("a", '"b"'),
        (False, "True: so it is"),
        (["a"], '["b"], so'),
        (b"a", 'b"b"'),
        ((True, {1}), "(True, {2})"),
    ):
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
            is_made_here = f"\nclass {path}(" in text or f" keras_tfm/{package}/{path}.py\n" in text
            is_module = importlib.util.find_spec(f"keras_tfm.{package}.{path}") is not None
            assert hasattr(found, path) or is_module or is_made_here, f"{name}: {package}.{path}"


def test_contributing_shows_who_may_import_whom():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    shown = {}
    for row in re.findall(r"^\| (`.*) \|$", text.partition("| folder | may import |")[2], re.MULTILINE):
        folders, imported = (set(re.findall(r"`(\w+)(?:\.py)?`", side)) for side in row.split("|"))
        shown |= dict.fromkeys(folders, imported)
    everything = {"cli", "__init__", "__main__"}
    assert everything < shown.keys()
    assert {name: shown[name] for name in shown.keys() - everything} == {
        name: others for name, others in MAY_IMPORT.items() if name not in FOR_EVERYBODY
    }


def test_links_between_pages_lead_to_files():
    for name in [
        "README.md",
        "CONTRIBUTING.md",
        "tests/README.md",
        *PAGES,
        "docs/models.md",
        "docs/index.md",
    ]:
        page = ROOT / name
        for address in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            if not address.startswith("http") and "/api/" not in address and not address.startswith("api/"):
                assert (page.parent / address).exists(), f"{name}: {address}"
