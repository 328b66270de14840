"""A package of its own, `package/mine`: a modality that this one lacks, installed by a dist-info on the path.

It is what docs/guides/outside.md shows.
"""

import argparse
import importlib
import inspect
import json
import pathlib
import shutil
import sys
import tomllib

import numpy as np
import pytest

from keras_tfm import serving, tasks
from keras_tfm.asking import TASKS
from keras_tfm.cli.train import add_task_options
from keras_tfm.models.base import OUTSIDE
from keras_tfm.serving import plugins
from keras_tfm.tasks.images.image_families import ImageOptions
from keras_tfm.tasks.text.encoder_task import FamilyOptions
from keras_tfm.tasks.text.translator_options import TranslatorOptions
from keras_tfm.training.options import Training
from tests.docs.pages import ROOT, blocks
from tests.fresh_process import UNUSED, ask, run_fresh
from tests.test_cli import run

PACKAGE = pathlib.Path(__file__).parent / "package"
PAGE = ROOT / "docs" / "guides" / "outside.md"
ASKED = ["0.1,0.1 0.5,0.5 0.9,0.9", "0.9,0.2 0.1,0.7", "0.4,0.4"]


def forget():
    """Leave nothing of the package in this process."""
    TASKS.pop("shapes", None)
    for name in [name for name, family in OUTSIDE.items() if family.__module__.startswith("mine.")]:
        del OUTSIDE[name]
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path where the package is installed."""
    shutil.copytree(PACKAGE, tmp_path / "site", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugins.warn.cache_clear()
    forget()
    yield tmp_path / "site"
    forget()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a RUN, which the command line trained, and its exports; and what was said meanwhile."""
    folder = tmp_path_factory.mktemp("outside")
    random = np.random.default_rng(0)
    shutil.copytree(PACKAGE, folder / "site", ignore=shutil.ignore_patterns("__pycache__"))
    rows = []
    for number in range(64):
        x = np.sort(random.random(random.integers(2, 6)))
        y = x if number % 2 else 1 - x
        points = " ".join(f"{a:.3f},{b:.3f}" for a, b in zip(x, y, strict=True))
        rows.append(f"{points}\t{'up' if number % 2 else 'down'}\n")
    (folder / "train.tsv").write_text("".join(rows), "utf-8")
    (folder / "asked.txt").write_text("\n".join(ASKED) + "\n", "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "site")
        forget()
        train = "train", "shapes", "--data", folder / "train.tsv", "--out", folder / "run"
        assert run(*train, "--epochs", 12, "--learning-rate", 0.01) == 0
        for name in ("saved_model", "onnx"):
            assert run("export", folder / "run", "--out", folder / name, "--format", name) == 0
        forget()
    return folder


def test_it_is_small():
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert sum(bool(line.strip()) for path in files for line in path.read_text("utf-8").splitlines()) <= 80


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not part of the wheel")
def test_the_guide_shows_it():
    shown = {block.code for block in blocks(PAGE)}
    assert shown >= {f"# mine/{path.name}\n{path.read_text('utf-8')}" for path in PACKAGE.glob("mine/*.py")}
    (project,) = (tomllib.loads(code) for code in shown if code.startswith("# pyproject.toml"))
    entries = (PACKAGE / "mine-0.1.dist-info" / "entry_points.txt").read_text("utf-8").splitlines()[1:]
    shown_entries = project["project"]["entry-points"]["keras_tfm.plugins"]
    assert entries == [f"{name} = {place}" for name, place in shown_entries.items()]


def test_what_a_task_defines():
    """Abstract methods, and attributes without a default: 12 at most."""
    bases = tasks.AskedTask, tasks.TrainableTask
    task_class = type("Bare", bases, {})
    attributes = {
        name
        for base in task_class.__mro__
        for name in inspect.get_annotations(base)
        if not hasattr(task_class, name)
    }
    assert attributes == {"name", "help", "files", "config_class", "model", "config"}
    methods = {"make", "read_files", "batches", "objective", "measure", "signature"}
    assert task_class.__abstractmethods__ == methods
    assert len(attributes | methods) <= 12


def test_it_learns_and_is_asked(made, site, capsys):
    assert run("evaluate", made / "run", "--data", made / "train.tsv") == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9
    assert run("predict", made / "run", "--data", made / "asked.txt") == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["up", "down"]
    task = tasks.load(made / "run")
    assert not task.refusals(ASKED)
    with pytest.raises(ValueError, match=r"^row 1: expected points, x,y with spaces between, got '0,0,0'"):
        task.predict(["0,0", "0,0,0"])


def test_the_command_line_knows_it_without_importing_it(site, capsys):
    assert run("train", "--help") == 0
    assert "shapes" in (said := capsys.readouterr().out) and "a task of mine 0.1" in said
    assert "mine" not in sys.modules
    assert run("train", "shapes", "--help") == 0
    assert "learn to name what points draw" in " ".join(capsys.readouterr().out.lower().split())


def test_the_help_shows_how_a_plugin_clips_where_its_class_says_so(site):
    shapes = importlib.import_module("mine.task").ShapeNamer
    by_object = {"optimizer_options": property(lambda task: {"global_clipnorm": 0.5})}
    alone = {name: vars(shapes)[name] for name in ("config_class", "files")}  # which no optimizer trains
    kinds = {
        "1.0": shapes,
        "0.5 for each weight's gradient": type("Own", (shapes,), {"optimizer_options": {"clipnorm": 0.5}}),
        "none": type("Unclipped", (shapes,), {"optimizer_options": {}}),
        "the task's own": type("ByObject", (shapes,), by_object),
        "the task's own ": type("Alone", (tasks.LearningTask,), {"training": Training(), **alone}),
    }
    for norm, kind in kinds.items():
        parser = argparse.ArgumentParser()
        add_task_options(parser, kind)
        assert f"gradients to this value (default: {norm.strip()})" in " ".join(parser.format_help().split())


def test_info_and_attention_show_it(made, site, capsys, tmp_path):
    assert run("info", "points:tiny", "--json") == 0
    family = json.loads(capsys.readouterr().out)["parts"][-1]["parameters"]
    assert run("info", made / "run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["parts"][-1]["parameters"] == family + 2 * 16 + 2
    assert run("info", made / "onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["plugins"] == "mine 0.1"
    assert run("attention", made / "run", "--text", ASKED[0], "--out", tmp_path / "page.html") == 0
    assert ASKED[0] in (tmp_path / "page.html").read_text("utf-8")


def test_all_ways_of_asking_answer_the_same(made, site):
    expected = tasks.load(made / "run").predict(ASKED)
    assert serving.load(made / "onnx")(ASKED)["shape"].tolist() == expected
    assert ask(made / "saved_model", text=ASKED)["shape"].tolist() == expected
    fresh = "import sys; from keras_tfm import tasks; print(tasks.load(sys.argv[2]).predict(sys.argv[3:]))"
    result = run_fresh(
        f"import sys; sys.path.insert(0, sys.argv[1]); {fresh}", site, made / "run", *ASKED, blocked=UNUSED
    )
    assert result.stdout.splitlines()[-1:] == [str(expected)], result.stderr
    alone = "from serving import load; print(load(sys.argv[2])(sys.argv[3:])['shape'].tolist())"
    paths = "import sys; sys.path[:0] = sys.argv[1:3]"
    blocked = "tensorflow", "keras", "keras_tfm"
    result = run_fresh(f"{paths}; {alone}", site, made / "onnx", *ASKED, blocked=blocked)
    assert result.stdout == f"{expected}\n", result.stderr


def test_folders_name_the_distribution_and_hold_none_of_its_code(made, site):
    for path in (made / "run" / "config.json", made / "onnx" / "serving.json"):
        assert json.loads(path.read_text("utf-8"))["plugins"] == {"mine": "0.1"}
    assert "pip install numpy onnxruntime mine==0.1`" in (made / "onnx" / "README.md").read_text("utf-8")
    names = {path.name for folder in ("run", "saved_model", "onnx") for path in (made / folder).rglob("*")}
    assert not names & {path.name for path in (PACKAGE / "mine").iterdir()}


def test_where_it_is_missing_its_name_is_said(made):
    forget()
    for load, folder in ((tasks.load, "run"), (serving.load, "onnx")):
        with pytest.raises(ValueError, match=r"needs the plugin 'mine' in version '0\.1', which is not inst"):
            load(made / folder)


def test_another_version_costs_one_warning(made, site, caplog):
    (site / "mine-0.1.dist-info" / "METADATA").write_text("Name: mine\nVersion: 0.2\n")
    importlib.invalidate_caches()
    for _ in range(2):
        tasks.load(made / "run")
    told = [record.getMessage() for record in caplog.records if "mine" in record.getMessage()]
    assert told == [f"{made / 'run' / 'config.json'}: it was written with mine 0.1; 0.2 is installed"]


def write_entries(site, *lines, name="mine"):
    folder = site / f"{name}-0.1.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Name: {name}\nVersion: 0.1\n")
    (folder / "entry_points.txt").write_text("\n".join(["[keras_tfm.plugins]", *lines]) + "\n")
    importlib.invalidate_caches()


@pytest.mark.parametrize(("lines", "warning"), [
    (["task.classify = mine.task:ShapeNamer"], "task.classify of mine 0.1 is left out: keras_tfm itself has"),
    (["tusk.shapes = mine.task:ShapeNamer"], "tusk.shapes of mine 0.1 is left out: expected a name that beg"),
    (["no entry at all"], "The plugins of mine in "),
])  # fmt: skip
def test_a_plugin_that_is_wrong_costs_a_warning(site, capsys, caplog, lines, warning):
    write_entries(site, *lines)
    assert run("train", "--help") == 0
    assert "classify" in capsys.readouterr().out
    assert [warning in record.getMessage() for record in caplog.records] == [True]


def test_a_damaged_distribution_hides_itself_alone(made, site, caplog):
    write_entries(site, "no entry at all", name="other")
    assert set(plugins.installed("task")) == {"shapes"}
    assert [f"plugins of other in {site}" in record.getMessage() for record in caplog.records] == [True]


def test_a_distribution_without_a_name_is_named_by_its_place(site, caplog):
    write_entries(site, "task.circles = other:Circles", name="other")
    (site / "other-0.1.dist-info" / "METADATA").unlink()
    plugins.warn.cache_clear()
    assert "circles" not in plugins.installed("task")
    assert [f"of a distribution in {site}" in record.getMessage() for record in caplog.records] == [True]


def test_a_broken_module_is_named_where_it_is_asked_for(made, site, capsys):
    (site / "mine" / "task.py").write_text("import nothing_of_this_name")
    assert run("train", "--help") == 0
    for command in (("train", "shapes", "--help"), ("predict", made / "run")):
        capsys.readouterr()
        assert run(*command) == 2
        assert "The plugin task.shapes of mine 0.1 is broken: ModuleNotFoundError" in capsys.readouterr().err


def test_two_plugins_of_one_name_are_refused(made, site, caplog):
    write_entries(site, "task.shapes = other:Shapes", name="other")
    with pytest.raises(ValueError, match=r"have one name: task\.shapes of .* and task\.shapes of .*; uninst"):
        tasks.load(made / "run")
    assert set(plugins.installed("task")) == {"shapes"}
    assert "has the same name" in caplog.text


def test_an_entry_that_is_no_task_is_refused(made, site):
    write_entries(site, "task.shapes = mine.host:points")
    with pytest.raises(ValueError, match=r"plugin task\.shapes of mine 0\.1 is not a task of this name"):
        tasks.load(made / "run")


def test_a_savedmodel_needs_the_graph(made, site, tmp_path):
    entries = (site / "mine-0.1.dist-info" / "entry_points.txt").read_text().splitlines()
    write_entries(
        site, *[line for line in entries if line.startswith(("task", "family", "reader", "answer"))]
    )
    with pytest.raises(ValueError, match=r"needs the plugin graph-reader\.points, which is not installed"):
        tasks.load(made / "run").export(tmp_path / "served")


def test_our_tasks_take_a_family_that_fits(site, tmp_path):
    (site / "mine" / "families.py").write_text(
        "from keras_tfm import models\n"
        "class Words(models.BERT): pass\n"
        "class Pairs(models.Transformer): pass\n"
        "class Pixels(models.ViT): sizes = {'small': models.tiny_config(models.ViT)}\n"
    )
    modules = {"Words": "families", "Pairs": "families", "Pixels": "families", "Points": "task"}
    write_entries(site, *[f"family.{name} = mine.{module}:{name}" for name, module in modules.items()])
    (tmp_path / "train.tsv").write_text("a film\tgood\nno film\tbad\n" * 20)
    train = "train", "classify", "--data", tmp_path / "train.tsv", "--out", tmp_path / "run"
    assert run(*train, "--family", "words", "--size", "tiny", "--epochs", 1) == 0
    forget()
    task = tasks.load(tmp_path / "run")
    assert type(task.model.backbone).__name__ == "Words" and set(task.predict(["a film"])) <= {"good", "bad"}
    assert type(ImageOptions(family="pixels", size="small").model({})).__name__ == "Pixels"
    pairs = ["one two", "two one"] * 4, ["1 2", "2 1"] * 4
    pair_task = tasks.Translator.from_pairs(pairs, family="pairs", size="tiny", vocabulary_size=300)
    assert type(pair_task.model.backbone).__name__ == "Pairs"
    with pytest.raises(
        ValueError, match="'pairs' does not fit: expected an encoder, got a model that decodes"
    ):
        FamilyOptions(family="pairs").base()
    with pytest.raises(
        ValueError, match="'words' does not fit: expected a model that decodes, with `step`, got"
    ):
        TranslatorOptions(family="words").base()
    with pytest.raises(ValueError, match="Pixels has no size 'tiny'; it has small"):
        ImageOptions(family="pixels").base()
    with pytest.raises(ValueError, match="family 'points' does not fit: it has no image_size, num_channels"):
        ImageOptions(family="points").base()
    with pytest.raises(ValueError, match=r"There is no family 'nosuch'; there are .*, words"):
        ImageOptions(family="nosuch").base()


@pytest.mark.parametrize("content", [[], {"mine": 1}, "mine"])
def test_a_damaged_entry_is_refused(content):
    with pytest.raises(ValueError, match="RUN: expected versions by the names of distributions"):
        plugins.require({"plugins": content}, "RUN")
