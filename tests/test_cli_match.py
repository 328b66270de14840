"""Images and texts on the command line: train, evaluate, labels without training, an index of images."""

import json

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.tasks.images.image_index import ImageIndex
from tests.data.sources.made_videos import write_video
from tests.tasks.image_text.test_matcher import CHANGES, SENTENCES, drawn
from tests.tasks.image_text.test_video_texts import PARTS, TOWERS, pairs
from tests.test_cli import run


def write_images(folder, images):
    """The paths of the images, 00.png, 01.png, ..., that are written to the folder."""
    paths = [folder / f"{number:02d}.png" for number in range(len(images))]
    for path, image in zip(paths, images, strict=True):
        path.write_bytes(tf.io.encode_png(image).numpy())
    return paths


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder of 16 images twice, a table of them and their sentences, and a broken image."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "photos").mkdir()
    images, texts = drawn(SENTENCES * 2)
    paths = write_images(folder / "photos", images)
    rows = [f"photos/{path.name}\t{text}\n" for path, text in zip(paths, texts, strict=True)]
    (folder / "pairs.tsv").write_text("".join([*rows, "photos/none.png\tnothing\n"]))
    (folder / "changes.json").write_text(json.dumps(CHANGES))
    (folder / "labels.txt").write_text("red\nblue\n")
    return folder


@pytest.fixture(scope="module")
def trained(world, tmp_path_factory):
    """The RUN that `train match-images` wrote."""
    out = tmp_path_factory.mktemp("runs") / "matcher"
    sizes = "--config", world / "changes.json", "--vocabulary", 600, "--max-length", 12
    options = "--epochs", 1, "--batch-size", 8, *sizes, "--out", out
    assert run("train", "match-images", "--data", world / "pairs.tsv", *options) == 0
    return out


@pytest.mark.slow
def test_train_evaluate_predict_convert(world, trained, tmp_path, capsys):
    assert run("evaluate", trained, "--data", world / "pairs.tsv") == 0
    output = capsys.readouterr()
    measures = json.loads(output.out)
    assert measures["pairs"] == 32 and 0 <= measures["text_recall_1"] <= measures["text_recall_10"] <= 1
    assert "1 of 33 images are skipped: photos/none.png" in output.err
    assert run("predict", trained, "--data", world / "photos") == 0
    lines = capsys.readouterr().out.splitlines()  # a file's name, and its vector
    assert [len(line.split()) for line in lines] == [17] * 32
    assert run("convert", trained, "--to-huggingface", tmp_path / "theirs") == 0
    assert run("convert", tmp_path / "theirs", "--out", tmp_path / "back") == 0
    assert type(tasks.load(tmp_path / "back")) is tasks.ImageTextMatcher


