"""docs/guides/images.md: what its commands and code leave behind, run in their order in an empty folder."""

import pytest

from keras_tfm import models, tasks
from tests.docs.pages import ROOT, run

PAGE = ROOT / "docs" / "guides" / "images.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of the wheel")


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = run(PAGE)
    assert sum('\t{"lying"' in line for line in capsys.readouterr().out.splitlines()) == 60
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
