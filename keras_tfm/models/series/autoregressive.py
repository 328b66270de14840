"""Autoregressive models of numbers: the next value of a series from the k before it.

    linear      x_t = b + sum_i a_i x_(t-i)      AR(k): Yule 1927; Box and Jenkins 1970, chapter 3
    dense       a tanh layer of the k values, and a linear one
    recurrent   the k values one after the other through recurrent cells, and a linear layer of the last state

Deviates from the textbooks in that all values are taken relative to the window's last one, which is added to
the answer again: a series that rises is followed beyond all values that were seen. The output's kernel begins
with zeros, so that training begins at the naive forecast, the last value once more, and what the data do not
decide stays out of a linear model: it would grow with each value that is fed back.
"""

import dataclasses
from typing import Literal

import keras

from keras_tfm.configs import Config, Length, Size
from keras_tfm.models.base import ConfiguredModel
from keras_tfm.models.text.recurrent import CELLS


@dataclasses.dataclass(frozen=True)
class AutoregressiveConfig(Config):
    """`window` is k; `hidden_dim` the width of the layer or the state, None of a linear model alone; `cell`
    that of a recurrent one.
    """

    window: Length = 24
    kind: Literal["linear", "dense", "recurrent"] = "linear"
    hidden_dim: Size | None = None
    cell: Literal["simple", "lstm", "gru"] = "gru"

    def __post_init__(self):
        super().__post_init__()
        if (self.hidden_dim is None) != (self.kind == "linear"):
            raise ValueError(
                "`hidden_dim` must be None of a linear model, and a width of others; "
                f"it is {self.hidden_dim}, of a {self.kind} one."
            )


class Autoregressive(ConfiguredModel):
    """`values` (B, k), the latest last -> the next one (B, 1)."""

    config_class = AutoregressiveConfig

    def __init__(self, config, name="autoregressive", **kwargs):
        values = keras.Input((config.window,), name="values")
        last = values[:, -1:]
        x = values - last
        if config.kind == "dense":
            x = keras.layers.Dense(config.hidden_dim, "tanh", name="hidden")(x)
        elif config.kind == "recurrent":
            x = keras.layers.RNN(CELLS[config.cell](config.hidden_dim), name="recurrent")(x[..., None])
        y = keras.layers.Dense(1, kernel_initializer="zeros", name="output")(x) + last
        super().__init__(config, {"values": values}, y, {}, {}, name=name, **kwargs)


# This package's own.
Autoregressive.sizes = {
    "linear": AutoregressiveConfig(),
    "dense": AutoregressiveConfig(kind="dense", hidden_dim=32),
    "recurrent": AutoregressiveConfig(kind="recurrent", hidden_dim=32),
}
