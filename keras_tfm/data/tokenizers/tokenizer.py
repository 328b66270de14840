"""The interface of all tokenizers, which run inside a TensorFlow graph and hence inside a SavedModel.

Each is saved as one file next to the model.
"""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class SpecialTokens(NamedTuple):
    """The ids that are added before and after the ids of a text.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")
    >>> special = keras_tfm.data.SpecialTokens(prefix=[tokenizer.start_id], suffix=[tokenizer.end_id])
    >>> keras_tfm.data.encode_sources(["ab"], tokenizer, 8, special)["token_ids"].numpy().tolist()
    [[1, 4, 5, 2]]
    """

    prefix: Sequence[int]
    suffix: Sequence[int]


class Tokenizer(tf.Module):
    """Converts strings to token ids and back, also in a `tf.function`. Abstract.

    There are `vocabulary_size` ids. Unless a subclass says otherwise, 0 is padding, 1 the start, 2 the end, 3
    an unknown token, and the others are pieces of words.

    >>> tokenizer = keras_tfm.data.CharacterTokenizer("abc")  # a subclass
    >>> tokenizer.vocabulary_size, tokenizer.num_added(), tokenizer.tokens[:4]
    (7, 2, ['[PAD]', '[START]', '[END]', '[UNK]'])
    >>> tokenizer.detokenize(tokenizer.tokenize(["cab"])).numpy().tolist()
    [b'cab']
    """

    pad_id, start_id, end_id, unknown_id = range(4)
    vocabulary_size: int
    ends_between = 1  # how many end tokens stand between the two texts of a pair: for RoBERTa two
    _added: Any = None  # `AddedTokens`, of a tokenizer that has any
    in_graphs: str = ""  # how the ids of a text in a graph may differ from its ids on the host, in a sentence
    replaced: tuple[tuple[str, str], ...] = ()  # what `detokenize` replaces last in its texts, in this order
    blank: str | None = None  # the spelling of the mask token in a text, if there is a mask token

    @property
    def tokens(self) -> list[str]:
        """The tokens by id, as vocabulary files spell them: "##ing", "▁the" or "Ġthe", "[SEP]"."""
        raise NotImplementedError

    @property
    def silent_ids(self) -> tuple[int, ...]:
        """The ids that `detokenize` omits."""
        return self.pad_id, self.start_id

    @property
    def added(self) -> tuple[Any, ...]:
        """The added tokens (`AddedToken`), control pieces included."""
        return () if self._added is None else self._added.tokens

    @property
    def ordinary(self) -> tuple[str, ...]:
        """The special tokens that `tokenize_with_offsets` reads as ordinary text."""
        return ()

    @property
    def between_ids(self) -> tuple[int, ...]:
        """The ids between the two texts of a pair."""
        return (self.end_id,) * self.ends_between

    def num_added(self, num_texts: int = 1) -> int:
        """The number of special tokens in a sequence made of `num_texts` texts."""
        return 2 + (num_texts - 1) * len(self.between_ids)

    def tokenize(self, strings) -> tf.RaggedTensor:
        """Split UTF-8 strings (B,) into ids (B, None), int32, without start and end."""
        raise NotImplementedError

    def tokenize_with_offsets(self, strings) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Ids as `tokenize` returns them, and the (start, end) offsets of each token in its string.

        Offsets count bytes, (B, None) int64, and fall on whole characters. The strings must be valid UTF-8.
        The spelling of the tokenizer's own special tokens, `ordinary`, is ordinary text here.
        """
        raise NotImplementedError

    def tokenize_words(self, words) -> tf.RaggedTensor:
        """Tokenize words (N,) of a text that is already split, each as if a space stood before it."""
        return self.tokenize(words)

    def detokenize(self, token_ids) -> tf.Tensor:
        """Join ids, ragged (B, None) or dense (B, T), into strings (B,).

        Padding, start tokens and everything from the first `end_id` on are omitted. An id outside the
        vocabulary reads as `unknown_id`.
        """
        if isinstance(token_ids, tf.RaggedTensor):
            token_ids = token_ids.to_tensor(self.end_id)
        token_ids = tf.cast(token_ids, tf.int32)  # (B, T)
        before_end = tf.cumsum(tf.cast(token_ids == self.end_id, tf.int32), axis=1) == 0
        is_text = before_end & tf.reduce_all(token_ids[..., None] != tf.constant(self.silent_ids), axis=-1)
        is_known = (token_ids >= 0) & (token_ids < self.vocabulary_size)
        token_ids = tf.where(is_known, token_ids, self.unknown_id)
        return self._join(tf.ragged.boolean_mask(token_ids, is_text))

    def _join(self, token_ids: tf.RaggedTensor) -> tf.Tensor:
        raise NotImplementedError

    def save(self, folder, name: str = "tokenizer") -> pathlib.Path:
        """Write the tokenizer's file into `folder`, for `load_tokenizer`, and return its path."""
        raise NotImplementedError

    def save_huggingface(self, folder):
        """Write the files that `transformers` reads into `folder`; TypeError if it has no such tokenizer."""
        raise TypeError(f"transformers knows no {type(self).__name__}.")


def of_ranges(values: tf.Tensor, starts: tf.Tensor, limits: tf.Tensor) -> tf.RaggedTensor:
    """Rows (B, None) that are `values[start:limit]`; the bounds (B,) are int64, as row splits are."""
    splits, places = tf.raw_ops.RaggedRange(starts=starts, limits=limits, deltas=tf.constant(1, tf.int64))
    return tf.RaggedTensor.from_row_splits(tf.gather(values, places), splits, validate=False)


def beside(first: tf.RaggedTensor, second: tf.RaggedTensor) -> tf.RaggedTensor:
    """The rows (B, None) of `first`, each followed by its row of `second`, as `tf.concat` along axis 1 gives
    them in five times as many operations.

    >>> from keras_tfm.data.tokenizers.tokenizer import beside
    >>> beside(tf.ragged.constant([[1], [2, 3]]), tf.ragged.constant([[4, 5], []], dtype="int32")).to_list()
    [[1, 4, 5], [2, 3]]
    """
    values = tf.concat([first.flat_values, second.flat_values], 0)
    ours, theirs = first.row_splits, second.row_splits
    there = theirs + tf.size(first.flat_values, tf.int64)
    starts = tf.reshape(tf.stack([ours[:-1], there[:-1]], 1), [-1])
    limits = tf.reshape(tf.stack([ours[1:], there[1:]], 1), [-1])
    pieces = of_ranges(values, starts, limits).flat_values
    return tf.RaggedTensor.from_row_splits(pieces, ours + theirs, validate=False)


def merged(parts: tf.RaggedTensor) -> tf.RaggedTensor:
    """Rows (B, words, pieces) as (B, pieces), without the many operations that check them in `merge_dims`.

    >>> from keras_tfm.data.tokenizers.tokenizer import merged
    >>> merged(tf.ragged.constant([[[1], [2, 3]], [], [[4]]])).to_list()
    [[1, 2, 3], [], [4]]
    """
    splits = tf.gather(parts.values.row_splits, parts.row_splits)
    return tf.RaggedTensor.from_row_splits(parts.values.values, splits, validate=False)
