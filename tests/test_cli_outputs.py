"""What commands write replaces no input, no part of a RUN, and no other file unless --overwrite names it."""

import io
import json
import os
import pathlib
import re

import pytest

from keras_tfm.cli import main
from keras_tfm.cli.console import Output
from keras_tfm.cli.outputs import pictures_in
from keras_tfm.tasks.images.drawing import new_pictures, picture_paths
from keras_tfm.training.store import CheckpointFolder

RUN = {
    "config.json": json.dumps({"keras_tfm": "0.1", "task": "classify"}),
    "model.safetensors": "weights",
    "checkpoints/step-00000004/state.json": "{}",
    "training.json": json.dumps({"task": "classify", "options": {}, "command": {}}),
}
EXPORT = {"serving.json": json.dumps({"keras_tfm": "0.1"}), "model.onnx": "graph"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The current folder: a RUN, an export, a corpus and links to them."""
    monkeypatch.chdir(tmp_path)
    files = {f"runs/x/{name}": text for name, text in RUN.items()}
    files |= {f"runs/y/{name}": text for name, text in RUN.items()}
    files |= {f"exported/{name}": text for name, text in EXPORT.items()}
    files |= {
        "corpus/c.txt": "a text\n",
        "corpus/run/empty": "",
        "photo.png": "a photo",
        "page.html": "a page",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "link").symlink_to("corpus/c.txt")
    (tmp_path / "linked").symlink_to("corpus")
    (tmp_path / "drawn").mkdir()
    (tmp_path / "drawn/metrics.csv").write_text("epoch,loss\n0,1.5\n")
    (tmp_path / "drawn/metrics.png").symlink_to("../photo.png")
    (tmp_path / "other").symlink_to("runs")
    os.link("corpus/c.txt", "hard.txt")
    os.mkfifo("pipe")
    return tmp_path


def content(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else ""
        for path in sorted(folder.rglob("*"))
        if path.name != ".lock"
    }


def refused(command, capsys):
    """The line with which a command ends that changes nothing."""
    before = content(folder := pathlib.Path.cwd())
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert stopped.value.code == 2 and content(folder) == before
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("export runs/x --out runs/x --overwrite", "runs/x: runs/x is read from there, and not replaced"),
        ("export runs/x --out other/x --overwrite", "other/x: runs/x is read from there"),
        ("export runs/x --out runs/y --overwrite", "runs/y is a RUN, which only another RUN replaces"),
        ("convert runs/x --to-huggingface runs/y --overwrite", "runs/y is a RUN, which only another RUN"),
        ("convert runs/x --to-timm runs/x --overwrite", "runs/x: runs/x is read from there"),
        ("convert runs/x --out runs/x --overwrite", "runs/x: runs/x is read from there"),
        ("quantize runs/x --out runs/x --overwrite", "runs/x: runs/x is read from there"),
        ("quantize runs/x --out runs --overwrite", "runs: runs/x is read from there"),
        ("demo --out runs/x --run runs/new", "runs/x is a RUN, which only another RUN replaces"),
        ("demo --out runs/x --run runs/x", "runs/x: runs/x is read from there, and not replaced"),
        ("quantize runs/x --out exported", "exported exists already: choose another name, or pass"),
        ("vectors --data corpus/c.txt --out corpus/c.txt --overwrite", "corpus/c.txt is read by this"),
        ("vectors --data corpus/c.txt --out hard.txt --overwrite", "hard.txt is read by this command"),
        ("vectors --data link --out hard.txt --overwrite", "hard.txt is read by this command"),
        ("vectors --data corpus/*.txt --out linked/c.txt --overwrite", "linked/c.txt is read by this"),
        ("vectors --data corpus --out linked/run/empty --overwrite", "linked/run/empty is read by"),
        ("vectors --data corpus --out link --overwrite", "link is a link, and a file is to be written"),
        ("vectors --data corpus --out pipe --overwrite", "pipe is a device or a pipe, and a file is to be"),
        ("vectors --data corpus --out /dev/null --overwrite", "/dev/null is a device or a pipe, and a file"),
        ("vectors --data corpus --out runs --overwrite", "runs is a folder, not a file: choose another name"),
        ("vectors --data corpus --out none/v.txt", "none/v.txt: the folder none does not exist"),
        ("vectors --data corpus --out photo.png/v.txt", "photo.png/v.txt: photo.png is a file, not a folder"),
        ("vectors --data corpus --out photo.png", "photo.png exists already: choose another name, or"),
        ("vectors --data corpus --out exported/model.onnx --overwrite", "model.onnx lies in .*/exported"),
        ("attention runs/x --text a --out page.html", "page.html exists already"),
        ("attention runs/x --text a --out runs/x/config.json --overwrite", "config.json lies in "),
        ("attention runs/x --text a --out other/y/checkpoints/step-00000004/state.json --overwrite",
         "state.json lies in .*runs/y, a RUN"),
        ("attention runs/x --image photo.png --out photo.png --overwrite", "photo.png is read by this comm"),
        ("plot runs/x --out photo.png", "photo.png exists already"),
        ("plot drawn", "drawn/metrics.png is a link, and a file is to be written"),
        ("plot runs/x --out runs/y/model.safetensors --overwrite", "model.safetensors lies in "),
        ("plot runs/x --out runs/y/new.png", "new.png lies in .*/runs/y, a RUN or an export"),
        ("evaluate runs/x --data corpus/c.txt --errors runs/x/e.csv", "e.csv lies in .*/runs/x, a RUN or an"),
        ("evaluate runs/x --data corpus/c.txt --plot other/x/e.png", "e.png lies in .*/runs/x, a RUN or an"),
        ("predict runs/x --data corpus/c.txt --out exported/e.csv", "e.csv lies in .*/exported, a RUN or an"),
        ("train classify --data corpus/c.txt --from runs/x --out runs/x --overwrite", "/runs/x is read"),
        ("train classify --data corpus/c.txt --options runs/y/training.json --out runs/y --overwrite",
         "runs/y: runs/y/training.json is read from there, and not replaced"),
        ("train classify --data corpus/c.txt --out runs/y --overwrite "
         "--config other/y/checkpoints/step-00000004/state.json",
         "runs/y: other/y/checkpoints/.*state.json is read from there"),
        ("train masked-lm --data corpus/c.txt --tokenizer runs/y --out runs/y --overwrite",
         "/runs/y is read from there|runs/y: runs/y is read"),
        ("train classify-images --data corpus --teacher runs/y --out runs/y --overwrite", "/runs/y is read"),
        ("train generate-images --data corpus --family gpt --codes runs/y --out runs/y --overwrite",
         "/runs/y is read"),
        ("train generate-images --data corpus --family imagen --small runs/y --out runs/y --overwrite",
         "/runs/y is read"),
        ("train generate-images --data corpus --family imagen --text-encoder runs/y --out runs/y --overwrite",
         "/runs/y is read"),
        ("train classify --data corpus --out corpus/new", "folder outside of --data .*/corpus, got"),
        ("train classify --data corpus --out linked/new", "folder outside of --data .*/corpus, got"),
        ("train translate --data a.txt --valid corpus --out corpus/new", "outside of --valid .*/corpus, g"),
    ],
)  # fmt: skip
def test_what_an_output_may_not_replace(place, capsys, command, message):
    line = refused(command, capsys)
    assert re.search(message, line), line


@pytest.mark.parametrize(
    "command",
    [
        "train classify --data corpus/c.txt --out runs/y --overwrite",
        "train recommend --data corpus/c.txt --out runs/y --overwrite",
        "quantize runs/x --out runs/y --overwrite",
        "convert runs/x --out runs/y --overwrite",
    ],
)
def test_a_run_that_is_training_is_not_replaced(place, capsys, command):
    training = CheckpointFolder("runs/y/checkpoints")
    training.lock()
    try:
        assert "another process is training there" in refused(command, capsys)
    finally:
        training.unlock()


def test_pictures_never_take_the_place_of_their_images(place):
    images = ["a/x.png", "b/x.jpg", "b/x-000001.png", b"", "link"]
    names = [path.name for path in picture_paths(images, "out")]
    assert names == ["x.png", "x-000001.png", "x-000001-000002.png", "000003.png", "link.png"]
    with pytest.raises(ValueError, match=r"photo\.png: expected another folder than the images'"):
        new_pictures(["corpus/photo.jpg", "photo.png"], ".")
    assert new_pictures(["photo.png"], "new") == [pathlib.Path("new/photo.png")]
    assert os.path.isdir("new") and (place / "photo.png").read_text() == "a photo"


def test_folders_of_frames_are_not_replaced(place):
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="linked/run exists already: choose another folder"):
            pictures_in({"filled": "linked"}, ["run.mp4"], "run.mp4", overwrite, {"filled": ""})


def test_pictures_are_not_put_into_a_run(place):
    for folder in ("runs/x", "runs/x/drawn"):
        with pytest.raises(FileExistsError, match=r"lies in .*/runs/x, a RUN or an export"):
            pictures_in({"draw": folder}, ["photo.png"], "photo.png")


def test_names_of_pictures_have_room_in_the_folder():
    (name,) = [path.name for path in picture_paths(["я" * 300], "out")]
    assert name.removesuffix(".png") == "я" * 100


def test_output_takes_names_that_are_no_unicode():
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8")
    output = Output(stream)
    print("a\udcff.png", "b", file=output)
    output.flush()
    assert stream.buffer.getvalue() == b"a?.png b\n"


NAMES = ["[1]", "a*", "b?", "c\\d", "\udcff"]


@pytest.mark.parametrize("name", NAMES)
def test_names_under_which_tensorflow_finds_nothing(place, capsys, name):
    """Refused before data are read, or a RUN; other formats take them, and other tasks."""
    for command in (["train", "classify", "--data", "missing"], ["export", "runs/x"]):
        with pytest.raises(SystemExit):
            main([*command, "--out", name])
        assert "TensorFlow finds no files under a name with *, ?, [" in capsys.readouterr().err
    for command in (["train", "recommend", "--data", "missing"], ["export", "runs/x", "--format", "onnx"]):
        with pytest.raises(SystemExit):
            main([*command, "--out", name])
        assert "TensorFlow" not in capsys.readouterr().err
    assert not os.path.exists(name)


def test_a_name_that_the_disk_does_not_take(place, capsys):
    assert "File name too long" in refused(f"train classify --data missing --out {'x' * 256}", capsys)
