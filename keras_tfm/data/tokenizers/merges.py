"""Shared parts of the byte-pair tokenizers: printable bytes, white space, files, and the merging.

SentencePiece's byte-pair model does the merging, in C++. It merges the pair with the highest score first,
here the pair of the lowest rank. Its characters are the printable ones that GPT-2 writes for bytes.
"""

import functools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from sentencepiece import sentencepiece_model_pb2

from keras_tfm.data.tokenizers.added import hashes
from keras_tfm.data.tokenizers.unigram import train_unigram
from keras_tfm.training.safetensors import read_json


def _names_of_bytes() -> list[str]:
    """GPT-2's printable character for each byte: the byte's own, or one after Latin-1."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


NAMES = _names_of_bytes()


def by_id(ids: Mapping[str, int]) -> list[str]:
    """The tokens of {token: id}, sorted by id."""
    return [token for token, _ in sorted(ids.items(), key=lambda item: item[1])]


def read_files(vocabulary, merges) -> tuple[list[str], list[str]]:
    """(Tokens, merges) of a vocab.json {token: id} and a merges.txt; ValueError for other content."""
    ids = _checked(read_json(vocabulary), vocabulary)
    lines = pathlib.Path(merges).read_text("utf-8").split("\n")
    return by_id(ids), [x for x in lines if x and not x.startswith("#version")]


def read_content(content: Mapping) -> tuple[list[str], list[str]]:
    """(Tokens, merges) of the content of a tokenizer.json of the type "BPE"; ValueError for other ids."""
    model = content["model"]
    added = {token["content"]: token["id"] for token in content.get("added_tokens", [])}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return by_id(_checked(model["vocab"] | added, "vocab")), merges


def _checked(ids: Mapping[str, int], name) -> Mapping[str, int]:
    """The mapping {token: id}; ValueError unless each of the ids 0, 1, ... occurs once."""
    if sorted(map(str, ids.values())) != sorted(map(str, range(len(ids)))):
        raise ValueError(f"{name}: expected {{token: id}} with the ids 0, 1, ...")
    return ids


def joined(strings: tf.RaggedTensor) -> tf.Tensor:
    """Join each row of strings (N, None) into one string: (N,).

    TensorFlow's `reduce_join` and `value_rowids` need memory for all rows at the length of the longest:
    terabytes if one text of 100 kB is among many.
    """
    starts, count = strings.row_splits[1:-1], tf.size(strings.flat_values, tf.int64)
    starts = tf.boolean_mask(starts, starts < count)[:, None]
    rows = tf.cumsum(tf.scatter_nd(starts, tf.ones_like(starts[:, 0]), [count]))
    return tf.strings.unsorted_segment_join(strings.flat_values, rows, strings.nrows())


def ranks_of(merges: Sequence[str]) -> dict[str, int]:
    """{result of a merge: its rank}; the first rank if several merges have the same result."""
    return {merge.replace(" ", "", 1): rank for rank, merge in reversed(list(enumerate(merges)))}


@functools.cache
def _quiet_normalizer():
    """A rule that never applies to names of bytes: SentencePiece logs a line for a model that has none."""
    return sentencepiece_model_pb2.ModelProto.FromString(train_unigram(["a"], 300)).normalizer_spec


def merging_model(tokens: Sequence[str], ranks: Mapping[str, int]) -> bytes:
    """A byte-pair model whose piece i + 1 is token i; piece 0 is unknown, which no byte is."""
    proto = sentencepiece_model_pb2.ModelProto()
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    proto.normalizer_spec.CopyFrom(_quiet_normalizer())
    proto.normalizer_spec.add_dummy_prefix = False
    proto.normalizer_spec.remove_extra_whitespaces = False
    proto.normalizer_spec.escape_whitespaces = False
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    proto.trainer_spec.unk_piece = "no token"  # equals no token, since none contains a space
    proto.pieces.add(piece=proto.trainer_spec.unk_piece, score=0.0, type=kinds.UNKNOWN)
    for token in tokens:
        kind = kinds.NORMAL if len(token) == 1 or token in ranks else kinds.CONTROL
        proto.pieces.add(piece=token, score=-float(ranks.get(token, len(ranks))), type=kind)
    return proto.SerializeToString(deterministic=True)


class WholeTokens:
    """Finds words that are tokens themselves; `token_ids` are {token: id}.

    >>> from keras_tfm.data.tokenizers.merges import WholeTokens
    >>> WholeTokens({"the": 5, "cat": 3})(tf.constant(["cat", "a", "the"])).numpy().tolist()
    [3, -1, 5]
    """

    def __init__(self, token_ids: Mapping[str, int]):
        tokens = np.array([token.encode() for token in token_ids], object)
        with tf.init_scope():
            hashed = hashes(tf.constant(tokens)).numpy()
        order = np.argsort(hashed)
        self._hashes, self._tokens = hashed[order], tokens[order]
        self._ids = np.array([*token_ids.values()], "int32")[order]

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """The ids of words (N,), -1 for a word that is no token."""
        place = tf.searchsorted(self._hashes, hashes(words))
        place = tf.minimum(place, len(self._ids) - 1)
        is_token = tf.gather(tf.constant(self._tokens), place) == words
        return tf.where(is_token, tf.gather(self._ids, place), -1)
