"""From the pieces of changed texts back to the bytes of the texts as they came."""

import tensorflow as tf


def original_offsets(
    starts: tf.RaggedTensor,
    ends: tf.RaggedTensor,
    characters: tf.RaggedTensor,
    sizes: tf.RaggedTensor,
    lengths: tf.Tensor,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Where pieces (B, pieces), at least a byte each, stand in the strings that they were made of.

    They stand at `starts` and `ends`, in bytes, in strings that the `characters` (B, C) of the original ones
    became: the bytes where those begin, of strings of `lengths` (B,), and in `sizes` (B, C) how many bytes
    became of each. A character that became nothing belongs to the one before it, and one of which a piece has
    a part is the piece's whole.
    """
    kept = sizes > 0
    characters, sizes = (tf.ragged.boolean_mask(x, kept) for x in (characters, sizes))
    limits = tf.concat([characters, lengths[:, None]], axis=1)[:, 1:]  # (B, C)
    source = tf.repeat(tf.range(tf.size(sizes.flat_values)), sizes.flat_values)  # of each byte, a character
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
