"""Files in, strings out; and every broken file named in one line."""

import gzip
import io
import json
import lzma
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_tfm.data import DataError, Pairs, read_lines, read_pairs
from keras_tfm.data.sources.files import fingerprint

PAIRS = Pairs(["a dog", " two  spaces ", "Καλημέρα"], ["ein Hund", 'zwei "Worte"', "早上好"])
ONE_THREE = (["one", "three"], ["eins", "drei"])
COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def written(folder, name: str, content: str | bytes):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(paths, columns=None) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(DataError) as caught:
        read_pairs(paths, columns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parallel"])
def test_every_format_gives_the_same_pairs(tmp_path, kind, compression):
    compress = COMPRESS[compression]
    if kind == "parallel":
        contents = {f"{side}.txt": "\n".join(texts) for side, texts in zip("ab", PAIRS, strict=True)}
    else:
        line = {
            "tsv": lambda source, target: f"{source}\t{target}",
            "csv": lambda source, target: '{},"{}"'.format(source, target.replace('"', '""')),
            "jsonl": lambda source, target: json.dumps({"source": source, "target": target}),
        }[kind]
        contents = {f"pairs.{kind}": "".join(line(*pair) + "\n" for pair in zip(*PAIRS, strict=True))}
    paths = [
        written(tmp_path, name + compression, compress(text.encode())) for name, text in contents.items()
    ]
    assert read_pairs(paths) == PAIRS
    if kind != "parallel":
        assert read_pairs(str(paths[0])) == PAIRS


def test_only_the_newline_is_stripped(tmp_path):
    content = (
        "\ufeff a \t\u2028b\u00a0\r\nc\x0b\x85\td\u3000"  # a byte order mark, CRLF, no newline at the end
    )
    assert read_pairs(written(tmp_path, "a.tsv", content)) == (
        [" a ", "c\x0b\x85"],
        ["\u2028b\u00a0", "d\u3000"],
    )


def test_csv_cells_hold_commas_quotes_and_newlines(tmp_path):
    path = written(tmp_path, "a.csv", '"a,b","c ""d"""\r\n"two\nlines",e\r\n')
    assert read_pairs(path) == (["a,b", "two\nlines"], ['c "d"', "e"])


@given(st.lists(st.tuples(*[st.text(min_size=1).filter(lambda text: not text.isspace())] * 2), min_size=1))
def test_any_text_survives_jsonl(tmp_path_factory, rows):
    content = "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows)
    path = written(tmp_path_factory.getbasetemp(), "any.jsonl", content)
    assert list(zip(*read_pairs(path), strict=True)) == rows


@pytest.mark.parametrize(
    "header", ["source\ttarget", "en\tde", "en-GB\tpt_BR", "English\tGerman", "Question\tAnswer"]
)
def test_a_header_of_known_names_is_not_a_pair(tmp_path, header):
    assert read_pairs(written(tmp_path, "a.tsv", f"{header}\nx\ty\n")) == (["x"], ["y"])


@pytest.mark.parametrize("first", ["a\tb", "car\tVoiture", "en\ten", "source\tZiel"])
def test_a_first_row_of_other_words_is_a_pair(tmp_path, first):
    assert read_pairs(written(tmp_path, "a.tsv", f"{first}\nx\ty\n")).sources == [first.split("\t")[0], "x"]


def test_columns_are_chosen_by_header_name_or_position(tmp_path):
    path = written(tmp_path, "a.tsv", "id\ttarget\tsource\n1\tb\ta\n")
    assert read_pairs(path) == (["a"], ["b"])  # named in the header, in whichever order
    assert read_pairs(path, ["id", "target"]) == (["1"], ["b"])
    assert read_pairs(path, [0, 2]) == read_pairs(path, ["0", "2"]) == (["1"], ["a"])
    assert read_pairs(written(tmp_path, "b.tsv", "1\tb\ta\n"), (2, 1)) == (["a"], ["b"])
    assert read_pairs(written(tmp_path, "c.csv", "frage,antwort\na,b\n"), ["antwort", "frage"]) == (
        ["b"],
        ["a"],
    )


def test_json_keys(tmp_path):
    nested = written(tmp_path, "a.jsonl", '{"translation": {"en": "a", "de": "b"}}\n')
    assert read_pairs(nested) == (["a"], ["b"])
    assert read_pairs(nested, ["de", "en"]) == (["b"], ["a"])
    assert read_pairs(written(tmp_path, "b.jsonl", '{"id": 1, "tgt": "b", "src": "a"}\n')) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "", "expected pairs of texts, the file is empty"),
        ("a.tsv", "source\ttarget\n", "expected pairs of texts, the file is empty"),
        ("a.jsonl.gz", gzip.compress(b""), "expected pairs of texts, the file"),
        ("a.tsv", "one\n", ", line 1: expected 2 columns, source and target, got 1"),
        ("a.tsv", "x\ty\tz\n", ", line 1: expected 2 columns, source and target, got 3; choose two"),
        ("a.tsv", "x\ty\nx\n", ", line 2: expected 2 columns, got 1"),
        ("a.csv", "x,y\nx,y,z\n", ", line 2: expected 2 columns, got 3"),
        ("a.tsv", "x\ty\n\ty\n", ", line 2: expected a text, the source is empty"),
        ("a.tsv", "x\ty\nx\t \u3000\n", ", line 2: expected a text, the target is empty"),
        ("a.tsv", b"x\ty\nx\t\xff\n", ", line 2: expected UTF-8, got byte 0xff at position 2"),
        ("a.csv", b"x,y\n\xc3,y\n", ", line 2: expected UTF-8, got byte 0xc3 at position 0"),
        ("a.csv", 'x,y\n"a\nb",c\nx,"y\n', ", line 4: expected CSV: unexpected end of data"),
        ("a.csv", 'x,y\nx,"y"z\n', ", line 2: expected CSV: ',' expected after '\"'"),
        ("a.jsonl", "{\n", ", line 1: expected a JSON object: Expecting property name"),
        ("a.jsonl", "[" * 100_000, ", line 1: expected a JSON object: "),
        ("a.jsonl", "[1]\n", ", line 1: expected a JSON object, got [1]"),
        ("a.jsonl", '{"a": "", "b": "", "c": 1}\n', ", line 1: expected columns source and target, got 'a"),
        ("a.jsonl", '{"a": "x", "b": "y"}\n{"a": "x"}\n', ", line 2: expected a key 'b', got 'a'"),
        ("a.jsonl", '{"a": "x", "b": 1}\n', ", line 1: expected a string as 'b', got 1"),
        ("a.jsonl", '{"a": "x", "b": ""}\n', ", line 1: expected a text, the 'b' is empty"),
        ("a.jsonl", '{"a": "x", "b": "\\ud800"}\n', ", line 1: expected Unicode text, got half"),
        ("a.txt", "x", ": expected a .tsv, .csv, .jsonl or .parquet file or tfds:NAME"),
        ("a.txt", "x", "#SPLIT, or two parallel text files"),
        ("a.tsv.gz", b"not gzip", ", line 1: expected a whole compressed file: Not a gzipped file"),
        ("a.tsv.xz", b"not xz", ", line 1: expected a whole compressed file: Input format not supported"),
        ("tfds:no_such_set", None, "expected tfds:NAME[/CONFIG][:VERSION]#SPLIT"),
    ],
)  # fmt: skip
def test_bad_files_are_named_with_line_and_reason(tmp_path, name, content, message):
    path = name if content is None else str(written(tmp_path, name, content))
    text = refusal(path)
    assert text.startswith(path) and message in text


