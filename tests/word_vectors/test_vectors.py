"""`WordVectors`: neighbours against all cosines, files bit by bit and spoilt, the Keras layer."""

import gzip
import json
import lzma
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from keras_tfm.word_vectors import WordVectors

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
WORDS = st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=8)


@st.composite
def some_vectors(draw):
    words = draw(st.lists(WORDS, min_size=1, max_size=6, unique=True))
    # With one dimension, two whole numbers alone at the top could be a header.
    dim = draw(st.integers(2, 5))
    return WordVectors(words, draw(arrays.arrays(np.float32, (len(words), dim), elements=FINITE)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some_vectors(), st.sampled_from(["word2vec", "glove", "npz"]))
def test_files_keep_every_bit(tmp_path, vectors, format):
    path = tmp_path / ("V.NPZ" if format == "npz" else "v.txt")
    vectors.write(path, format if format == "glove" else None)
    again = WordVectors.read(path)
    assert again.words == vectors.words
    np.testing.assert_array_equal(again.matrix, vectors.matrix)
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []
    path.unlink()


def test_numbers_have_the_digits_that_float32_needs(tmp_path):
    path = tmp_path / "v.txt"
    WordVectors(["the"], np.array([[0.1, -1 / 3]])).write(path, "glove")
    assert path.read_text() == "the 0.1 -0.33333334\n"


def test_reads_what_others_write(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("2 3\nthe 1 -2.5 3e-2 \ncat 4 5 6 \n")  # word2vec ends its lines with a space
    vectors = WordVectors.read(path)
    assert vectors.words == ["the", "cat"]
    np.testing.assert_array_equal(vectors["the"], np.float32([1, -2.5, 0.03]))
    path.write_text("the 1 2\nat home 3 4\n. . 5 6\r\n")  # GloVe's have words with spaces
    assert WordVectors.read(path).words == ["the", "at home", ". ."]


ROWS = np.float32([1, -2.5]).tobytes(), np.float32([32, 10]).tobytes()
BIN = b"2 2\nthe " + ROWS[0] + b"\nc\xc3\xa1t " + ROWS[1] + b"\n"
PLAIN = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("end", PLAIN)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("v.bin", BIN),
        ("v.BIN", BIN.replace(b"\nc", b"c")[:-1]),  # as gensim writes it
        ("v.bin", b"2 2\nthe 1 -2.5\nc\xc3\xa1t 32 10\n"),  # text, whatever its name
        ("v.vec", b"\xef\xbb\xbf2 2\nthe 1 -2.5\nc\xc3\xa1t 32 10\n"),
        ("v.txt", b"\xef\xbb\xbfthe 1 -2.5\r\nc\xc3\xa1t 32 10\r\n"),
    ],
)  # fmt: skip
def test_reads_what_is_published(tmp_path, name, content, end):
    path = tmp_path / (name + end)
    path.write_bytes(PLAIN[end](content))
    vectors = WordVectors.read(path)
    assert vectors.words == ["the", "cát"]
    np.testing.assert_array_equal(vectors.matrix, np.float32([[1, -2.5], [32, 10]]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BIN[:-3], ": expected 2 words, as line 1 says, got 1"),
        (BIN + b"x", ": expected 2 words, as line 1 says, got more"),
        (BIN.replace(b"c\xc3\xa1t", b"the"), ", word 2: expected another word, got 'the'"),
        (BIN.replace(b"c\xc3\xa1t", b"\xff"), ", word 2: expected UTF-8, got byte 0xff"),
        (b"1 2\na " + np.float32([1, np.nan]).tobytes(), ", word 1: expected finite numbers behind 'a'"),
        (b"9 9\n" + b"x" * 99_999, ", word 1: expected a space behind a word of 65,536 bytes at most"),
        (b"9 99999999\n", ", line 1: expected 1,048,576 numbers a word at most, got 99,999,999"),
        (b"0 2\n", ": expected words, line 1 says that there are none"),
        (b"\xba\x16\x4f\x2f\x0c\0\0\0",
         ": expected word2vec's .bin, got a model of fastText's; read its .vec"),
    ],
)  # fmt: skip
def test_spoilt_bin_files_are_refused(tmp_path, content, message):
    path = tmp_path / "v.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        WordVectors.read(path)
    assert str(caught.value) == f"{path}{message}"


