"""docs/images.md: all of its commands and code run, in their order, in an empty folder. README's table."""

import importlib
import pathlib
import re
import shlex

import pytest

from keras_tfm import models, tasks
from keras_tfm.cli import main
from keras_tfm.convert import huggingface, timm
from keras_tfm.tasks.images.image_families import FAMILIES

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "images.md"
README = PAGE.parents[1] / "README.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of the wheel")


def run_page(text):
    """What the page's code leaves in its variables; JSON is written to the file that it is about."""
    variables = {}
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language == "json":
            pathlib.Path("small.json").write_text(block, "utf-8")
        elif language == "python":
            exec(compile(block, PAGE.name, "exec"), variables)
        else:
            for line in block.splitlines():
                program, *words = shlex.split(line, comments=True)
                assert program == "keras-tfm"
                main(words)
    return variables


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = run_page(PAGE.read_text("utf-8"))
    assert sum(line.startswith('{"lying"') for line in capsys.readouterr().out.splitlines()) == 60
    assert tasks.load("runs/fine").image_shape == (48, 48, 3)
    assert "distilled_output" in tasks.load("runs/student").model.backbone.output
    assert found["vectors"].shape == (120, 32) and found["cosines"].shape == (1, 119)
    assert found["kernel"].shape == (32, 2) and found["found"].shape == (1,)
    assert type(tasks.load("runs/from-unlabelled").model.backbone) is models.ViT
    assert found["again"].class_names.tolist() == ["lying", "standing"]
    label = found["answer"]["label"].numpy()[0].decode()
    assert label in found["names"] and found["answer"]["probabilities"].shape == (1, 2)
    images = [found["image"].numpy()]
    again, first = (found[name].probabilities(images) for name in ("again", "classifier"))
    assert abs(again - first).max() < 1e-4


def test_the_table_of_families_is_whole():
    """It has every family that `--family` takes, and says of each whose checkpoints are read."""
    rows = re.findall(
        r"^\| `(\w+)` \| .* \| (-|timm|transformers|transformers, timm) \|$", README.read_text("utf-8"), re.M
    )
    others = {
        "clip",
        "conditionaldetr",
        "deformabledetr",
        "detr",
        "mask2former",
        "maskformer",
        "maxdeeplab",
        "medt",
        "rtdetr",
        "siglip",
        "smca",
        "vilbert",
        "visionencoderdecoder",
        "vitmae",
        "vivit",
    }
    assert {name.lower() for name, _ in rows} == {*FAMILIES, *others}
    readers = {
        "transformers": {huggingface.family_of_type(name).model for name in huggingface.TABLES},
        "timm": {importlib.import_module(f"keras_tfm.convert.{name}").TIMM.model for name in timm.FAMILIES},
    }
    for name, said in rows:
        known = [reader for reader, read in readers.items() if getattr(models, name) in read]
        assert said == (", ".join(known) or "-"), name
