"""Batches of crops of pictures, made worse, with what they were."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_tfm.data.batches.degradations import RESTORATIONS
from keras_tfm.data.batches.epochs import Batches, count_batches, rows_of_epoch
from keras_tfm.data.sources.whole_images import WholeImages

TOGETHER = 16  # pictures whose crops alternate


class DegradedBatches(Batches):
    """Batches ({name: (B, crop, crop, C)}, {name: (B, scale crop, scale crop, C + 1)}) for `names` of
    RESTORATIONS, all of the same pictures: degraded crops, from 0 to 1, and the crops themselves, whose last
    channel is 1 where they are damaged.

    An epoch cuts `crops` crops of each of the images. With a `seed` it is shuffled, and crops are drawn,
    mirrored and turned anew; without it they are always the same.

    >>> whole = keras_tfm.data.sources.whole_images
    >>> images = whole.WholeImages([whole.encoded(np.zeros((30, 40, 3), "uint8"))], channels=3)
    >>> make = keras_tfm.data.batches.degraded_images.DegradedBatches
    >>> inputs, targets = next(iter(make(images, ["x2"], crop=8, crops=4, batch_size=4).dataset()))
    >>> inputs["x2"].shape, targets["x2"].shape
    (TensorShape([4, 8, 8, 3]), TensorShape([4, 16, 16, 4]))
    """

    def __init__(
        self,
        images: WholeImages,
        names: Sequence[str],
        crop: int,
        crops: int,
        batch_size: int,
        seed: int | None = None,
    ) -> None:
        self.names, self.crop, self.crops, self.seed = list(names), crop, crops, seed
        self.count, self.channels, self.decode = len(images), images.channels, images.decoder()
        self.side = crop * max(RESTORATIONS[name].scale for name in names)  # of the crops of good pictures
        self.batch_size = min(batch_size, self.count * crops)
        self.num_batches = count_batches(self.count * crops, self.batch_size, seed)

    def _epoch(self, number):
        rows = tf.data.Dataset.from_tensor_slices(rows_of_epoch(self.count, self.seed, number))
        cut = rows.map(lambda row: self._cut(row, number), tf.data.AUTOTUNE, deterministic=True)
        mixed = (
            cut.batch(TOGETHER).map(lambda crops: tf.transpose(crops, (1, 0, 2, 3, 4))).unbatch().unbatch()
        )
        batches = mixed.batch(self.batch_size, self.seed is not None).enumerate()
        return batches.map(
            lambda step, images: self._degraded(self._key(number, step), images),
            tf.data.AUTOTUNE,
            deterministic=True,
        )

    def _key(self, number, part):
        key = tf.stack([tf.cast(number, tf.int64), tf.cast(part, tf.int64)])
        return tf.random.experimental.stateless_fold_in(key, self.seed or 0)

    def _cut(self, row, number):
        """Crops of the picture in this row: (crops, side, side, C), 8-bit."""
        image = self.decode(row)
        draws = tf.random.stateless_uniform((self.crops, 2), self._of_row(number, row))
        return self._crops(image, self._corners(image, draws))

    def _of_row(self, number, row):
        """The key by which the crops of a picture are drawn."""
        return tf.random.experimental.stateless_fold_in(self._key(number, row), 1)

    def _corners(self, image, draws):
        """Corners of crops in an image, by numbers from 0 to 1: (crops, 2)."""
        room = tf.cast(tf.shape(image)[:2] - self.side + 1, tf.float32)
        return tf.cast(draws * room, tf.int32)

    def _crops(self, image, corners):
        """The crops of an image with these upper left `corners` (crops, 2): (crops, side, side, C), 8-bit."""
        shape = self.side, self.side, self.channels
        return tf.map_fn(
            lambda corner: tf.ensure_shape(tf.slice(image, tf.pad(corner, [[0, 1]]), shape), shape),
            corners,
            fn_output_signature=tf.TensorSpec(shape, tf.uint8),
        )

    def _degraded(self, key, images):
        images = tf.cast(images, tf.float32) / 255
        keys = tf.random.experimental.stateless_split(key, len(self.names) + 3)
        if self.seed is not None:
            images = tf.image.stateless_random_flip_left_right(images, keys[-1])
            images = tf.image.stateless_random_flip_up_down(images, keys[-2])
            is_turned = tf.random.stateless_uniform((), keys[-3]) < 0.5
            images = tf.cond(is_turned, lambda: tf.transpose(images, (0, 2, 1, 3)), lambda: images)
        return self._pairs(images, keys)

    def _pairs(self, images, keys):
        """The batch of good crops (B, side, side, C) from 0 to 1; each of the names has one of the keys."""
        inputs, targets = {}, {}
        for name, each in zip(self.names, tf.unstack(keys[: len(self.names)]), strict=True):
            restoration = RESTORATIONS[name]
            side = self.crop * restoration.scale
            good = images[:, :side, :side]
            bad = restoration.degrade(good, each)
            shape = (None, self.crop, self.crop, self.channels)
            inputs[name] = tf.ensure_shape(bad.images, shape)
            targets[name] = tf.concat([good, bad.damage], -1)
        return inputs, targets


class ReferencedBatches(DegradedBatches):
    """`DegradedBatches` whose inputs also have `reference` (B, side, side, C), good crops of other pictures,
    of the same size as the good ones to be restored.

    They are crops of `references`, one for each of the images, at the same relative place. Without
    `references` they are crops of the same picture that do not overlap: along the longer side of it, which
    must have room for both, one stands before the other.

    >>> whole = keras_tfm.data.sources.whole_images
    >>> images = whole.WholeImages([whole.encoded(np.zeros((40, 64, 3), "uint8"))], channels=3)
    >>> make = keras_tfm.data.batches.degraded_images.ReferencedBatches
    >>> inputs, _ = next(iter(make(images, None, ["x4"], crop=8, crops=4, batch_size=4).dataset()))
    >>> inputs["x4"].shape, inputs["reference"].shape
    (TensorShape([4, 8, 8, 3]), TensorShape([4, 32, 32, 3]))
    """

    def __init__(self, images: WholeImages, references: WholeImages | None, *rest: Any, **options: Any):
        super().__init__(images, *rest, **options)
        self.decode_reference = None if references is None else references.decoder()

    def _cut(self, row, number):
        """Crops and their references, as further channels: (crops, side, side, 2 C), 8-bit."""
        image, key = self.decode(row), self._of_row(number, row)
        if self.decode_reference is None:
            parts = [self._crops(image, corners) for corners in self._corners_apart(image, key)]
        else:
            draws = tf.random.stateless_uniform((self.crops, 2), key)
            pictures = image, self.decode_reference(row)
            parts = [self._crops(picture, self._corners(picture, draws)) for picture in pictures]
        return tf.concat(parts, -1)

    def _corners_apart(self, image, key):
        """Corners of two crops each that do not overlap: two tensors (crops, 2)."""
        size = tf.shape(image)[:2]
        is_long = tf.one_hot(tf.argmax(size), 2, dtype=tf.int32)
        room = tf.cast(size - self.side * (1 + is_long) + 1, tf.float32)
        keys = tf.random.experimental.stateless_split(key, 2)
        draws = tf.random.stateless_uniform((2, self.crops, 2), keys[0])
        first, second = tf.unstack(tf.where(is_long > 0, tf.sort(draws, 0), draws))
        corners = tf.cast(first * room, tf.int32), tf.cast(second * room, tf.int32) + self.side * is_long
        is_swapped = tf.random.stateless_uniform((self.crops, 1), keys[1]) < 0.5
        return tf.where(is_swapped, *corners[::-1]), tf.where(is_swapped, *corners)

    def _pairs(self, images, keys):
        images, references = tf.split(images, 2, -1)
        inputs, targets = super()._pairs(images, keys)
        shape = None, self.side, self.side, self.channels
        return inputs | {"reference": tf.ensure_shape(references, shape)}, targets
