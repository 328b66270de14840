"""Labelled texts and tagged words out of files, and what is refused, by file and line."""

import gzip

import pytest

from keras_tfm.data import DataError, Layout
from keras_tfm.data.sources.labelled import (
    read_labelled_texts,
    read_tagged_words,
    read_unlabelled_texts,
    read_unlabelled_words,
)
from tests.data.sources.parts import parts


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


def test_rows_to_answer_are_texts_or_pairs_as_the_header_says(tmp_path):
    pairs = written(tmp_path, "a.csv", "id,premise,hypothesis,label\n7,a,b,x\n")
    texts = written(tmp_path, "b.tsv", "text\tlabel\na\tx\n")
    for path, columns, expected in (
        (pairs, None, [("a", "b")]),
        (pairs, ["hypothesis", "label"], ["b"]),
        (pairs, [2, 1], [("b", "a")]),
        (texts, None, ["a"]),
        (written(tmp_path, "c.tsv", "a\tb\tx\n"), None, [("a", "b")]),
        (written(tmp_path, "d.txt", "a\tb\n"), None, ["a\tb"]),  # whoever reads the line splits it
    ):
        assert parts(read_unlabelled_texts(path, columns, pairs=None))[0] == expected
    with pytest.raises(DataError, match="expected one text in a row, got premise and hypothesis: choose one"):
        read_unlabelled_texts(pairs)
    assert parts(read_unlabelled_texts(pairs, ["premise"]))[0] == ["a"]
    with pytest.raises(DataError, match="of one text or of two: choose these by --columns"):
        read_unlabelled_texts(written(tmp_path, "e.tsv", "a\tb\n"), pairs=None)


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


ANNA = [["Anna", "visited", "Rome"]], [["B-PER", "O", "B-LOC"]]
UNIVERSAL = "\tAnna\tAnna\tPROPN\t_\t_\t2\tnsubj\t_\t_\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Comments that open a sentence, with other counts of columns and with the same.
        ("# id 5f0a\tdomain=en\nAnna _ _ B-PER\nvisited _ _ O\nRome _ _ B-LOC\n", ANNA),
        ("# id 5f0a domain=en\nAnna _ _ B-PER\nvisited _ _ O\nRome _ _ B-LOC\n", ANNA),
        ("# newdoc\n# id\nAnna B-PER\nvisited O\nRome B-LOC\n\n# end\n", ANNA),
        ("#begin document (bc/1); 0\nAnna _ B-PER\nvisited _ O\nRome _ B-LOC\n\n#end document\n", ANNA),
        # Words of #.
        ("# O\nAnna B-PER\n#tag O\n# O\n\n#tag O\n",
         ([["#", "Anna", "#tag", "#"], ["#tag"]], [["O", "B-PER", "O", "O"], ["O"]])),
        ("# O\n\n# O\n", ([["#"], ["#"]], [["O"], ["O"]])),
        # A first column that counts.
        ("#\thttp://a.org\t[2009]\n1\tAnna\tB-PER\tO\n2\tvisited\tO\tO\n3\tRome\tB-LOC\tO\n", ANNA),
        ("0 Anna NNP B-PER\n1 visited VBD O\n2 Rome NNP B-LOC\n", ANNA),
        ("1 Anna B-X\n2 ran O\n\n1 Anna B-X\n", ([["Anna", "ran"], ["Anna"]], [["B-X", "O"], ["B-X"]])),
        ("# text = Anna can't\n" + "".join(x + UNIVERSAL for x in ("1", "2-3", "2", "2.1", "3")),
         ([["Anna"] * 3], [["PROPN"] * 3])),
        # Numbers that count nothing.
        ("1 CD O\n2 CD O\n2 CD O\n", ([["1", "2", "2"]], [["O"] * 3])),
        ("1 CD O\n\n1 CD O\n", ([["1"], ["1"]], [["O"], ["O"]])),
        ("1 O\n2 O\n", ([["1", "2"]], [["O", "O"]])),
        # Spaces and marks that are no ASCII belong to words.
        ("Anna  B-PER\n10\u00a0000 O\n\u0085 O\n\ufeff O\n",
         ([["Anna", "10\u00a0000", "\u0085", "\ufeff"]], [["B-PER", "O", "O", "O"]])),
        ("Anna\tB-PER\n\u00a0\tO\n \t\u3000\n\ufeffRome\tB-LOC\n",
         ([["Anna", "\u00a0"], ["Rome"]], [["B-PER", "O"], ["B-LOC"]])),
        ("\ufeffAnna B-PER\r\nvisited O\r\nRome B-LOC\r\n\r\n", ANNA),
    ],
)  # fmt: skip
def test_conll_files_as_they_are_published(tmp_path, text, expected):
    path = tmp_path / "a.conll"
    path.write_bytes(text.encode())
    assert read_tagged_words(path) == expected
    labels = sorted({tag for tags in expected[1] for tag in tags})
    words, places = parts(read_unlabelled_words(path, labels))
    assert words == expected[0] and places[0] == "sentence 1"


def test_columns_of_conll_files_are_chosen_by_position(tmp_path):
    path = written(tmp_path, "a.conll", "1 Anna NNP B-PER\n2 ran VBD O\n")
    assert read_tagged_words(path).tags == [["B-PER", "O"]]
    assert read_tagged_words(path, [1, 2]) == ([["Anna", "ran"]], [["NNP", "VBD"]])
    assert read_tagged_words(path, ["0", "3"]).words == [["1", "2"]]
    for columns in ([2], [2, 1]):
        assert parts(read_unlabelled_words(path, [], columns))[0] == [["NNP", "VBD"]]
    for columns, message in (
        ([0, 4], "line 1: expected column 4 .from 0., got 4 columns"),
        (["word", "tag"], "--columns: expected positions from 0 in this text, got word, tag"),
        (Layout([0, 1], header=True), "--header: only for .tsv and .csv files"),
    ):
        with pytest.raises(DataError, match=message):
            read_tagged_words(path, columns)
    table = written(tmp_path, "a.jsonl", '{"words": ["Anna"], "tags": ["O"], "other": ["ran"]}\n')
    assert parts(read_unlabelled_words(table, ["O"], ["other"]))[0] == [["ran"]]
    with pytest.raises(DataError, match=r"column 2 .from 0., which holds _ alone; choose"):
        read_tagged_words(written(tmp_path, "b.conll", "Anna O _\nran O _\n"))


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
