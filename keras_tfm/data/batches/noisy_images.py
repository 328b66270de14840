"""Batches of images with the noise and the time that a diffusion model learns them with."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.images import ImageBatches


class NoisyImageBatches(ImageBatches):
    """Batches ({"images", "noise": (B, H, W, C), "timesteps": (B,), ...},) of raw images.

    Noise is normal, a timestep uniform below `num_steps`. With a `seed` each epoch is shuffled, draws anew
    and with `flip` mirrors half of the images, as the seed and the epoch determine; without it all epochs
    are the same. `conditions` are further inputs, {name: (N, ...)}, "classes" for example; `shown` makes
    others, {name: (B, ...)}, of a batch of prepared images and a seed (2,).

    >>> images, normalize = np.zeros((4, 8, 8, 3), "uint8"), keras_tfm.data.Preprocessing().normalized
    >>> make = keras_tfm.data.batches.noisy_images.NoisyImageBatches
    >>> (inputs,) = next(iter(make(images, {}, normalize, batch_size=2, num_steps=1000).dataset()))
    >>> {name: tuple(x.shape) for name, x in inputs.items()}
    {'images': (2, 8, 8, 3), 'noise': (2, 8, 8, 3), 'timesteps': (2,)}
    """

    def __init__(
        self,
        images: Any,
        conditions: Mapping[str, Any],
        prepare: Callable[[tf.Tensor], tf.Tensor],
        batch_size: int,
        num_steps: int,
        seed: int | None = None,
        flip: bool = False,
        shown: Callable[[tf.Tensor, tf.Tensor], Mapping[str, tf.Tensor]] | None = None,
    ) -> None:
        self.num_steps, self.flip, self.shown = num_steps, flip, shown
        super().__init__(images, np.zeros(len(images), "int32"), prepare, batch_size, seed)
        with tf.device("cpu"):
            self.conditions = {name: tf.constant(x) for name, x in conditions.items()}

    def _batch(self, step, images, rows):
        key = tf.random.experimental.stateless_fold_in(step, self.seed or 0)
        keys = [tf.random.experimental.stateless_fold_in(key, i) for i in range(4)]
        if self.seed is not None and self.flip:
            images = tf.image.stateless_random_flip_left_right(images, keys[0])
        inputs, _ = super()._batch(step, images, rows)
        inputs["noise"] = tf.random.stateless_normal(tf.shape(inputs["images"]), keys[1])
        inputs["noise"].set_shape(inputs["images"].shape)
        inputs["timesteps"] = tf.random.stateless_uniform(
            tf.shape(rows), keys[2], 0, self.num_steps, tf.int32
        )
        inputs |= {name: tf.gather(x, rows) for name, x in self.conditions.items()}
        return (inputs | (self.shown(inputs["images"], keys[3]) if self.shown else {}),)
