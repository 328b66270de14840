"""Recurrent encoders, and the five ways in which a recurrent network maps sequences.

Elman 1990 (the simple cell), Hochreiter and Schmidhuber 1997 (LSTM), Cho et al. 2014 (GRU), Schuster and
Paliwal 1997 (two directions). The recurrence is Keras's own; `RecurrentEncoder` stacks it and passes over
padding.

    one to one             x          -> y             no recurrence
    one to many            x          -> y_1 .. y_T    an image's caption
    many to one            x_1 .. x_T -> y             a text's sentiment
    many to many, direct   x_1 .. x_T -> y_1 .. y_T    a tag for each word
    many to many, delayed  x_1 .. x_S -> y_1 .. y_T    a translation: all is read before the first is written
"""

import dataclasses
import functools
from typing import Literal

import keras

from keras_tfm.configs import Config, Depth, Rate, Size
from keras_tfm.layers.attention.alignment import NoAttention
from keras_tfm.layers.embeddings import TokenEmbedding
from keras_tfm.layers.recurrent import LSTMAttentionDecoder, RecurrentEncoder
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel
from keras_tfm.models.text.encoder import token_inputs
from keras_tfm.training.model import Model

CELLS = {
    "simple": keras.layers.SimpleRNNCell,
    "lstm": keras.layers.LSTMCell,
    "gru": functools.partial(keras.layers.GRUCell, reset_after=False),
}


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(Config):
    """`dim` is the width of the embeddings, `hidden_dim` that of a state, for each direction. `cell` is
    "simple", "lstm" or "gru" (the paper's). `dropout` acts on the embeddings and the outputs, not within the
    recurrence.
    """

    vocabulary_size: Size
    num_layers: Depth = 1
    dim: Size = 100
    hidden_dim: Size = 128
    cell: Literal["simple", "lstm", "gru"] = "lstm"
    bidirectional: bool = True
    dropout: Rate = 0.2


class Recurrent(ConfiguredModel):
    """Token ids in, hidden states out, of one direction or two, for texts of any length.

    Inputs: `token_ids` and `padding_mask`, (B, T) each; padding changes nothing, wherever it stands. Outputs:
    `sequence_output` (B, T, W), W being `hidden_dim` for each direction, and `pooled_output` (B, W), the last
    forward and the first backward state, [h_T; h_1]. `vectors` (V, `dim`) are what the embeddings begin with,
    word vectors for example; ValueError where they have another shape.
    """

    config_class = RecurrentConfig

    def __init__(self, config, vectors=None, name="recurrent", **kwargs):
        inputs = token_inputs()
        # As large as word vectors are: smaller inputs take the recurrence several times the steps to learn.
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
        super().__init__(config, inputs, outputs, {"encoder": encoder.layers}, {}, name=name, **kwargs)
        self.embedding, self.encoder = embedding, encoder
        if vectors is not None:
            shape = (config.vocabulary_size, config.dim)
            if tuple(vectors.shape) != shape:
                raise ValueError(f"`vectors` must have the shape {shape}; it is {tuple(vectors.shape)}.")
            embedding.token.embeddings.assign(vectors)


# This package's own, of 1 to 2 layers.
Recurrent.sizes = {
    "tiny": RecurrentConfig(8_000, dim=64, hidden_dim=64),
    "mini": RecurrentConfig(8_000),
    "small": RecurrentConfig(8_000, num_layers=2, dim=300, hidden_dim=256),
}


# The gallery -----------------------------------------------------------------------------------------


def one_to_one(input_dim, output_dim, hidden_dim=32):
    """x (B, m) -> y (B, n) by one tanh layer: what recurrence adds a memory to."""
    x = keras.Input((input_dim,), name="x")
    hidden = keras.layers.Dense(hidden_dim, "tanh", name="hidden")(x)
    return Model(x, keras.layers.Dense(output_dim, name="output")(hidden), name="one_to_one")


def one_to_many(input_dim, vocabulary_size, dim=32, hidden_dim=32, cell="lstm", num_layers=1):
    """A vector `x` (B, m) and the tokens before each, `token_ids` (B, T), -> logits (B, T, V).

    The first states are a tanh layer of x. The tokens are those of a target, a start token before them.
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


def many_to_one(input_dim, output_dim, hidden_dim=32, cell="lstm", num_layers=1, bidirectional=False):
    """x (B, T, m) -> y (B, n), a linear layer of [h_T; h_1]."""
    x = keras.Input((None, input_dim), name="x")
    encoder = _encoder(hidden_dim, num_layers, cell, bidirectional)
    y = keras.layers.Dense(output_dim, name="output")(encoder.summary(encoder(x)[1]))
    return Model(x, y, name="many_to_one")


def many_to_many(input_dim, output_dim, hidden_dim=32, cell="lstm", num_layers=1, bidirectional=False):
    """x (B, T, m) -> y (B, T, n), directly: y_t is there when x_t was read, if there is one direction."""
    x = keras.Input((None, input_dim), name="x")
    encoder = _encoder(hidden_dim, num_layers, cell, bidirectional)
    return Model(x, keras.layers.Dense(output_dim, name="output")(encoder(x)[0]), name="many_to_many")


def delayed_many_to_many(input_dim, output_dim, hidden_dim=32, cell="lstm", num_layers=1):
    """`x` (B, S, m) and the outputs before each, `before` (B, T, n), -> y (B, T, n).

    The decoder goes on from the encoder's last states.
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
    return RecurrentEncoder(hidden_dim, num_layers, CELLS[cell](hidden_dim), bidirectional, name="encoder")


def _decoder(hidden_dim, num_layers, cell):
    return LSTMAttentionDecoder(
        hidden_dim, num_layers, CELLS[cell](hidden_dim), NoAttention(), name="decoder"
    )