@pytest.mark.parametrize("compression", [".gz", ".xz"])
def test_a_truncated_archive_is_refused_wherever_it_is_cut(tmp_path, compression):
    whole = COMPRESS[compression]("".join(f"source {i}\ttarget {i}\n" for i in range(50)).encode())
    for size in range(1, len(whole), 7):
        text = refusal(written(tmp_path, "a.tsv" + compression, whole[:size]))
        assert "expected a whole compressed file" in text
    damaged = whole[:40] + bytes([whole[40] ^ 255]) + whole[41:]
    assert "expected a whole compressed file" in refusal(written(tmp_path, "a.tsv" + compression, damaged))


def test_missing_files_and_folders(tmp_path):
    missing = tmp_path / "none.tsv"
    assert refusal(missing) == f"{missing}: cannot be read: No such file or directory"
    (tmp_path / "folder.tsv").mkdir()
    assert "cannot be read: Is a directory" in refusal(tmp_path / "folder.tsv")


def test_parallel_files_must_agree(tmp_path):
    a, b = written(tmp_path, "a.txt", "1\n2\n3\n"), written(tmp_path, "b.txt", "1\n2\n")
    message = f"{a}, line 3: expected parallel files of one length, {b} has only 2 lines"
    assert refusal([a, b]) == refusal([b, a]) == message
    assert refusal([a, written(tmp_path, "d.txt", "")]).endswith("d.txt has only 0 lines")


