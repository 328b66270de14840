"""A factorisation of ratings in TensorFlow's graph, for SavedModels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.word_vectors import MatrixFactorization


class ServedFactors(tf.Module):
    """Recommends items to users like `MatrixFactorization.top_n`, without the items that they have already
    rated.

    `seen`, a CSR matrix of users and items, holds what was rated. Unknown users get the items with the
    highest biases.
    """

    def __init__(self, model: MatrixFactorization, users: Sequence[str], items: Sequence[str], seen: Any):
        super().__init__(name="factors")
        unknown = len(users)  # the last row: zeros, and nothing rated
        places = tf.lookup.KeyValueTensorInitializer(users, range(unknown), tf.string, tf.int64)
        self.places = tf.lookup.StaticHashTable(places, unknown)
        self.items = tf.Variable(items, trainable=False)
        self.user_factors = tf.Variable(np.pad(model.user_factors, ((0, 1), (0, 0))), trainable=False)
        self.user_biases = tf.Variable(np.pad(model.user_biases, (0, 1)), trainable=False)
        self.item_factors = tf.Variable(model.item_factors, trainable=False)
        self.item_biases = tf.Variable(model.item_biases + model.mean, trainable=False)
        offsets = np.append(seen.indptr, seen.indptr[-1]).astype("int64")
        self.seen_offsets = tf.Variable(offsets, trainable=False)
        self.seen_items = tf.Variable(seen.indices.astype("int64"), trainable=False)

    def top(self, users: tf.Tensor, num_items: int) -> tuple[tf.Tensor, tf.Tensor]:
        """Items (B, N) and ratings (B, N) for the ids (B,); "" and NaN where no item is left."""
        rows = self.places.lookup(users)
        ratings = tf.matmul(tf.gather(self.user_factors, rows), self.item_factors, transpose_b=True)
        ratings += self.item_biases + tf.gather(self.user_biases, rows)[:, None]  # (B, D)
        seen = tf.gather(tf.RaggedTensor.from_row_splits(self.seen_items, self.seen_offsets, False), rows)
        places = tf.stack([seen.value_rowids(), seen.values], 1)
        never = tf.fill(tf.shape(seen.values), tf.constant(float("-inf"), ratings.dtype))
        ratings = tf.tensor_scatter_nd_update(ratings, places, never)
        best, chosen = tf.math.top_k(ratings, min(num_items, self.item_biases.shape[0]))
        is_left = tf.math.is_finite(best)
        items = tf.where(is_left, tf.gather(self.items, chosen), "")
        return items, tf.where(is_left, best, float("nan"))
