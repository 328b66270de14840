"""Text to ids and back, in a graph, in a file, in a SavedModel: what all kinds promise."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import BERTTokenizer, DataError, SentencePieceTokenizer, load_tokenizer, train_tokenizer
from keras_tfm.training.safetensors import CheckpointError

LINES = [
    "Two young men, outside, near many bushes.",
    "A man in a blue shirt is standing on a ladder",
    "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche.",
    "Καλημέρα κόσμε! Τι ώρα είναι;",
    "  two  spaces, 1999-12-31  ",
    "我们 在 北京。",
] * 20
KINDS = {"sentencepiece": SentencePieceTokenizer, "wordpiece": BERTTokenizer}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return train_tokenizer(LINES, request.param, 400)


def decoded(strings: tf.Tensor) -> list[str]:
    return [string.decode() for string in strings.numpy()]


def round_trip(tokenizer, strings: list[str]) -> list[str]:
    return decoded(tokenizer.detokenize(tokenizer.tokenize(strings)))


def test_interface(tokenizer):
    special = {tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id}
    assert tokenizer.pad_id == 0 and len(special) == 4 and max(special) < 5 < tokenizer.vocabulary_size <= 400
    token_ids = tokenizer.tokenize(["a man", "", "on a ladder"])
    assert isinstance(token_ids, tf.RaggedTensor) and token_ids.dtype == tf.int32
    assert token_ids.row_lengths().numpy()[1] == 0
    assert (
        tf.reduce_min(token_ids.flat_values) > max(special)
        and tf.reduce_max(token_ids) < tokenizer.vocabulary_size
    )
    assert round_trip(tokenizer, ["a man", "", "on a ladder"]) == ["a man", "", "on a ladder"]
    assert tokenizer.tokenize([]).shape[0] == 0
    assert tokenizer.detokenize(tf.zeros((0, 3), tf.int32)).shape == (0,)
    assert decoded(tokenizer.detokenize(tf.zeros((2, 0), tf.int32))) == ["", ""]


def test_text_ends_at_the_first_end(tokenizer):
    text = tokenizer.tokenize(["a man"])[0].numpy().tolist()
    start, end = tokenizer.start_id, tokenizer.end_id
    rows = [[start, *text, end, 0, 0], [*text, end, *text], [0, 0, start, *text], [end, *text], [start, 0]]
    expected = ["a man", "a man", "a man", "", ""]
    ragged = tf.ragged.constant(rows, dtype=tf.int64)
    assert decoded(tokenizer.detokenize(ragged)) == expected
    assert decoded(tokenizer.detokenize(ragged.to_tensor())) == expected


def test_ids_outside_the_vocabulary_read_as_unknown(tokenizer):
    unknown = decoded(tokenizer.detokenize([[tokenizer.unknown_id]]))
    for token_id in (tokenizer.vocabulary_size, 2**31 - 1, -1):
        assert decoded(tokenizer.detokenize([[token_id]])) == unknown != [""]


def test_graph_equals_eager(tokenizer):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def in_graph(strings):
        token_ids = tokenizer.tokenize(strings)
        return token_ids.to_tensor(), tokenizer.detokenize(token_ids)

    token_ids, strings = in_graph(LINES[:6])
    assert np.array_equal(token_ids, tokenizer.tokenize(LINES[:6]).to_tensor())
    assert decoded(strings) == round_trip(tokenizer, LINES[:6])
    in_graph(tf.constant([], tf.string))


def test_a_saved_model_carries_its_tokenizer(tokenizer, tmp_path):
    module = tf.Module()
    module.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def serve(strings):
        return tokenizer.detokenize(tokenizer.tokenize(strings))

    module.serve = serve
    tf.saved_model.save(module, str(tmp_path), signatures=serve)
    loaded = tf.saved_model.load(str(tmp_path)).serve(tf.constant(LINES[:6]))
    assert decoded(loaded) == round_trip(tokenizer, LINES[:6])


def test_save_and_load(tokenizer, tmp_path):
    path = tokenizer.save(tmp_path, "source")
    suffix = ".model" if isinstance(tokenizer, SentencePieceTokenizer) else ".json"
    assert path == tmp_path / f"source{suffix}"
    loaded = load_tokenizer(tmp_path, "source")
    assert type(loaded) is type(tokenizer) and loaded.vocabulary_size == tokenizer.vocabulary_size
    assert np.array_equal(loaded.tokenize(LINES).flat_values, tokenizer.tokenize(LINES).flat_values)
    assert loaded.save(tmp_path, "again").read_bytes() == path.read_bytes()


def test_a_file_cut_anywhere_is_refused_or_whole(tokenizer, tmp_path):
    path = tokenizer.save(tmp_path)
    content = path.read_bytes()
    for size in {*range(0, len(content), 97), *range(len(content) - 60, len(content))}:
        path.write_bytes(content[:size])
        try:
            loaded = load_tokenizer(tmp_path)
        except (DataError, CheckpointError) as error:
            assert str(error).startswith(f"{path}: expected ") and "\n" not in str(error)
        else:  # but for the newline at its end
            assert round_trip(loaded, LINES[:6]) == round_trip(tokenizer, LINES[:6])
            assert loaded.vocabulary_size == tokenizer.vocabulary_size
    path.write_bytes(b"\xff\xfe not a tokenizer")
    with pytest.raises((DataError, CheckpointError), match="expected"):
        load_tokenizer(tmp_path)


def test_seeding_tensorflow_leaves_it_whole(tokenizer):
    """It clears TensorFlow's eager kernels, and tensorflow_text's SentencePiece models with them."""
    in_graph = tf.function(lambda strings: tokenizer.detokenize(tokenizer.tokenize(strings)))
    before = decoded(in_graph(tf.constant(LINES[:6])))
    tf.random.set_seed(1)
    assert before == decoded(in_graph(tf.constant(LINES[:6]))) == round_trip(tokenizer, LINES[:6])


def test_no_tokenizer(tmp_path):
    with pytest.raises(DataError) as caught:
        load_tokenizer(tmp_path)
    expected = "expected a tokenizer, tokenizer.model or tokenizer*.json, got none"
    assert str(caught.value) == f"{tmp_path}: {expected}"


def test_word_pieces_of_an_earlier_version_are_refused(tmp_path):
    """They were split otherwise than BERT's: no other tokenizer has their ids."""
    path = tmp_path / "source.vocab.txt"
    path.write_text("[PAD]\n[START]\n[END]\n[UNK]\na\n")
    with pytest.raises(DataError) as caught:
        load_tokenizer(tmp_path, "source")
    problem = "expected source.json, got word pieces of an earlier version: train the tokenizer anew"
    assert str(caught.value) == f"{path}: {problem}"


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic_and_silent(kind, capfd, tmp_path):
    first, second = (train_tokenizer(iter(LINES), kind, 350).save(tmp_path, name) for name in "ab")
    load_tokenizer(tmp_path, "a").tokenize(["a"])
    assert first.read_bytes() == second.read_bytes()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "lines",
    [
        ["a"], ["1"], ["a b"] * 10, ["", "x", ""], ["▁ \0 \n."], ["x" * 100_000], ["[UNK] <s> </s>"],
        [chr(0x4E00 + i) for i in range(5000)], ["".join(chr(0x4E00 + i) for i in range(5000))],
        ["\U0010ffff\ufdd0\ue000"], ["é", "e\u0301", "\u200d"], [str(i) for i in range(10)],
    ],
)  # fmt: skip
def test_any_little_text_trains_some_tokenizer(kind, lines):
    tokenizer = train_tokenizer(lines, kind, 300)
    assert 4 <= tokenizer.vocabulary_size <= 300
    assert len(round_trip(tokenizer, lines)) == len(lines)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_trained(kind):
    with pytest.raises(ValueError, match="lines: expected text to train a tokenizer on, got none"):
        train_tokenizer(["", ""], kind)
    with pytest.raises(ValueError, match="lines: expected words to train a tokenizer on, got none"):
        train_tokenizer([" ", "\n\0\u200b"], "wordpiece")
    with pytest.raises(ValueError, match="`vocabulary_size` must be at least 300; it is 299"):
        train_tokenizer(LINES, kind, 299)
    with pytest.raises(
        ValueError, match="kind: expected sentencepiece, wordpiece, bytes, characters, got 'bpe'"
    ):
        train_tokenizer(LINES, "bpe")


def test_foreign_files_are_refused():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    for vocabulary in ([], ["[PAD]", "a"], [*special, "a", "a"]):
        with pytest.raises(ValueError, match="expected pieces, each once, with"):
            BERTTokenizer(vocabulary)
    with pytest.raises(ValueError, match="expected a SentencePiece model"):
        SentencePieceTokenizer(b"no model")
