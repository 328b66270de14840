"""Text that is read in parts: nothing lost, nothing twice; samples of it, and what is held out."""

import gzip
import lzma
import re

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_tfm.data import DataError, TextStream, read_texts
from keras_tfm.data.sources import text_stream as module


@pytest.fixture
def small(monkeypatch):
    """Files of some hundred bytes have many parts of several chunks."""
    for name, value in (("CHUNK", 64), ("TAIL", 48), ("LONGEST", 256), ("PART", 200), ("LINES", 2)):
        monkeypatch.setattr(module, name, value)


def written(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.txt").write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def segments(stream):
    return [segment for part in stream.parts() for segment in part]


def pieces(stream):
    """(texts, whether a document begins with each) of the whole stream, as NumPy has them."""
    paths, begins, ends, sizes, *flags = zip(*segments(stream), strict=True)
    places = [tf.constant(x, tf.int64) for x in (begins, ends, sizes)]
    columns = (tf.constant(paths), *places, *map(tf.constant, flags))
    return tf.data.Dataset.from_tensor_slices(columns).flat_map(stream.pieces).as_numpy_iterator()


def texts_of(stream):
    """The documents that the pieces make, put together."""
    texts = []
    for found, flags in pieces(stream):
        for text, is_start in zip(found, flags, strict=True):
            if is_start:
                texts.append("")
            texts[-1] += text.decode()
    return texts


WORDS = st.sampled_from(
    ["a", "bb", "ccc", "é", "漢字", "\u00a0", "x" * 90, " ", "  ", "\n", "\n\n", "\r\n", "--", "."]
)


@settings(max_examples=settings.default.max_examples // 4)  # a dataset is made for each
@given(
    st.lists(st.lists(WORDS, max_size=60).map("".join), min_size=1, max_size=3).filter(
        lambda x: "".join(x).strip()
    ),
    st.sampled_from([None, "\n\n", "--", "\n--\n", "<|e|>", "."]),
)
def test_pieces_are_the_texts(tmp_path_factory, contents, separator):
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("CHUNK", 64), ("TAIL", 48), ("LONGEST", 256), ("PART", 200)):
            patch.setattr(module, name, value)
        folder = tmp_path_factory.mktemp("stream")
        for number, content in enumerate(contents):
            (folder / f"{number}.txt").write_bytes(content.encode())
        expected = []
        for number, content in enumerate(contents):
            if "".join(content.split(separator) if separator else content).strip():
                expected += read_texts(folder / f"{number}.txt", separator)
        stream = TextStream(folder, separator)
        assert texts_of(stream) == expected


def test_large_files_have_parts_that_begin_with_words_or_documents(tmp_path, small):
    text = " ".join(f"w{i}" for i in range(400))
    stream = TextStream(written(tmp_path / "a", a=text))
    assert len(stream.parts()) > 4 and texts_of(stream) == [text + "\n"]
    parts = segments(stream)
    assert [part.starts for part in parts] == [True] + [False] * (len(parts) - 1)
    assert all(text.encode()[part.begin : part.begin + 2] == b" w" for part in parts[1:])
    lines = "".join(f"w{i}--" for i in range(400))
    stream = TextStream(written(tmp_path / "b", a=lines), "--")
    assert len(stream.parts()) > 4 and texts_of(stream) == [f"w{i}" for i in range(400)]
    assert all(part.starts and part.ends for part in segments(stream))


def test_small_files_share_a_part(tmp_path, small):
    stream = TextStream(written(tmp_path / "a", **{f"f{i:03}": f"text {i}" for i in range(60)}))
    assert 1 < len(stream.parts()) < 10
    assert texts_of(stream) == [f"text {i}\n" for i in range(60)]


def test_compressed_files_bytes_that_are_no_text_and_marks_of_byte_order(tmp_path, small):
    folder = written(tmp_path / "a", a=b"\xef\xbb\xbfone\r\ntwo", b=b"a \xff b")
    (folder / "c.txt.gz").write_bytes(gzip.compress("x\n\ny é\n".encode() * 50))
    stream = TextStream(folder)
    assert texts_of(stream) == ["one\ntwo\n", "a \ufffd b\n", "x\n\ny é\n" * 50]
    assert stream.num_bytes == sum(path.stat().st_size for path in folder.iterdir()) - 3
    stream = TextStream(written(tmp_path / "b", a=b"\xffa\xff\xff b--c\xff"), "--")
    assert texts_of(stream) == ["\ufffda\ufffd\ufffd b", "c\ufffd\n"]


@pytest.mark.parametrize("text", ["é" * 3000, "x" * 3000, "漢" * 1000])
def test_text_without_a_place_to_cut_is_cut_between_characters(tmp_path, small, text):
    stream = TextStream(written(tmp_path / "a", a=text))
    assert texts_of(stream) == [text + "\n"]
    found = [x for batch, _ in pieces(stream) for x in batch]
    assert len(found) > 5 and max(map(len, found)) < 400


def test_a_sample_is_spread_over_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PASSAGE", 100)
    folder = written(
        tmp_path / "a",
        a="".join(f"a{i:05} " for i in range(1000)),
        b="".join(f"b{i:05} " for i in range(500)),
    )
    stream = TextStream(folder)
    sample = stream.sample(1200)
    assert 1100 < sum(map(len, sample)) <= 1200
    numbers = {
        name: [int(x[1:]) for p in sample for x in p.split() if x[0] == name and len(x) == 6] for name in "ab"
    }
    for name, last in (("a", 999), ("b", 499)):
        assert min(numbers[name]) < 20 and max(numbers[name]) > last - 20
        assert np.diff(sorted(set(numbers[name]))).max() < last / 2
    assert (
        "".join(TextStream(folder).sample(10**6))
        == (folder / "a.txt").read_text() + (folder / "b.txt").read_text()
    )
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n"))
    assert TextStream(tmp_path / "c.txt.gz").sample(6) == ["one\ntwo\n"]


@pytest.mark.parametrize("separator", [None, "--"])
def test_what_is_held_out_is_not_trained_on(tmp_path, small, separator):
    folder = written(
        tmp_path / "a",
        **{name: "".join(f"{name}{i:03} " + "--" * (i % 9 == 0) for i in range(300)) for name in "ab"},
    )
    (folder / "c.txt.gz").write_bytes(gzip.compress(b"c" * 40))
    stream = TextStream(folder, separator)
    rest, held = stream.hold_out(0.1)
    words = {word for text in held for word in text.replace("--", "").split()}
    kept = {word for text in texts_of(rest) for word in text.replace("--", "").split()}
    assert not words & kept and len(words | kept) == 601
    assert 0.05 * stream.num_bytes < stream.num_bytes - rest.num_bytes < 0.15 * stream.num_bytes
    assert {word[0] for word in words} == {"a", "b"}
    assert rest.fingerprint() != stream.fingerprint() == TextStream(folder, separator).fingerprint()
    _, held = stream.hold_out(0.5, most=60)
    assert sum(map(len, held)) < 80


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("text {:03}\r\n\r\n", "\n\n"),
        ("text {:03}\r\n--\r\n", "\n--\n"),
        ("text {:03}\n", "\n\n"),  # no document begins at the end
    ],
)
def test_the_end_is_held_out_whatever_its_lines_end_in(tmp_path, small, text, separator):
    stream = TextStream(written(tmp_path, a="".join(map(text.format, range(400))) + "\n\n"), separator)
    rest, held = stream.hold_out(0.1)
    numbers = [set(re.findall(r"\d+", " ".join(texts))) for texts in (held, texts_of(rest))]
    assert len(numbers[0]) > 20 and not numbers[0] & numbers[1] and len(numbers[0] | numbers[1]) == 400
    assert len(stream.parts()) > 5