@pytest.mark.parametrize("end", [".gz", ".xz"])
def test_a_compressed_name_is_compressed(tmp_path, end):
    path = tmp_path / f"v.txt{end}"
    WordVectors(["a", "b"], np.eye(2)).write(path)
    assert WordVectors.read(path).words == ["a", "b"]
    whole = path.read_bytes()
    assert whole[:2] in (b"\x1f\x8b", b"\xfd7")
    path.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match="expected a whole compressed file"):
        WordVectors.read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ": expected lines of a word and its numbers, got none"),
        ("3 2\na 1 2\nb 3 4\n", ": expected 3 words, as line 1 says, got 2"),
        ("1 2\na 1 2\nb 3 4\n", ": expected 1 words, as line 1 says, got 2"),
        ("0 2\n", "expected lines of a word and its numbers, got none"),
        ("2 3\na 1 2\n", ", line 2: expected a word and 3 numbers, got 'a' and 2"),
        ("a 1 2\nb 3\n", ", line 2: expected a word and 2 numbers, got 'b' and 1"),
        ("a 1 2\nb 3 4 5\n", ", line 2: expected a word and 2 numbers, got 'b' and 3"),
        ("a 1 2\n\nb 3 4\n", ", line 2: expected a word and 2 numbers, got '' and 0"),
        ("a\n", ", line 1: expected a word and numbers, got 'a' and 0"),
        ("a 1 2\nb nan 4\n", ", line 2: expected finite numbers, got nan"),
        ("a 1 2\nb 3 -inf\n", ", line 2: expected finite numbers, got -inf"),
        ("a 1 2\nb 3 1e39\n", ", line 2: expected finite numbers, got 1e39"),
        ("a 1 x\n", ", line 1: expected numbers, got 'x'"),
        ("a 1 2\nb 3 4\na 5 6\n", ", line 3: expected another word, got 'a' as in line 1"),
        (b"a 1 2\n\xff 3 4\n", ", line 2: expected UTF-8, got byte 0xff at position 0"),
    ],
)
def test_spoilt_texts_are_refused(tmp_path, text, message):
    path = tmp_path / "v.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError) as caught:
        WordVectors.read(path)
    assert str(caught.value).startswith(str(path)) and str(caught.value).endswith(message)


def packed(words, matrix):
    content = words if isinstance(words, bytes) else json.dumps(words).encode()
    return {"words": np.frombuffer(content, np.uint8), "matrix": np.asarray(matrix)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"matrix": np.ones((2, 2))}, "the arrays words and matrix"),
        (packed(b"{", [[1.0]]), "the arrays words and matrix"),
        (packed(["a", "b"], [[1.0]]), r"a row of numbers for each word, got the shape \(1, 1\)"),
        (packed(["a"], [1.0]), r"got the shape \(1,\)"),
        (packed({"a": 1}, [[1.0]]), "a row of numbers for each word"),
        (packed(["a"], [["x"]]), "a row of numbers for each word"),
        (packed(["a", "a"], [[1.0], [2.0]]), "each once"),
        (packed(["a", 3], [[1.0], [2.0]]), "expected words"),
        (packed(["a", "b"], [[1.0], [np.nan]]), "finite numbers, got others in the row of 'b'"),
        (packed(["a", "b"], [[1.0], [1e300]]), "finite numbers, got others in the row of 'b'"),
        (packed(["a"], np.array([[print]], object)), "allow_pickle"),
        (b"no archive", "the arrays words and matrix"),
    ],
)
def test_spoilt_archives_are_refused(tmp_path, content, message):
    path = tmp_path / "v.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez(path, **content)
    with pytest.raises(ValueError, match=message) as caught:
        WordVectors.read(path)
    assert str(caught.value).startswith(str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10_000),
    st.integers(0, 255),
    st.booleans(),
    st.sampled_from(["v.txt", "v.npz", "v.bin", "v.gz"]),
)
def test_a_changed_byte_or_a_cut_end_is_an_error_or_still_vectors(tmp_path, place, byte, is_cut, name):
    path = tmp_path / name
    if name == "v.bin":
        path.write_bytes(BIN)
    else:
        WordVectors(["the", "cat", "é"], np.arange(9).reshape(3, 3) / 7).write(path)
    content = bytearray(path.read_bytes())
    if is_cut:
        del content[place % len(content) :]
    else:
        content[place % len(content)] = byte
    path.write_bytes(content)
    try:
        vectors = WordVectors.read(path)
    except ValueError as error:
        assert str(path) in str(error)
    else:
        assert np.isfinite(vectors.matrix).all() and len(set(vectors.words)) == len(vectors)


