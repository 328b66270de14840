"""Tokenization of texts in which special tokens are spelled out, in a TensorFlow graph."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text

from keras_tfm.data.tokenizers.merges import SPACE
from keras_tfm.data.tokenizers.tokenizer import merged


def tokenize_parts(
    strings: tf.Tensor,
    pattern: str,
    names: Any,
    token_ids: Sequence[int],
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor],
) -> tf.RaggedTensor:
    """Ids (B, None), int32, of strings (B,) that may contain special tokens.

    The regular expression `pattern` matches a special token, one of `names`, perhaps with spaces before it.
    The token gets the id at the same place of `token_ids`; `tokenize` is applied to the texts in between.
    """
    parts = tf_text.regex_split(strings, pattern, keep_delim_regex_pattern=pattern)
    is_special = tf.strings.regex_full_match(parts.flat_values, pattern)
    found = tf.boolean_mask(parts.flat_values, is_special)
    found = tf.strings.regex_replace(found, f"^[{SPACE}]+", "")[:, None] == tf.constant(names)
    found = tf.gather(tf.constant(token_ids, tf.int32), tf.argmax(found, axis=1))
    found = tf.RaggedTensor.from_row_lengths(found, tf.cast(is_special, tf.int64))
    pieces = tokenize(tf.where(is_special, "", parts.flat_values))
    return merged(parts.with_flat_values(tf.concat([found, pieces], axis=1)))
