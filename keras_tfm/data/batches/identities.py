"""Batches of several images of each of several identities."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Refusal
from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.epochs import shuffled
from keras_tfm.data.batches.images import ImageBatches


class IdentityBatches(ImageBatches):
    """Batches ({"images": (B, H, W, C)}, labels (B,)) of `num_identities` times `num_images` images.

    With a `seed` each batch has as many different identities, and as many images of each; one with fewer
    images repeats them. An epoch has about as many images as there are: identities come in a shuffled order,
    again and again, and so do the images of each. Without a seed all images come once, identity by identity.
    With `cameras` (N,), numbers, the inputs have "camera" too.

    Hermans et al. 2017, "In Defense of the Triplet Loss for Person Re-Identification", section 2.

    >>> images, labels = np.zeros((12, 8, 4, 3), "uint8"), np.arange(12) % 3
    >>> batches = keras_tfm.data.IdentityBatches(images, labels, tf.identity, 2, 3, seed=0)
    >>> inputs, labels = next(iter(batches.dataset()))
    >>> inputs["images"].shape, sorted(np.bincount(labels, minlength=3).tolist())
    (TensorShape([6, 8, 4, 3]), [0, 3, 3])
    """

    def __init__(
        self,
        images: Any,
        labels: Sequence[int] | np.ndarray,
        prepare: Callable[[tf.Tensor], tf.Tensor],
        num_identities: int,
        num_images: int,
        seed: int | None = None,
        max_shift: int = 0,
        augmentation: Augmentation | None = None,
        cameras: np.ndarray | None = None,
    ) -> None:
        labels = np.asarray(labels, "int32")
        size = num_identities * num_images
        super().__init__(images, labels, prepare, size, seed, max_shift, augmentation)
        self.cameras = None if cameras is None else tf.constant(cameras, tf.int32)
        self.by_identity = np.argsort(labels, kind="stable")  # (N,)
        present, self.counts = np.unique(labels, return_counts=True)
        self.num_images = num_images
        if seed is None:
            return
        if num_identities > len(present):
            raise Refusal(
                "identities_in_batch", f"at most {len(present)}, as many as there are", num_identities
            )
        self.batch_size, self.num_identities = size, num_identities
        self.num_batches = max(1, len(labels) // size)

    def _order(self, number):
        if self.seed is None:
            return tf.constant(self.by_identity, tf.int64)
        count = len(self.counts)
        in_pass = count // self.num_identities  # batches in which all identities come once, but for a rest
        passes = -(-self.num_batches // in_pass)
        keys = tf.random.stateless_uniform([passes, count], tf.stack([self.seed, number]))
        identities = tf.argsort(keys)[:, : in_pass * self.num_identities]  # (passes, I)
        # The images of each identity in an order of this epoch's.
        within = shuffled(len(self.by_identity), self.seed, -1 - number, _ranks(self.counts))
        images = tf.gather(tf.constant(self.by_identity, tf.int64), within)
        firsts, counts = (tf.constant(x, tf.int64) for x in (_firsts(self.counts), self.counts))
        visits = tf.range(passes, dtype=tf.int64)[:, None, None] * self.num_images
        places = visits + tf.range(self.num_images, dtype=tf.int64)  # (passes, 1, K)
        places = places % tf.gather(counts, identities)[..., None]  # (passes, I, K)
        rows = tf.gather(images, tf.gather(firsts, identities)[..., None] + places)
        return tf.reshape(rows, [-1])[: self.num_batches * self.batch_size]

    def _batch(self, step, images, rows):
        inputs, labels = super()._batch(step, images, rows)
        if self.cameras is not None:
            inputs = {**inputs, "camera": tf.gather(self.cameras, rows)}
        return inputs, labels


def _firsts(counts):
    return np.cumsum(counts) - counts


def _ranks(counts):
    """For each place the number of its identity, where identities stand one after another."""
    return np.repeat(np.arange(len(counts)), counts)
