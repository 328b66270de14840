"""Raw text to tf.data batches."""

from keras_tfm.data.sources import DataError, Pairs, read_lines, read_pairs

__all__ = ["DataError", "Pairs", "read_lines", "read_pairs"]
