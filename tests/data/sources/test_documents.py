"""Texts and documents from files and folders, and their sentences."""

import gzip
import lzma

import pytest

from keras_tfm.data import (
    DataError,
    read_documents,
    read_pairs,
    read_questions,
    read_texts,
    split_sentences,
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "b.txt").write_text("One.\n\n\n  \nTwo.\nStill two.\r\n\nThree.", "utf-8")
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"  Zero. \n"))
    (tmp_path / "notes.md").write_text("no text\n")
    return tmp_path


def test_blank_lines_part_documents_and_a_folder_is_its_text_files(folder):
    documents = ["Zero.", "One.", "Two.\nStill two.", "Three."]
    assert read_documents(folder) == documents
    assert read_documents([folder / "b.txt", str(folder / "a.txt.xz")]) == [*documents[1:], documents[0]]


def test_what_holds_no_text_is_refused(folder, tmp_path):
    (tmp_path / "blank.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"blank.txt: expected documents, it holds no text"):
        read_documents(tmp_path / "blank.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"expected text files, .txt, .txt.gz, .txt.xz; the folder has none"):
        read_documents(tmp_path / "empty")
    with pytest.raises(DataError, match=r"missing.txt: cannot be read"):
        read_documents([folder, tmp_path / "missing.txt"])
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(DataError, match="line 1: expected UTF-8"):
        read_documents(tmp_path / "latin.txt")


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "Was it late?", "No!"],
        ["He said “Stop!”", "Then he left (on foot.)", "“Good.”", "So it was…", "1999 came."],
        ["J. R. R. Tolkien met Mr. Smith in St. Louis.", "Dr. No left at 5 p.m. on Monday, i.e. late."],
        ["It cost 3.50 euros.", "Version 2.0 came."],
        ["Ήταν αργά.", "Ωραία."],
    ],
)
def test_sentences_end_at_marks_before_capitals(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_lines_end_sentences_and_han_needs_no_space():
    assert split_sentences("A title\nIt begins here\n\nand here.") == [
        "A title",
        "It begins here",
        "and here.",
    ]
    assert split_sentences("你好。再见！好") == ["你好。", "再见！", "好"]
    assert split_sentences(" \n") == []


def test_files_are_documents_or_hold_some(tmp_path):
    (tmp_path / "a.txt").write_bytes("one\r\ntwo\n\nthree é\n".encode())
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"four"))
    paths = [tmp_path / "a.txt", tmp_path / "b.txt.gz"]
    assert read_texts(paths) == ["one\ntwo\n\nthree é\n", "four\n"]
    assert read_texts(paths, "\n\n") == ["one\ntwo", "three é\n", "four\n"]
    (tmp_path / "bad.txt").write_bytes(b"ok\n\xff\n")
    (tmp_path / "blank.txt").write_bytes(b"\n \n")
    for name, message in (
        ("bad", "line 2: expected UTF-8"),
        ("blank", "expected text"),
        ("no", "cannot be read"),
    ):
        with pytest.raises(DataError, match=message):
            read_texts(tmp_path / f"{name}.txt")


def test_separated_tables_are_read_by_column(tmp_path):
    """A header and commas are no text to learn from, and without a known header the column is asked for."""
    (tmp_path / "a.csv").write_text('label,text\n1,"A cat, asleep."\n0,A dog.\n')
    (tmp_path / "b.tsv").write_text("A cat, asleep.\nA dog.\n")
    (tmp_path / "c.csv").write_text("A cat,asleep.\n")
    for read in (read_texts, read_documents):
        assert read(tmp_path / "a.csv") == read(tmp_path / "b.tsv") == ["A cat, asleep.", "A dog."]
        assert read(tmp_path / "a.csv", columns=["label"]) == ["1", "0"]
        with pytest.raises(DataError, match="expected 1 column, text, got 2; choose one of them by name or"):
            read(tmp_path / "c.csv")


def test_columns_of_text_are_refused(tmp_path):
    """`read_texts` and all others that read both text and tables."""
    (tmp_path / "a.tsv").write_text("text\tlabel\nA cat.\t1\n")
    (tmp_path / "b.jsonl").write_text('{"body": "A dog."}\n')
    for read in (read_texts, read_documents):
        with pytest.raises(DataError, match=r"c\.txt: expected a \.tsv, .*; this is read as text"):
            read(tmp_path / "c.txt", columns=["text"])
    with pytest.raises(DataError, match=r"a\.tsv: --columns: expected a \.jsonl .*; this is read as text"):
        read_questions(tmp_path / "a.tsv", columns=["text", "text 2", "label"])
    with pytest.raises(DataError, match=r"c\.txt: expected a \.tsv, .*; this is read as text"):
        read_pairs([tmp_path / "c.txt", tmp_path / "d.txt"], columns=["text", "label"])
    both = [tmp_path / "a.tsv", tmp_path / "b.jsonl"]
    assert read_texts(both) == ["A cat.", "A dog."]
    with pytest.raises(DataError, match=r"a\.tsv, line 1: expected a column named 'body', got text, label"):
        read_texts(both, columns=["body"])
