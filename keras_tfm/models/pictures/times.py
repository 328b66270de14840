"""The time and the class of a noisy image as a vector, for the networks of diffusion models."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.models.base import ConfiguredModel


class SinesOfTimes(Layer):
    """Cosines and sines of times, in float32: (B,) -> (B, `dim`).

    The frequencies fall from 1 to 1/10,000, which they reach if `ends` says so, and by default one step
    later. The cosines come first, or the sines (Ho et al. 2020, appendix B, after Vaswani et al. 2017).
    """

    def __init__(self, dim: int, sines_first: bool = False, ends: bool = False, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # lower precision does not distinguish times
        if dim % 2 or dim < 4:
            raise ValueError(f"`dim` must be even and at least 4; it is {dim}.")
        self.dim = dim
        self.sines_first = sines_first
        self.ends = ends

    def call(self, times):
        """(B,) -> (B, dim)."""
        half = self.dim // 2
        frequencies = 10_000.0 ** (-np.arange(half) / (half - 1 if self.ends else half))
        angles = ops.cast(times, "float32")[:, None] * frequencies.astype("float32")  # (B, dim / 2)
        parts = [ops.sin(angles), ops.cos(angles)] if self.sines_first else [ops.cos(angles), ops.sin(angles)]
        return ops.cast(ops.concatenate(parts, axis=-1), self.compute_dtype)

    def compute_output_shape(self, times_shape):
        return (times_shape[0], self.dim)


class NoisePredictor(ConfiguredModel):
    """A network that predicts something of noisy images, `images` and `timesteps`, and, with `num_classes` in
    its configuration, of their `classes`. Abstract.
    """

    @staticmethod
    def condition(config, inputs, sines, width):
        """The sum (B, `width`) of a vector for the time, through two dense layers on its `sines`, and of one
        for the class; the classes become one of the `inputs`.
        """
        hidden = Dense(width, "silu", name="time_hidden")(sines(inputs["timesteps"]))
        condition = Dense(width, name="time")(hidden)
        if not config.num_classes:
            return condition
        inputs["classes"] = keras.Input((), dtype="int32", name="classes")
        return condition + TokenEmbedding(config.num_classes + 1, width, name="class")(inputs["classes"])

    def _fill(self, name, inputs):
        if name == "classes" and "images" in inputs:  # none
            return ops.full(ops.shape(inputs["images"])[:1], self.config.num_classes, "int32")
        return super()._fill(name, inputs)