def test_an_archive_of_a_huge_claim_is_refused(tmp_path):
    path = tmp_path / "v.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("words.npy", b"\x93NUMPY\x01\x00")
    with pytest.raises(ValueError, match="the arrays words and matrix"):
        WordVectors.read(path)


def test_writing_refuses(tmp_path):
    vectors = WordVectors(["new york", "b"], np.eye(2))
    with pytest.raises(ValueError, match="without white space; one is 'new york'"):
        vectors.write(tmp_path / "v.txt")
    with pytest.raises(ValueError, match="`format` must be word2vec, glove or npz; it is 'bin'"):
        vectors.write(tmp_path / "v.bin", "bin")
    assert list(tmp_path.iterdir()) == []


@given(some_vectors(), st.integers(1, 9))
def test_neighbours_are_the_greatest_cosines(vectors, count):
    rows = vectors.matrix.astype(np.longdouble)
    lengths = np.linalg.norm(rows, axis=1)
    cosines = rows @ rows[0] / np.where(lengths * lengths[0] > 0, lengths * lengths[0], 1)
    found = vectors.neighbours(vectors.words[0], count)
    assert len(found) == min(count, len(vectors) - 1) and vectors.words[0] not in dict(found)
    expected = np.sort(cosines[1:])[::-1][: len(found)]
    np.testing.assert_allclose([cosine for _, cosine in found], expected, atol=1e-5)
    for word, cosine in found:
        assert cosine == pytest.approx(cosines[vectors.words.index(word)], abs=1e-5)


def test_neighbours_of_a_vector():
    vectors = WordVectors(["x", "y", "diagonal"], [[2, 0], [0, 3], [1, 1]])
    assert vectors.neighbours(np.array([0.1, 0]), 2) == [("x", 1.0), ("diagonal", pytest.approx(0.5**0.5))]
    with pytest.raises(ValueError, match="one of the 3 words; it is 'z'"):
        vectors.neighbours("z")


def test_embedding_gives_the_vectors():
    import keras

    vectors = WordVectors(["the", "cat"], [[1, 2, 3], [3, 4, 7]])
    layer = vectors.embedding()
    ids = vectors.token_ids(["cat", "cow", "the"])
    assert ids.tolist() == [3, 1, 2] and not layer.trainable
    rows = keras.ops.convert_to_numpy(layer(ids[None]))[0]
    np.testing.assert_array_equal(rows, [vectors["cat"], [2, 3, 5], vectors["the"]])
    padded = np.array([[3, 0]])
    assert layer.compute_mask(padded).numpy().tolist() == [[True, False]]
    np.testing.assert_array_equal(layer(padded)[0, 1], np.zeros(3))
    assert vectors.embedding(trainable=True).trainable_weights
    one_hot = keras.ops.one_hot(ids, 4)  # an embedding is a product with one-hot rows
    np.testing.assert_array_equal(one_hot @ layer.embeddings, rows)
    look_up = keras.layers.TextVectorization(vocabulary=vectors.words, standardize=None)
    assert look_up(["cat cow the"]).numpy().tolist() == [[3, 1, 2]]


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        ([], np.zeros((0, 2)), "at least one word"),
        (["a"], np.zeros((2, 2)), r"shape \(2, 2\) for 1 words"),
        (["a"], np.zeros(1), r"shape \(1,\)"),
        (["a", "a"], np.zeros((2, 2)), "must be different"),
        (["a", 3], np.zeros((2, 2)), "must be strings"),
        (["a", "b"], [[0, 0], [np.nan, 0]], "the row of 'b' is not"),
    ],
)
def test_refuses(words, matrix, message):
    with pytest.raises(ValueError, match=message):
        WordVectors(words, matrix)