@pytest.mark.parametrize(
    ("source", "target", "pairs", "told"),
    [
        ("one\n\nthree\n", "eins\nzwei\ndrei\n", ONE_THREE, "1 of 3 pairs are skipped: {a}, line 2 (the"),
        ("one\ntwo\n", "eins\n \u00a0\n", (["one"], ["eins"]), "1 of 2 pairs are skipped: {b}, line 2 (the"),
        ("one\n\nthree\n", "eins\n\ndrei\n", ONE_THREE, "{a}, {b}: skipped 1 blank line: 2"),
        ("one\n\n\n", "eins\n", (["one"], ["eins"]), "{a}, {b}: skipped 2 blank lines: 2, 3"),
        ("one\n", "eins\n\n", (["one"], ["eins"]), "{a}, {b}: skipped 1 blank line: 2"),
    ],
)  # fmt: skip
def test_blank_lines_of_parallel_files_are_counted(tmp_path, caplog, source, target, pairs, told):
    a, b = written(tmp_path, "a.txt", source), written(tmp_path, "b.txt", target)
    assert read_pairs([a, b]) == pairs
    (message,) = caplog.messages
    assert message.startswith(told.format(a=a, b=b))


def test_a_line_too_many_is_refused_behind_blank_ones(tmp_path):
    a, b = written(tmp_path, "a.txt", "1\n\n3\n"), written(tmp_path, "b.txt", "1\n")
    assert refusal([a, b]) == f"{a}, line 3: expected parallel files of one length, {b} has only 1 lines"


def test_columns_that_are_not_there(tmp_path):
    path = written(tmp_path, "a.tsv", "en\tde\nx\ty\n")
    assert refusal(path, ["en", "fr"]) == f"{path}, line 1: expected a column named 'fr', got en, de"
    assert refusal(path, [0, 2]) == f"{path}, line 1: expected column 2 (from 0), got 2 columns"
    for columns in (["en"], [0, "de"], [1, 1], [0, 1, 2]):
        with pytest.raises(ValueError, match="columns: expected two different names, or two positions"):
            read_pairs(path, columns)
    with pytest.raises(ValueError, match=r"columns: .*a\.jsonl has names of columns, not positions"):
        read_pairs(written(tmp_path, "a.jsonl", "{}"), [0, 1])
    with pytest.raises(ValueError, match="paths: expected tables, or two parallel text files, got 3"):
        read_pairs([path, path, "a.txt"])


def test_a_line_of_a_megabyte_is_read(tmp_path):
    long = "word " * 200_000
    assert read_pairs(written(tmp_path, "a.tsv", f"{long}\t{long}\nx\ty\n")).sources == [long, "x"]
    assert read_pairs(written(tmp_path, "a.csv", f'"{long}","{long}"\n')).targets == [long]


def test_a_line_beyond_reason_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_tfm.data.sources.lines.MAX_LINE_BYTES", 1000)
    path = written(tmp_path, "a.tsv", "x\ty\n" + "x" * 2000)
    assert refusal(path) == f"{path}, line 2: expected text, got a line over 1,000 bytes"


def test_read_lines_keeps_empty_lines(tmp_path, monkeypatch):
    path = written(tmp_path, "a.txt.gz", gzip.compress(b"one\n\n two \r\nlast"))
    assert list(read_lines(path)) == ["one", "", " two ", "last"]
    assert list(read_lines(written(tmp_path, "empty.txt", ""))) == []
    stdin = io.TextIOWrapper(io.BytesIO("één\n\n".encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert list(read_lines("-")) == ["één", ""]
    assert not stdin.closed
    with pytest.raises(DataError, match=r"bad.txt, line 2: expected UTF-8, got byte 0xfe at position 1"):
        list(read_lines(written(tmp_path, "bad.txt", b"a\nb\xfe\n")))


def test_several_tables_are_one(tmp_path):
    written(tmp_path, "b.tsv", "c\td\n")
    first = written(tmp_path, "a.tsv", "a\tb\n")
    assert read_pairs(tmp_path / "*.tsv") == (["a", "c"], ["b", "d"])  # by name
    assert read_pairs([tmp_path / "b.tsv", first]) == (["c", "a"], ["d", "b"])
    (tmp_path / "more" / "deep").mkdir(parents=True)
    written(tmp_path / "more" / "deep", "c.jsonl", '{"source": "e", "target": "f"}\n')
    assert read_pairs(str(tmp_path / "**" / "*.jsonl")) == (["e"], ["f"])
    written(tmp_path, "c.tsv", "")
    assert refusal(tmp_path / "*.tsv") == f"{tmp_path / 'c.tsv'}: expected pairs of texts, the file is empty"
    none = tmp_path / "*.csv"
    assert refusal(none) == f"{none}: expected files, but nothing matches the pattern"
    odd = written(tmp_path, "[1].tsv", "x\ty\n")  # a file's name, though it looks like a pattern
    assert read_pairs(odd) == (["x"], ["y"])


def test_a_fingerprint_of_objects_is_that_of_their_content():
    """Not of their places in memory, which another process has elsewhere."""
    one, other = (np.array([text, "y"], object) for text in ("x" * 50, "".join(["x"] * 50)))
    assert fingerprint(one) == fingerprint(other) == fingerprint(["x" * 50, "y"])
    assert fingerprint(one) != fingerprint(one[::-1])
