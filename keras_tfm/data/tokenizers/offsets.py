"""Offsets of tokens in normalised text, mapped back to the original text."""

import tensorflow as tf


def original_offsets(
    starts: tf.RaggedTensor,
    ends: tf.RaggedTensor,
    characters: tf.RaggedTensor,
    sizes: tf.RaggedTensor,
    lengths: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """The byte offsets, in the original strings, of pieces (B, pieces) of their normalised strings.

    `starts` and `ends` are the pieces' offsets in the normalised strings; no piece is empty. `characters`
    (B, C) are the offsets of the original characters, `lengths` (B,) the original strings' lengths, and
    `sizes` (B, C) the number of normalised bytes of each character. A character that normalises to nothing
    belongs to the one before it; a character that a piece contains in part belongs to the piece completely.
    """
    kept = sizes > 0
    characters, sizes = (tf.ragged.boolean_mask(x, kept) for x in (characters, sizes))
    limits = tf.concat([characters, lengths[:, None]], axis=1)[:, 1:]  # (B, C)
    source = tf.repeat(tf.range(tf.size(sizes.flat_values)), sizes.flat_values)  # the character of each byte
    base = tf.cumsum(tf.reduce_sum(sizes, axis=1), exclusive=True)  # (B,)
    base = tf.gather(base, starts.value_rowids())
    firsts, lasts = (tf.gather(source, base + x) for x in (starts.flat_values, ends.flat_values - 1))
    return (
        starts.with_flat_values(tf.gather(characters.flat_values, firsts)),
        starts.with_flat_values(tf.gather(limits.flat_values, lasts)),
    )


def encoded_size(points: tf.Tensor) -> tf.Tensor:
    """How many bytes UTF-8 has for each code point, int64."""
    return 1 + sum(tf.cast(points >= least, tf.int64) for least in (0x80, 0x800, 0x10000))


def composed(strings: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Strings (B,) composed (NFC), and the maps back to them for `at_source`."""
    from keras_tfm.private.tensorflow_text import tf_text

    # One empty string is added: for no strings at all tensorflow_text would read outside its memory.
    texts, sources = tf_text.normalize_utf8_with_offsets_map(tf.concat([strings, [""]], 0), "NFC")
    return texts[:-1], sources


def at_source(sources: tf.Tensor, offsets: tf.RaggedTensor) -> tf.RaggedTensor:
    """Offsets (B, None) in composed strings as offsets in the original strings; `sources` has B + 1 maps."""
    from keras_tfm.private.tensorflow_text import tf_text

    found = tf_text.find_source_offsets(sources, tf.pad(offsets.to_tensor(), [[0, 1], [0, 1]]))
    return tf.RaggedTensor.from_tensor(found[:-1], offsets.row_lengths())
