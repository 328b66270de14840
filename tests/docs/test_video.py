"""The guides on videos: what the commands and code of each page leave behind, in order in an empty folder."""

import pytest

from keras_tfm import tasks
from keras_tfm.models import VideoMAE
from tests.docs.pages import ROOT, run

GUIDES = ROOT / "docs" / "guides"
pytestmark = [
    pytest.mark.skipif(not GUIDES.exists(), reason="the pages are not part of the wheel"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_videos(tmp_path, capsys):
    found = run(GUIDES / "video.md")
    lines = capsys.readouterr().out.splitlines()
    assert sum('.mp4\t{"moves left": ' in line for line in lines) == 10
    task = tasks.load("runs/shapes")
    assert task.video_shape == (8, 32, 32, 3)
    assert sum("\tshapes/" in line.replace(str(tmp_path) + "/", "") for line in lines) == 4
    assert type(tasks.load("runs/finer").model.backbone) is VideoMAE
    assert type(tasks.load("runs/captions")) is tasks.VideoCaptioner
    probabilities = task.probabilities([found["clip"]])
    assert abs(probabilities - found["answer"]["probabilities"]).max() < 1e-4


def test_objects_in_videos(tmp_path, capsys):
    found = run(GUIDES / "tracking.md")
    assert found["state"].shape == (4,) and not tasks.load("runs/tracker").kind.needs_box
    for file in ("answers/video-0000.txt", "drawn/video-0000.gif", "painted/0000.gif"):
        assert (tmp_path / file).stat().st_size > 0


def test_frames_to_come_and_frames_with_holes(tmp_path, capsys):
    run(GUIDES / "video_frames.md")
    for file in ("following/0000.gif", "whole/0000/0000.png", "beside/0000.gif"):
        assert (tmp_path / file).stat().st_size > 0