def test_of_many_files_whole_ones_are_held_out(tmp_path, small):
    stream = TextStream(written(tmp_path / "a", **{f"f{i:03}": f"text {i:03}\n" for i in range(40)}))
    rest, held = stream.hold_out(0.2)
    assert len(held) == 8 and sorted([*texts_of(rest), *held]) == [f"text {i:03}\n" for i in range(40)]
    assert stream.hold_out(0.2)[1] == held != stream.hold_out(0.2, seed=1)[1]


def test_what_is_held_out_stays_small(tmp_path):
    """No file is read whole that is larger than what may be held out."""
    words = "".join(f"w{i:03} " for i in range(250))
    stream = TextStream(written(tmp_path / "a", **{f"f{i}": words for i in range(module.MANY)}))
    rest, held = stream.hold_out(0.5, most=600)
    assert len(held) == module.MANY and sum(map(len, held)) <= 600
    assert stream.num_bytes - rest.num_bytes == sum(map(len, held))
    for i in range(3):
        (tmp_path / f"{i}.txt.gz").write_bytes(gzip.compress(f"{i} {words}\n".encode() * (3 - i)))
    stream = TextStream(tmp_path / "*.gz")
    rest, held = stream.hold_out(0.5, most=10)
    assert held == [f"2 {words}\n"] and len(rest.segments) == 2
    with pytest.raises(ValueError, match="nothing can be held out"):
        TextStream(tmp_path / "0.txt.gz").hold_out(0.5)


def test_bytes_that_are_no_text_are_held_out_too(tmp_path):
    folder = written(tmp_path / "a", **{f"f{i}": b"a \xff b\r\n" for i in range(module.MANY - 1)}, blank=b" ")
    (folder / "z.txt.gz").write_bytes(gzip.compress(b"a \xff b\r\n"))
    _, held = TextStream(folder).hold_out(0.9)
    assert len(held) > 1 and set(held) == {"a \ufffd b\n"}


def test_bytes_that_are_no_text_move_no_cut(tmp_path, small):
    content = (b"\xff" * 30 + "漢漢 ".encode()) * 30
    stream = TextStream(written(tmp_path / "a", a=content))
    starts = [segment.begin for segment in segments(stream)][1:]
    assert len(starts) > 3 and {content[start : start + 1] for start in starts} == {b" "}
    assert "".join(texts_of(stream)) == content.decode("utf-8", "replace") + "\n"


def test_what_is_no_stream_is_refused(tmp_path):
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"x"))
    for path in (tmp_path / "a.txt.xz", "-", "tfds:lm1b#train", "a.parquet"):
        with pytest.raises(DataError, match=r"expected a text file, plain or \.gz, that can be read"):
            TextStream(path)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        TextStream(tmp_path / "none.txt")
    with pytest.raises(DataError, match="expected files, but nothing matches the pattern"):
        TextStream(tmp_path / "*.md")
    for content in ("", " \n "):
        with pytest.raises(DataError, match="expected text, the files hold none"):
            TextStream(written(tmp_path / "blank", a=content))
    with pytest.raises(ValueError, match="share: of 2 bytes of text nothing can be held out"):
        TextStream(written(tmp_path / "short", a="ab")).hold_out()


def test_a_fingerprint_knows_names_sizes_and_beginnings(tmp_path):
    first = TextStream(written(tmp_path / "a", a="one", b="two")).fingerprint()
    assert TextStream(written(tmp_path / "b", a="one", b="two")).fingerprint() == first
    for changes in ({"a": "One"}, {"b": "two "}, {"c": "x"}):
        files = {"a": "one", "b": "two", **changes}
        assert TextStream(written(tmp_path / f"x{changes}", **files)).fingerprint() != first
