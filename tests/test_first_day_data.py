"""The files for benchmarks/first_day.py: what tasks read in them, and which rows a size has."""

import gzip
import importlib
import itertools
import json
import lzma
import pathlib

import numpy as np
import PIL.Image
import pytest

from keras_tfm.tasks import Detector, Segmenter

FOLDER = pathlib.Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="benchmarks/ is not part of the wheel")


@pytest.fixture
def data(monkeypatch):
    """The module, for sizes of a test."""
    monkeypatch.syspath_prepend(FOLDER.parent)
    module = importlib.import_module("benchmarks.first_day_data")
    monkeypatch.setattr(module, "SIZES", (3, 6))
    return module


def lines_of(path):
    return path.read_text("utf-8").splitlines()


def test_a_size_is_the_beginning_of_the_next(data, tmp_path):
    rows = [f"phrase {i}\t{i % 2}" for i in range(8)]
    with lzma.open(tmp_path / "train.tsv.xz", "wt") as file:
        file.write("\n".join(["sentence\tlabel", *rows]))
    other = tmp_path / "dev.tsv"
    other.write_text("sentence\tlabel\nfine\t1\n")
    data.phrases(tmp_path, tmp_path / "train.tsv.xz", other, other)
    header, *small = lines_of(tmp_path / "3.tsv")
    assert header == "sentence\tlabel" and lines_of(tmp_path / "6.tsv")[:4] == [header, *small]
    assert len(lines_of(tmp_path / "6.tsv")) == 7 and set(small) < set(rows) and small != rows[:3]
    assert lines_of(tmp_path / "choose.tsv") == lines_of(tmp_path / "test.tsv") == lines_of(other)


def test_pairs_stay_pairs(data, tmp_path):
    for name in ("train", "val", "test_2016_flickr"):
        for language in ("de", "en"):
            with gzip.open(tmp_path / f"{name}.{language}.gz", "wt") as file:
                file.write("".join(f"{name} {i}\n" for i in range(8)))
    data.translations(tmp_path, tmp_path)
    german, english = (lines_of(tmp_path / f"6.{language}") for language in ("de", "en"))
    assert german == english and len(set(german)) == 6 and german[:3] == lines_of(tmp_path / "3.de")
    assert lines_of(tmp_path / "choose.de")[0] == "val 0"
    assert lines_of(tmp_path / "test.en")[0] == "test_2016_flickr 0"


def test_detect_and_segment_read_the_same_lines(data, tmp_path):
    data.digits(tmp_path, 6)
    read = Detector.read_files([tmp_path / "6.jsonl"]), Segmenter.read_files([tmp_path / "6.jsonl"])
    assert [len(examples.images) for examples in read] == [6, 6]
    first = json.loads(lines_of(tmp_path / "6.jsonl")[0])
    mask = np.asarray(PIL.Image.open(tmp_path / first["mask"]))
    left, top, right, bottom = map(int, first["boxes"][0])
    assert set(np.unique(mask[top:bottom, left:right])) & {int(first["labels"][0]) + 1}


def test_names_in_sentences_are_spans(data, tmp_path):
    data.slots(tmp_path)
    sentences = tmp_path.joinpath("6.conll").read_text("utf-8").split("\n\n")
    assert len(sentences) == 6 and sentences[:2] == tmp_path.joinpath("3.conll").read_text().split("\n\n")[:2]
    for sentence in sentences:
        tags = ["O", *(line.split("\t")[1] for line in sentence.splitlines())]
        for before, tag in itertools.pairwise(tags):
            assert not tag.startswith("I-") or before[2:] == tag[2:]
