"""Labelled texts and tagged words out of files, and what is refused, by file and line."""

import gzip

import pytest

from keras_tfm.data import DataError
from keras_tfm.data.sources.labelled import read_labelled_texts, read_tagged_words


def written(folder, name, text):
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_tables_of_texts_and_labels(tmp_path):
    tsv = written(tmp_path, "a.tsv", "sentence\tlabel\nit 's a charm . \t1\nbleak\t0\n")
    assert read_labelled_texts(tsv) == (["it 's a charm . ", "bleak"], ["1", "0"])
    csv = written(tmp_path, "b.csv", 'id,premise,hypothesis,label\n7,"a, b",c,entails\n')
    assert read_labelled_texts(csv) == ([("a, b", "c")], ["entails"])
    assert read_labelled_texts(csv, ["hypothesis", "label"]) == (["c"], ["entails"])
    assert read_labelled_texts(csv, ["2", "1", "3"]) == ([("c", "a, b")], ["entails"])
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a", "label": 2}\n'))
    assert read_labelled_texts([tmp_path / "c.jsonl.gz", tsv]) == (
        ["a", "it 's a charm . ", "bleak"],
        ["2", "1", "0"],
    )


def test_several_labels_and_numbers(tmp_path):
    lines = '{"text": "a", "labels": ["x", "y"]}\n{"text": "b", "labels": []}\n'
    path = written(tmp_path, "a.jsonl", lines)
    assert read_labelled_texts(path, problem="multi-label").labels == [["x", "y"], []]
    path = written(tmp_path, "b.tsv", "a\tx, y\nb\t\n")
    assert read_labelled_texts(path, problem="multi-label").labels == [["x", "y"], []]
    path = written(tmp_path, "c.tsv", "a\t2.5\nb\t-1e3\n")
    assert read_labelled_texts(path, problem="regression").labels == [2.5, -1000.0]


@pytest.mark.parametrize(
    ("name", "text", "problem", "message"),
    [
        ("a.tsv", "", "classes", "expected labelled texts, the file is empty"),
        ("a.tsv", "a\tb\tc\n", "classes", "line 1: expected 2 columns, text and label, got 3; choose two"),
        ("a.tsv", "a\tb\nc\n", "classes", "line 2: expected 2 columns, got 1"),
        ("a.tsv", "a\tb\n \tb\n", "classes", "line 2: expected a text, the text is empty"),
        ("a.tsv", "a\tb\nc\t \n", "classes", "line 2: expected a label, got ' '"),
        ("a.tsv", "a\t1\nb\tnan\n", "regression", "line 2: expected a number as the label, got 'nan'"),
        (
            "a.jsonl",
            '{"text": "a", "label": 1}\n{"text": "b", "label": 1' + "0" * 400 + "}\n",
            "regression",
            "line 2: expected a number as the label, got 1000",
        ),
        ("a.jsonl", '{"text": "a", "label": ["x"]}\n', "classes", "line 1: expected a label, got ['x']"),
        ("a.jsonl", '{"text": "a", "label": 1}\n', "multi-label", "line 1: expected names of labels, got 1"),
        ("a.txt", "a b\n", "classes", "expected a .tsv, .csv, .jsonl or .parquet file or tfds:NAME"),
    ],
)
def test_bad_tables_are_named_with_line_and_reason(tmp_path, name, text, problem, message):
    path = written(tmp_path, name, text)
    with pytest.raises(DataError) as error:
        read_labelled_texts(path, problem=problem)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_conll_columns(tmp_path):
    text = "-DOCSTART- -X- O O\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n\n\nPeter NNP I-NP B-PER\n"
    expected = ([["EU", "rejects"], ["Peter"]], [["B-ORG", "O"], ["B-PER"]])
    assert read_tagged_words(written(tmp_path, "a.conll", text)) == expected
    tabbed = written(tmp_path, "b.conll", "New York\tB-LOC\n\t\n\ufeffis\tO\n\ufeff\n")
    assert read_tagged_words(tabbed) == ([["New York"], ["is"]], [["B-LOC"], ["O"]])
    for bad, message in (
        ("a O\nb\n", "line 2: expected 2 columns, got 1"),
        ("a\n", "line 1: expected two or more columns, got 1"),
        ("\n\n", "expected tagged words, the file has none"),
    ):
        with pytest.raises(DataError, match=message):
            read_tagged_words(written(tmp_path, "bad", bad))
