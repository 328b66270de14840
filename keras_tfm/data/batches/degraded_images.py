"""Batches of crops of pictures, made worse, with what they were."""

from collections.abc import Sequence

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
        key = tf.random.experimental.stateless_fold_in(self._key(number, row), 1)
        room = tf.cast(tf.shape(image)[:2] - self.side + 1, tf.float32)
        corners = tf.cast(tf.random.stateless_uniform((self.crops, 2), key) * room, tf.int32)
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
