"""Captions on the command line: train, evaluate, predict, convert and export, from a folder of images."""

import json

import pytest

from keras_tfm import tasks
from tests.tasks.image_text.test_captioner import CHANGES, DECODERS
from tests.tasks.image_text.test_matcher import SENTENCES, drawn
from tests.test_cli import run
from tests.test_cli_match import write_images


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder of 16 images, a text beside each, and a broken image with a text."""
    folder = tmp_path_factory.mktemp("world")
    for path, text in zip(write_images(folder, drawn(SENTENCES).images), SENTENCES, strict=True):
        path.with_suffix(".txt").write_text(f"{text}\n")
    (folder / "broken.png").write_bytes(b"\x89PNG")
    (folder / "broken.txt").write_text("nothing")
    changes = CHANGES | {"decoder_config": DECODERS["gpt2"]}
    (folder.parent / "changes.json").write_text(json.dumps(changes))
    return folder


@pytest.mark.slow
def test_train_evaluate_predict_convert(world, tmp_path, capsys):
    out = tmp_path / "captioner"
    options = "--config", world.parent / "changes.json", "--vocabulary", 300, "--max-length", 40
    train = "--data", world, "--epochs", 1, "--batch-size", 8, "--out", out
    assert run("train", "caption", *train, *options) == 0
    capsys.readouterr()
    assert run("evaluate", out, "--data", world) == 0
    output = capsys.readouterr()
    measures = json.loads(output.out)
    assert measures["pairs"] == 16 and {"bleu", "chrf", "exact_match"} <= measures.keys()
    assert "1 of 17 images are skipped: broken.png" in output.err
    asked = "predict", out, "--data", world / "0*.png", "--max-new-tokens", 5
    assert run(*asked, "--beam", 2) == 0
    assert len(capsys.readouterr().out.splitlines()) == 10
    assert run("convert", out, "--to-huggingface", tmp_path / "theirs") == 0
    assert run("convert", tmp_path / "theirs", "--out", tmp_path / "back") == 0
    assert type(tasks.load(tmp_path / "back")) is tasks.Captioner
