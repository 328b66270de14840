"""`keras-tfm predict` of SavedModels."""

import base64
import json

import numpy as np
import PIL.Image
import pytest

from keras_tfm import serving
from tests.tasks.segmentation import test_segmenter
from tests.test_cli import run


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory):
    """The SavedModel of a segmenter with fresh weights."""
    folder = tmp_path_factory.mktemp("saved") / "segmenter"
    test_segmenter.make().export(folder)
    return folder


@pytest.fixture
def pictures(tmp_path):
    """A folder with two image files."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    values = np.random.default_rng(0).integers(0, 256, (2, 20, 30), "uint8")
    for name, picture in zip("ac", values, strict=True):
        PIL.Image.fromarray(picture).save(folder / f"{name}.png")
    return folder


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_pictures_in_answers_are_base64(segmenter, pictures, options, capsys):
    capsys.readouterr()
    assert run("predict", segmenter, "--data", pictures, *options) == 0
    lines = capsys.readouterr().out.splitlines()
    files = sorted(map(str, pictures.iterdir()))
    if options:
        records = [json.loads(line) for line in lines]
        assert [record["file"] for record in records] == files
        answers = [record["answer"] for record in records]
    else:
        assert [line.split("\t")[0] for line in lines] == files
        answers = [json.loads(line.split("\t")[1]) for line in lines]
    expected = serving.load(segmenter)(files)
    assert [base64.b64decode(answer["png"]) for answer in answers] == expected["png"].tolist()
    assert [answer["masks"] for answer in answers] == expected["masks"].tolist()
