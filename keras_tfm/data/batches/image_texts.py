"""Images and their texts in batches in which each is told apart from all others."""

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.sources.image_files import ImageFiles


class ImageTextBatches(ImageBatches):
    """Batches ({"images": (B, H, W, C), ...}, zeros (B,)) of raw images, an array or `ImageFiles`, and what
    is read of their `texts`, {input: (N, T)}. What is true is that a row's image and text belong together, so
    that targets say nothing. The order and the shifts are those of `ImageBatches`.
    """

    def __init__(
        self,
        images: np.ndarray | ImageFiles,
        texts: Mapping[str, tf.Tensor],
        prepare: Callable[[tf.Tensor], tf.Tensor],
        batch_size: int,
        seed: int | None = None,
        max_shift: int = 0,
    ):
        super().__init__(images, np.zeros(len(images), "float32"), prepare, batch_size, seed, max_shift)
        with tf.device("cpu"):
            self.texts = {name: tf.identity(x) for name, x in texts.items()}

    def _batch(self, step, images, rows):
        inputs, targets = super()._batch(step, images, rows)
        return inputs | {name: tf.gather(x, rows) for name, x in self.texts.items()}, targets
