"""A word per row: what a sentence is, which columns are read, and what is refused."""

import pytest

from keras_tfm.data import DataError, Layout, read_tagged_words
from keras_tfm.data.sources.labelled import read_unlabelled_words
from tests.data.sources.parts import parts

WORDS, TAGS = [["Ada", "met", "Bob"], ["He", "ran"]], [["B-P", "O", "B-P"], ["O", "O"]]
ROWS = [("1", "Ada", "B-P"), ("1", "met", "O"), ("1", "Bob", "B-P"), ("2", "He", "O"), ("2", "ran", "O")]


def table(separator, header, cells, gap=False):
    lines = [separator.join(header)] if header else []
    for row in ROWS:
        named = dict(zip(("sentence", "word", "tag"), row, strict=True), other="x")
        lines += [""] * (gap and row[1] == "He") + [separator.join(named[name] for name in cells)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", ["csv", "tsv"])
@pytest.mark.parametrize(
    ("header", "cells", "gap", "columns"),
    [
        (("Sentence #", "Word", "Tag"), ("sentence", "word", "tag"), False, None),
        (("word", "tag"), ("word", "tag"), True, None),
        (("ner", "other", "token", "sentence_id"), ("tag", "other", "word", "sentence"), False, None),
        (("a", "b", "c"), ("tag", "sentence", "word"), False, ["b", "c", "a"]),
        (("a", "b", "c"), ("tag", "other", "word"), True, ["c", "a"]),
    ],
)
def test_sentences_are_read_from_rows(kind, header, cells, gap, columns, tmp_path, caplog):
    path = tmp_path / f"words.{kind}"
    path.write_text(table("," if kind == "csv" else "\t", header, cells, gap))
    assert read_tagged_words(path, columns) == (WORDS, TAGS)
    inputs = read_unlabelled_words(path, ["O"], columns)
    assert parts(inputs) == (WORDS, ["sentence 1", "sentence 2"]) and not caplog.records


@pytest.mark.parametrize("cells", [("sentence", "word", "tag"), ("word", "tag")])
def test_a_csv_file_may_have_no_header(cells, tmp_path):
    (tmp_path / "words.csv").write_text(table(",", None, cells, gap=True))
    assert read_tagged_words(tmp_path / "words.csv", Layout(header=False)) == (WORDS, TAGS)
    assert parts(read_unlabelled_words(tmp_path / "words.csv", ["O"], Layout(header=False)))[0] == WORDS
    assert read_tagged_words(tmp_path / "words.csv") == (WORDS, TAGS)


def test_a_blank_sentence_goes_on_and_names_may_come_again(tmp_path):
    rows = "Sentence #,Word,POS,Tag\nSentence: 1,Ada,NNP,B-P\n,met,VBD,O\n,Bob,NNP,B-P\n"
    (tmp_path / "words.csv").write_text(f"{rows}Sentence: 2,He,PRP,O\n,ran,VBD,O\nSentence: 1,So,RB,O\n")
    read = read_tagged_words(tmp_path / "words.csv")
    assert read == ([*WORDS, ["So"]], [*TAGS, ["O"]])


def test_words_alone_can_be_tagged(tmp_path):
    (tmp_path / "words.csv").write_text("sent_id,token\n1,Ada\n1,met\n2,He\n")
    assert parts(read_unlabelled_words(tmp_path / "words.csv", ["O"]))[0] == [["Ada", "met"], ["He"]]
    (tmp_path / "lines.csv").write_text("Ada met Bob\nHe ran\n")
    assert parts(read_unlabelled_words(tmp_path / "lines.csv", ["O"]))[0] == ["Ada met Bob", "He ran"]


def test_columns_without_a_header_are_conll(tmp_path):
    (tmp_path / "words.tsv").write_text("Ada\tB-P\nmet\tO\nBob\tB-P\n\nHe\tO\nran\tO\n")
    assert read_tagged_words(tmp_path / "words.tsv") == (WORDS, TAGS)


@pytest.mark.parametrize(
    ("name", "content", "columns", "message"),
    [
        ("a.csv", "word,tag\nAda,\n", None, "a.csv, line 2: expected a tag, the cell is blank"),
        ("a.csv", "word,tag\n ,O\n", None, "a.csv, line 2: expected a word, the cell is blank"),
        ("a.csv", "a,b,c,d\n1,2,3,4\n", None, "got 4 columns; choose: --columns A,B"),
        ("a.csv", "a,b,c\n1,2,3\n", ["word", "tag"], "expected a column named 'word', got a, b, c"),
        ("a.csv", "word,tag\n", None, "expected tagged words, the file has none"),
        ("a.csv", "word,tag\na,b,c\n", None, "line 2: expected 2 columns, got 3"),
        ("a.conll", "Ada O\n", [0, 1, 2], "--columns: expected two, the columns of words and of tags"),
        ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n', ["a", "b", "c"], "--columns: expected two"),
    ],
)
def test_what_is_no_table_of_words_is_refused(name, content, columns, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        read_tagged_words(tmp_path / name, columns)
