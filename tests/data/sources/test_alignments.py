"""FASTA and A3M: names, wrapped lines, insertions, and each mistake by its place."""

import gzip

import pytest

from keras_tfm.data.sources.alignments import GAP, UNKNOWN, read_alignment, read_fasta
from keras_tfm.data.sources.lines import DataError


@pytest.fixture
def write(tmp_path):
    def write(text, name="some.a3m"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write


def test_names_and_wrapped_lines(write):
    path = write("; a comment\n>one two\nARN\n\nDC*\n>\r\nQ-e\r\n", "some.fasta.gz")
    assert read_fasta(path) == [("one two", "ARNDC"), ("", "Q-e")]


def test_an_alignment_by_hand(write):
    found = read_alignment(write(">query\nARNV\n>far\nA-aaNb\nX\n>near\naBUZvJ\n"))
    assert found.names == ["query", "far", "near"]
    assert found.numbers.tolist() == [[0, 1, 2, 19], [0, GAP, 2, UNKNOWN], [3, 4, 6, UNKNOWN]]
    assert found.deletions.tolist() == [[0, 0, 0, 0], [0, 0, 2, 1], [1, 0, 0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ARN\n>one\n", r"some.a3m, line 1: expected \">\" and a name, got 'ARN'"),
        (">one\nAR1\n", "some.a3m, line 2: expected letters of residues, got '1'"),
        (">one\n>two\nA\n", "some.a3m, line 1: expected residues for 'one', got none"),
        ("\n", 'some.a3m: expected sequences, each after ">" and a name; there are none'),
        (">one\nAR\n>two\nARN\n", "sequence 2: expected 2 columns as in the first, 'two' has 3"),
        (">one\nar\n", "sequence 1: expected columns, upper-case letters, 'one' has none"),
    ],
)
def test_mistakes(write, text, message):
    with pytest.raises(DataError, match=message):
        read_alignment(write(text))