@pytest.mark.slow
def test_labels_without_training(world, trained, capsys, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    images = world / "photos" / "0*.png", tmp_path / "broken.png", world / "photos" / "10.png"
    asked = "classify-zero-shot", trained, "--labels", world / "labels.txt", "--data", *images
    assert run(*asked, "--template", "The {} half is top.", "{}") == 0
    output = capsys.readouterr()
    rows = [line.split("\t") for line in output.out.splitlines()]
    names = [*(world / "photos" / f"{number:02d}.png" for number in range(11))]
    assert [row[0] for row in rows] == list(map(str, names)) and {row[1] for row in rows} <= {"red", "blue"}
    assert "1 of 12 images are skipped" in output.err and "broken.png" in output.err
    assert run(*asked, "--json") == 0
    answers = list(map(json.loads, capsys.readouterr().out.splitlines()))
    task = tasks.load(trained)
    expected = task.probabilities(
        task.encode_images(list(map(str, names))), task.encode_labels(["red", "blue"])
    )
    found = [[answer["probabilities"][label] for label in ("red", "blue")] for answer in answers]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert run(*asked, "--template", "word " * 30 + "{}") == 0
    assert "2 of 2 texts exceed 12 tokens and are cut there" in capsys.readouterr().err


@pytest.mark.slow
def test_an_index_is_made_grows_and_is_asked(world, trained, tmp_path, capsys):
    index = tmp_path / "index"
    assert run("search", "index", trained, "--data", world / "photos" / "0*.png", "--out", index) == 0
    assert f"10 images are new; {index} now has 10\n" in capsys.readouterr().err
    before = {path: path.stat().st_mtime_ns for path in index.iterdir()}
    assert run("search", "index", trained, "--data", world / "photos", "--out", index) == 0
    assert f"22 images are new; {index} now has 32\n" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    text = "The red half is top."
    assert run("search", "query", index, "--text", text, "--top", 3) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    task, paths = tasks.load(trained), sorted(map(str, (world / "photos").iterdir()))
    cosines = task.similarity(paths, [text])[:, 0]
    order = np.argsort(-cosines, kind="stable")[:3]
    np.testing.assert_allclose([float(score) for score, _ in rows], cosines[order], atol=1e-3)
    assert len(rows) == 3 and set(path for _, path in rows) <= set(paths)
    assert run("search", "query", index, "--image", paths[4], "--top", 1) == 0
    assert capsys.readouterr().out.startswith("1.0000\t")
    again = "search", "index", trained, "--data", world / "photos", "--out", index, "--graph"
    assert run(*again) == 0
    output = capsys.readouterr().err
    assert "0 images are new" in output and "no graph was written: it needs at least 10,000 vectors" in output
    ImageIndex(index).connect(least=32)
    for options in ((), ("--exact",)):
        assert run("search", "query", index, "--text", text, "--top", 3, *options) == 0
        assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == rows


@pytest.mark.slow
def test_an_index_knows_its_model(world, trained, tmp_path, capsys):
    index, task, text = tmp_path / "index", tasks.load(trained), "The red half is top."
    image = world / "photos" / "00.png"
    assert run("search", "index", trained, "--data", image, "--out", index) == 0
    capsys.readouterr()
    # The model is moved, and asked for where it is.
    task.save(tmp_path / "moved")
    config = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps(config | {"model": "/nowhere/run"}))
    assert run("search", "query", index, "--text", text) == 2
    assert "its model is no longer at /nowhere/run: give its place by --model" in capsys.readouterr().err
    assert run("search", "query", index, "--text", text, "--model", tmp_path / "moved") == 0
    # Another model, and another width.
    weight = task.model.weights[0]
    weight.assign(weight * 1.5)
    task.save(tmp_path / "other")
    capsys.readouterr()
    assert run("search", "query", index, "--text", text, "--model", tmp_path / "other") == 2
    assert "made by another model" in capsys.readouterr().err
    assert run("search", "index", tmp_path / "other", "--data", image, "--out", index) == 2
    assert "made by another model" in capsys.readouterr().err


@pytest.mark.slow
def test_videos_are_matched_captioned_and_searched(tmp_path, capsys):
    videos, texts = pairs(6)
    (tmp_path / "clips").mkdir()
    for number, video in enumerate(videos):
        write_video(tmp_path / "clips" / f"{number}.avi", video.repeat(4, axis=1).repeat(4, axis=2))
    (tmp_path / "clips" / "sound.mp4").write_bytes(b"no video")
    rows = [f"clips/{number}.avi\t{text}\n" for number, text in enumerate(texts)]
    (tmp_path / "pairs.tsv").write_text("".join([*rows, "clips/sound.mp4\tnothing\n"]))
    (tmp_path / "towers.json").write_text(json.dumps(TOWERS))
    (tmp_path / "parts.json").write_text(json.dumps(PARTS))
    shared = "--data", tmp_path / "pairs.tsv", "--epochs", 1, "--batch-size", 2, "--num-frames", 4
    sizes = "--config", tmp_path / "towers.json", "--vocabulary", 600, "--max-length", 12
    out = tmp_path / "matcher"
    assert run("train", "match-images", *shared, *sizes, "--family", "clip4clip", "--out", out) == 0
    assert "1 of 7 videos are skipped" in capsys.readouterr().err
    assert type(tasks.load(out)) is tasks.VideoTextMatcher
    index = tmp_path / "index"
    assert run("search", "index", out, "--data", tmp_path / "clips", "--out", index) == 0
    error = capsys.readouterr().err
    assert f"6 videos are new; {index} now has 6" in error and "1 of 7 videos are skipped" in error
    clip = tmp_path / "clips" / "2.avi"
    assert run("search", "query", index, "--video", clip, "--top", 1) == 0
    assert capsys.readouterr().out.startswith("1.0000\t")
    assert run("search", "query", index, "--text", texts[0], "--top", 2) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    sizes = "--config", tmp_path / "parts.json", "--vocabulary", 300, "--max-length", 32
    out = tmp_path / "captioner"
    assert (
        run("train", "caption", *shared, *sizes, "--encoder", "vivit", "--frame-step", 1, "--out", out) == 0
    )
    assert run("evaluate", out, "--data", tmp_path / "pairs.tsv", "--max-new-tokens", 4) == 0
    assert json.loads(capsys.readouterr().out)["pairs"] == 6
    assert run("predict", out, "--data", clip, "--max-new-tokens", 4) == 0
    assert "2.avi\t" in capsys.readouterr().out
