"""Recurrent encoders, and the five ways in which a recurrent network maps sequences.

Elman 1990 (the simple cell), Hochreiter and Schmidhuber 1997 (LSTM), Cho et al. 2014 (GRU), Schuster and
Paliwal 1997 (two directions). The recurrence is Keras's own; `RecurrentEncoder` stacks its layers and skips
padding.

    one to one             x          -> y             no recurrence
    one to many            x          -> y_1 .. y_T    a caption for an image
    many to one            x_1 .. x_T -> y             the sentiment of a text
    many to many, direct   x_1 .. x_T -> y_1 .. y_T    a tag for each word
    many to many, delayed  x_1 .. x_S -> y_1 .. y_T    a translation: written after everything is read
"""

import dataclasses
import functools
from typing import Any, Literal

import keras

from keras_tfm.configs import Config, Depth, Rate, Size
from keras_tfm.layers.attention.alignment import NoAttention
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.recurrent import LSTMAttentionDecoder, RecurrentEncoder
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.signatures import Tensor
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.text.encoder import token_inputs
from keras_tfm.training.model import Model

CELLS = {
    "simple": keras.layers.SimpleRNNCell,
    "lstm": keras.layers.LSTMCell,
    "gru": functools.partial(keras.layers.GRUCell, reset_after=False),
}


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(Config):
    """The sizes of a `Recurrent` model.

    Args:
        dim: the width of the embeddings.
        hidden_dim: the width of a state, in each direction.
        cell: "simple", "lstm" or "gru", the GRU as in the paper.
        dropout: the rate for the embeddings and the outputs, but not inside the recurrence.
    """

    vocabulary_size: Size
    num_layers: Depth = 1
    dim: Size = 100
    hidden_dim: Size = 128
    cell: Literal["simple", "lstm", "gru"] = "lstm"
    bidirectional: bool = True
    dropout: Rate = 0.2


class Recurrent(ConfiguredModel):
    """A recurrent encoder of one direction or two: token ids in, hidden states out.

    Inputs: `token_ids` and `padding_mask`, each (B, T); padding changes nothing, wherever it is. Outputs:
    `sequence_output` (B, T, W), where W is `hidden_dim` times the number of directions, and `pooled_output`
    (B, W), [h_T; h_1]: the last forward and the first backward state. `vectors` (V, `dim`), such as word
    vectors, are initial values of the embeddings.

    >>> model = keras_tfm.models.Recurrent.from_size("tiny", vocabulary_size=100)
    >>> model({"token_ids": np.array([[1, 2, 3]])})["sequence_output"].shape
    TensorShape([1, 3, 128])
    """

    config_class = RecurrentConfig

    def __init__(
        self, config: RecurrentConfig, vectors: Tensor | None = None, name: str = "recurrent", **kwargs: Any
    ) -> None:
        inputs = token_inputs()
        # As large as word vectors: with smaller inputs the recurrence needs several times as many steps.
        initializer = keras.initializers.RandomNormal(stddev=0.5)
        embedding = TokenEmbedding(
            config.vocabulary_size, config.dim, initializer=initializer, name="embedding"
        )
        cell = CELLS[config.cell](config.hidden_dim, name="cell")
        encoder = RecurrentEncoder(
            config.hidden_dim, config.num_layers, cell, config.bidirectional, name="encoder"
        )
        dropout = Dropout(config.dropout, name="dropout")
        x, last = encoder(dropout(embedding(inputs["token_ids"])), mask=inputs["padding_mask"])
        outputs = {"sequence_output": dropout(x), "pooled_output": dropout(encoder.summary(last))}
        super().__init__(config, inputs, outputs, Trace({"encoder": encoder.layers}), name=name, **kwargs)
        self.embedding, self.encoder = embedding, encoder
        if vectors is not None:
            shape = (config.vocabulary_size, config.dim)
            if tuple(vectors.shape) != shape:
                raise ValueError(f"`vectors` must have the shape {shape}; it is {tuple(vectors.shape)}.")
            embedding.token.embeddings.assign(vectors)


# These sizes are this package's own, with one or two layers.
Recurrent.sizes = {
    "tiny": RecurrentConfig(8_000, dim=64, hidden_dim=64),
    "mini": RecurrentConfig(8_000),
    "small": RecurrentConfig(8_000, num_layers=2, dim=300, hidden_dim=256),
}


# Five kinds of models --------------------------------------------------------------------------------


def one_to_one(input_dim: int, output_dim: int, hidden_dim: int = 32) -> Model:
    """x (B, m) -> y (B, n) by one tanh layer; the other models add recurrence to it.

    >>> keras_tfm.models.one_to_one(3, 2)(np.ones((1, 3))).shape
    TensorShape([1, 2])
    """
    x = keras.Input((input_dim,), name="x")
    hidden = keras.layers.Dense(hidden_dim, "tanh", name="hidden")(x)
    return Model(x, keras.layers.Dense(output_dim, name="output")(hidden), name="one_to_one")


