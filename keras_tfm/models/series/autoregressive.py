"""Autoregressive models of numbers: they predict the next value of a series from the k values before it.

    linear      x_t = b + sum_i a_i x_(t-i)      AR(k): Yule 1927; Box and Jenkins 1970, chapter 3
    dense       a tanh layer on the k values, then a linear layer
    recurrent   recurrent cells read the k values in order, then a linear layer on the last state

Deviates from the textbooks: all values are taken relative to the last one, which is added to the prediction
again. So a rising series is continued beyond all values seen in training. The output kernel starts at zero.
Training then starts from the naive forecast, the last value again, and directions that the data do not
determine stay out of a linear model; they would grow each time a prediction is fed back.
"""

import dataclasses
from typing import Any, Literal

import keras

from keras_tfm.configs import Config, Length, Refusal, Size
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.text.recurrent import CELLS

# Of cells, the same in every process and for every model, since weights are kept by their paths.
NAMES = {"simple": "simple_rnn_cell", "lstm": "lstm_cell", "gru": "gru_cell"}


@dataclasses.dataclass(frozen=True)
class AutoregressiveConfig(Config):
    """The sizes of an `Autoregressive` model.

    Args:
        window: k, the number of values that it reads.
        kind: "linear", "dense" or "recurrent".
        hidden_dim: the width of the dense layer or of the state; None for a linear model.
        cell: that of a recurrent model.
    """

    window: Length = 24
    kind: Literal["linear", "dense", "recurrent"] = "linear"
    hidden_dim: Size | None = None
    cell: Literal["simple", "lstm", "gru"] = "gru"

    def __post_init__(self):
        super().__post_init__()
        if (self.hidden_dim is None) != (self.kind == "linear"):
            raise Refusal(
                "hidden_dim",
                'None for the kind "linear", and a width for others',
                f"{self.hidden_dim} for {self.kind!r}",
            )


class Autoregressive(ConfiguredModel):
    """The next value of a series: `values` (B, k), the latest last, -> (B, 1).

    >>> model = keras_tfm.models.Autoregressive.from_size("linear", window=3)
    >>> model(np.array([[1.0, 2.0, 3.0]])).numpy().tolist()  # the naive forecast, before training
    [[3.0]]
    """

    config_class = AutoregressiveConfig

    def __init__(self, config: AutoregressiveConfig, name: str = "autoregressive", **kwargs: Any) -> None:
        values = keras.Input((config.window,), name="values")
        last = values[:, -1:]
        x = values - last
        if config.kind == "dense":
            x = keras.layers.Dense(config.hidden_dim, "tanh", name="hidden")(x)
        elif config.kind == "recurrent":
            cell = CELLS[config.cell](config.hidden_dim, name=NAMES[config.cell])
            x = keras.layers.RNN(cell, name="recurrent")(x[..., None])
        y = keras.layers.Dense(1, kernel_initializer="zeros", name="output")(x) + last
        super().__init__(config, {"values": values}, y, Trace(), name=name, **kwargs)


# These sizes are this package's own.
Autoregressive.sizes = {
    "linear": AutoregressiveConfig(),
    "dense": AutoregressiveConfig(kind="dense", hidden_dim=32),
    "recurrent": AutoregressiveConfig(kind="recurrent", hidden_dim=32),
}
