"""Batches of images with labels.

Raw images are 8-bit, 0 .. 255, or floating-point, 0 .. 1. Reading, resizing and shifting keep this form; only
`Preprocessing` turns them into a model's input, in training and in the export.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.configs import Refusal
from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.epochs import Batches, count_batches, rows_of_epoch


def check_images(images, channels) -> np.ndarray:
    """Raw images as an array (B, H, W, C); (B, H, W) is allowed if `channels` is 1.

    8-bit images stay as they are; floating-point ones become float32 and must lie in 0 .. 1. Raises
    ValueError for anything else.
    """
    images = np.asarray(images)
    if images.ndim == 3 and channels == 1:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] != channels or 0 in images.shape[1:]:
        expected = "(B, H, W) or (B, H, W, 1)" if channels == 1 else f"(B, H, W, {channels})"
        raise ValueError(f"`images` must have the shape {expected}; it is {images.shape}.")
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise ValueError(f"`images` must be uint8, 0 to 255, or floats, 0 to 1; they are {images.dtype}.")
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(
            f"Floating-point `images` must lie in 0 .. 1; they span {images.min()} to {images.max()}."
        )
    return images.astype("float32", copy=False)


class ImageBatches(Batches):
    """Batches ({"images": (B, H, W, C)}, labels (B,)) of raw images, an array or `ImageFiles`.

    With a `seed` each epoch is shuffled, shifted by up to `max_shift` pixels in each direction and changed by
    `augmentation`, in a way that depends on the seed and the epoch; examples that do not fill a batch are
    left out of the epoch, so that all batches have one shape. Without a `seed` the images keep their order.
    With `num_classes` the labels are soft, (B, `num_classes`). `prepare` makes the model's input.

    >>> images, labels = np.zeros((5, 8, 8, 3), "uint8"), np.array([0, 1, 0, 1, 1])
    >>> normalize = keras_tfm.data.Preprocessing().normalized
    >>> batches = keras_tfm.data.ImageBatches(images, labels, normalize, batch_size=2)
    >>> inputs, labels = next(iter(batches.dataset()))
    >>> inputs["images"].shape, labels.numpy().tolist()
    (TensorShape([2, 8, 8, 3]), [0, 1])
    """

    input_name = "images"

    def __init__(
        self,
        images: Any,
        labels: Sequence[int] | Sequence[bytes] | np.ndarray,
        prepare: Callable[[tf.Tensor], tf.Tensor] | None,
        batch_size: int,
        seed: int | None = None,
        max_shift: int = 0,
        augmentation: Augmentation | None = None,
        num_classes: int | None = None,
    ) -> None:
        with tf.device("cpu"):  # a data set may be larger than an accelerator's memory
            self.images = tf.constant(images) if isinstance(images, np.ndarray) else images
            self.labels = tf.constant(labels)
        self.prepare: Any = prepare  # None where a subclass makes the model's input itself
        self.batch_size = min(batch_size, len(images))
        self.seed = seed
        if max_shift >= (side := min(images.shape[-3:-1])):
            raise Refusal("max_shift", f"below {side}, the images' side", max_shift)
        self.max_shift = max_shift
        self.augmentation = augmentation
        self.num_classes = num_classes
        self.num_batches = count_batches(len(images), self.batch_size, seed)

    def _order(self, number):
        """The rows of the epoch `number`, int64."""
        return rows_of_epoch(len(self.images), self.seed, number)

    def _epoch(self, number):
        order = tf.data.Dataset.from_tensor_slices(self._order(number))
        rows = order.batch(self.batch_size, self.seed is not None)
        if isinstance(self.images, tf.Tensor):
            images = rows.map(lambda rows: tf.gather(self.images, rows))
        else:
            images = self._examples(order, number).batch(self.batch_size, self.seed is not None)
        batches = tf.data.Dataset.zip(images, rows).enumerate()
        return batches.map(lambda step, batch: self._batch(tf.stack([number, step]), *batch))

    def _examples(self, order, number):
        """The images of the epoch `number` that are not in memory, one by one, in the `order` of their
        rows.
        """
        return self.images.dataset(order)

    def _batch(self, step, images, rows):
        labels = tf.gather(self.labels, rows)
        if self.num_classes is not None:
            labels = tf.one_hot(labels, self.num_classes)
        if self.seed is not None:
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            if self.max_shift:
                images = shift_images(images, self.max_shift, key)
            if self.augmentation is not None:
                images, labels = self.augmentation(images, labels, key)
        return {self.input_name: self.prepare(images)}, labels


def shift_images(images, max_shift, seed):
    """Move each image (B, H, W, C) by up to `max_shift` pixels in each direction; zeros fill the border."""
    batch_size, height, width, _ = tf.unstack(tf.shape(images))
    offsets = tf.random.stateless_uniform((2, batch_size, 1), seed, 0, 2 * max_shift + 1, tf.int32)
    edges = (max_shift, max_shift)
    images = tf.pad(images, ((0, 0), edges, edges, (0, 0)))
    images = tf.gather(images, offsets[0] + tf.range(height), axis=1, batch_dims=1)
    return tf.gather(images, offsets[1] + tf.range(width), axis=2, batch_dims=1)