def one_to_many(
    input_dim: int,
    vocabulary_size: int,
    dim: int = 32,
    hidden_dim: int = 32,
    cell: str = "lstm",
    num_layers: int = 1,
) -> Model:
    """A vector `x` (B, m) and the previous tokens `token_ids` (B, T) -> logits (B, T, V).

    The first states are a tanh layer on x. The tokens are the target's, after a start token.

    >>> model = keras_tfm.models.one_to_many(3, vocabulary_size=10)
    >>> model({"x": np.ones((1, 3)), "token_ids": np.array([[0, 4]])}).shape
    TensorShape([1, 2, 10])
    """
    inputs = {
        "x": keras.Input((input_dim,), name="x"),
        "token_ids": keras.Input((None,), dtype="int32", name="token_ids"),
    }
    decoder = _decoder(hidden_dim, num_layers, cell)
    state = keras.layers.Dense(decoder.state_dim, "tanh", name="initial_state")(inputs["x"])
    tokens = TokenEmbedding(vocabulary_size, dim, name="embedding")(inputs["token_ids"])
    y = decoder(tokens, tokens, initial_state=state)  # `NoAttention` reads no context
    return Model(inputs, keras.layers.Dense(vocabulary_size, name="output")(y), name="one_to_many")


def many_to_one(
    input_dim: int,
    output_dim: int,
    hidden_dim: int = 32,
    cell: str = "lstm",
    num_layers: int = 1,
    bidirectional: bool = False,
) -> Model:
    """x (B, T, m) -> y (B, n): a linear layer on [h_T; h_1].

    >>> keras_tfm.models.many_to_one(3, 2)(np.ones((1, 5, 3))).shape
    TensorShape([1, 2])
    """
    x = keras.Input((None, input_dim), name="x")
    encoder = _encoder(hidden_dim, num_layers, cell, bidirectional)
    y = keras.layers.Dense(output_dim, name="output")(encoder.summary(encoder(x)[1]))
    return Model(x, y, name="many_to_one")


def many_to_many(
    input_dim: int,
    output_dim: int,
    hidden_dim: int = 32,
    cell: str = "lstm",
    num_layers: int = 1,
    bidirectional: bool = False,
) -> Model:
    """x (B, T, m) -> y (B, T, n). In one direction y_t depends on x_1 .. x_t alone.

    >>> keras_tfm.models.many_to_many(3, 2)(np.ones((1, 5, 3))).shape
    TensorShape([1, 5, 2])
    """
    x = keras.Input((None, input_dim), name="x")
    encoder = _encoder(hidden_dim, num_layers, cell, bidirectional)
    return Model(x, keras.layers.Dense(output_dim, name="output")(encoder(x)[0]), name="many_to_many")


def delayed_many_to_many(
    input_dim: int, output_dim: int, hidden_dim: int = 32, cell: str = "lstm", num_layers: int = 1
) -> Model:
    """`x` (B, S, m) and the previous outputs `before` (B, T, n) -> y (B, T, n).

    The decoder starts from the encoder's last states.

    >>> model = keras_tfm.models.delayed_many_to_many(3, 2)
    >>> model({"x": np.ones((1, 5, 3)), "before": np.ones((1, 4, 2))}).shape
    TensorShape([1, 4, 2])
    """
    inputs = {
        "x": keras.Input((None, input_dim), name="x"),
        "before": keras.Input((None, output_dim), name="before"),
    }
    encoder = _encoder(hidden_dim, num_layers, cell, bidirectional=False)
    states, last = encoder(inputs["x"])
    y = _decoder(hidden_dim, num_layers, cell)(inputs["before"], states, initial_state=last)
    y = keras.layers.Dense(output_dim, name="output")(y)
    return Model(inputs, y, name="delayed_many_to_many")


def _encoder(hidden_dim, num_layers, cell, bidirectional):
    return RecurrentEncoder(hidden_dim, num_layers, _cell(cell, hidden_dim), bidirectional, name="encoder")


def _decoder(hidden_dim, num_layers, cell):
    return LSTMAttentionDecoder(
        hidden_dim, num_layers, _cell(cell, hidden_dim), NoAttention(), name="decoder"
    )


def _cell(name, units):
    """A new cell of CELLS; ValueError for an unknown name."""
    if not isinstance(name, str) or name not in CELLS:
        raise ValueError(f"`cell` must be one of {', '.join(CELLS)}; it is {name!r}.")
    return CELLS[name](units)
