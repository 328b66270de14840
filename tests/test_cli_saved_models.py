"""`keras-tfm predict` of SavedModels."""

import base64
import json

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving
from keras_tfm.models import Autoregressive, AutoregressiveConfig
from keras_tfm.tasks import Forecaster, ForecasterConfig, TextGenerator
from tests.tasks.segmentation import test_segmenter
from tests.tasks.tiny import TINY
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


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_broken_file_costs_no_other_its_answer(segmenter, pictures, options, capsys):
    """It is refused by its header before anything is computed, or by the model."""
    whole = (pictures / "a.png").read_bytes()
    (pictures / "b.png").write_bytes(whole[: len(whole) // 2])
    (pictures / "d.png").write_bytes(b"no image")
    capsys.readouterr()
    assert run("predict", segmenter, "--data", pictures, *options) == 0
    output = capsys.readouterr()
    read = json.loads if options else lambda line: line.partition("\t")[2] and {"answer": line}
    answers = [read(line) for line in output.out.splitlines()]
    assert [bool(answer and answer["answer"]) for answer in answers] == [True, False, True, False]
    assert f"{pictures / 'b.png'} gets an empty line: Invalid PNG data" in output.err
    assert f"{pictures / 'd.png'} gets an empty line: expected a whole PNG or JPEG image" in output.err
    assert "row " not in output.err


def test_a_table_holds_the_answers_beside_a_broken_file(segmenter, pictures, tmp_path):
    whole = (pictures / "a.png").read_bytes()
    (pictures / "b.png").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "answers.jsonl"
    assert run("predict", segmenter, "--data", pictures, "--out", out, "--batch-size", "2") == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["answer"] is None for row in rows] == [False, True, False]


def test_prompts_that_do_not_fit_are_refused(tmp_path, capsys):
    task = TextGenerator.from_texts(["to be or not to be"] * 4, tokenizer="characters", **TINY, max_length=16)
    task.export(tmp_path / "served", max_new_tokens=4)
    served, prompts = serving.load(tmp_path / "served"), ["to", "to be or not to be", "be"]
    with pytest.raises(ValueError, match=r"^A prompt has more than 12 tokens\.$"):
        served(prompts)
    (tmp_path / "prompts.txt").write_text("\n".join(prompts))
    capsys.readouterr()
    assert run("predict", tmp_path / "served", "--data", tmp_path / "prompts.txt") == 0
    output = capsys.readouterr()
    expected = served(prompts[::2])["text"].tolist()
    assert output.out.splitlines() == [expected[0], "", expected[1]]
    assert "line 2 gets an empty line: A prompt has more than 12 tokens." in output.err


def test_series_are_lines_of_numbers(tmp_path, capsys):
    task = Forecaster(Autoregressive(AutoregressiveConfig(2)), ForecasterConfig(mean=5.0, scale=7.0))
    task.export(tmp_path / "served")
    lines = ["1,2,4", "3 5", "a,b", "7", "1,nan"]
    (tmp_path / "series.txt").write_text("\n".join(lines))
    capsys.readouterr()
    assert run("predict", tmp_path / "served", "--data", tmp_path / "series.txt") == 0
    output = capsys.readouterr()
    answers = [line and json.loads(line)["forecast"] for line in output.out.splitlines()]
    for answer, values in zip(answers, ([1, 2, 4], [3, 5]), strict=False):
        np.testing.assert_allclose(answer, task.forecast(values), rtol=1e-5)
    assert answers[2:] == ["", "", ""]
    assert "line 3 gets an empty line: expected finite numbers, got 'a,b'" in output.err
    assert "line 4 gets an empty line: A history needs 2 values or more" in output.err
    assert "line 5 gets an empty line: expected finite numbers, got '1,nan'" in output.err


@pytest.mark.parametrize(
    "inputs", [{"frame_bytes": [None, 8]}, {"image_bytes": [None], "reference_bytes": [None]}]
)
def test_what_no_line_or_file_gives_is_refused_by_name(inputs, tmp_path, capsys):
    """A clip of a video is chosen before its frames are handed over."""
    specs = {name: tf.TensorSpec(shape, tf.string, name) for name, shape in inputs.items()}
    module = tf.Module()
    module.count = tf.function(lambda **files: {"label": tf.strings.length(next(iter(files.values())))})
    signatures = {"serving_default": module.count.get_concrete_function(**specs)}
    tf.saved_model.save(module, tmp_path / "served", signatures)
    (tmp_path / "video.mp4").write_bytes(b"video")
    capsys.readouterr()
    assert run("predict", tmp_path / "served", "--data", tmp_path / "video.mp4") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"takes {', '.join(sorted(inputs))}, which no line or file gives" in line
