"""Batches of images that are to be made again."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.images import ImageBatches


class ReconstructionBatches(ImageBatches):
    """Batches ({"images": x}, {output: x}) of raw images, which `prepare` makes the model's input x.

    With a `seed` each epoch is shuffled, and with `flip` mirrors half of the images, as the seed and the
    epoch determine; without it all epochs are the same.

    >>> images, normalize = np.zeros((4, 8, 8, 3), "uint8"), keras_tfm.data.Preprocessing().normalized
    >>> make = keras_tfm.data.batches.reconstructions.ReconstructionBatches
    >>> inputs, targets = next(iter(make(images, normalize, ["images"], batch_size=2).dataset()))
    >>> inputs["images"].shape, targets["images"].shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 8, 8, 3]))
    """

    def __init__(
        self,
        images: Any,
        prepare: Callable[[tf.Tensor], tf.Tensor],
        outputs: Iterable[str],
        batch_size: int,
        seed: int | None = None,
        flip: bool = False,
    ) -> None:
        self.outputs, self.flip = tuple(outputs), flip
        super().__init__(images, np.zeros(len(images), "int32"), prepare, batch_size, seed)

    def _batch(self, step, images, rows):
        if self.seed is not None and self.flip:
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            images = tf.image.stateless_random_flip_left_right(images, key)
        inputs, _ = super()._batch(step, images, rows)
        return inputs, dict.fromkeys(self.outputs, inputs["images"])
