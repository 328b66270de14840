"""docs/guides/video.md: what its commands and code leave behind, run in their order in an empty folder."""

import pytest

from keras_tfm import tasks
from keras_tfm.models import VideoMAE
from tests.docs.pages import ROOT, run

PAGE = ROOT / "docs" / "guides" / "video.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of the wheel")


@pytest.mark.slow
def test_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = run(PAGE)
    lines = capsys.readouterr().out.splitlines()
    assert sum('.mp4\t{"moves left": ' in line for line in lines) == 10
    task = tasks.load("runs/shapes")
    assert task.video_shape == (8, 32, 32, 3)
    assert sum("\tshapes/" in line.replace(str(tmp_path) + "/", "") for line in lines) == 4
    assert type(tasks.load("runs/finer").model.backbone) is VideoMAE
    assert type(tasks.load("runs/captions")) is tasks.VideoCaptioner
    chances = task.probabilities([found["clip"]])
    assert abs(chances - found["answer"]["probabilities"]).max() < 1e-4
    assert found["state"].shape == (4,) and not tasks.load("runs/tracker").kind.needs_box
    for file in ("answers/video-0000.txt", "drawn/video-0000.gif"):
        assert (tmp_path / file).stat().st_size > 0
