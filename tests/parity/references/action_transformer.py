"""The unit of the Action Transformer as ppriyank/Video-Action-Transformer-Network-Pytorch- uses it again.

One vector per frame, by a convolution as large as the map; the middle one is the query of each head's three
units, whose keys and values are the vectors of all frames as they are.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.keymap import batch_norm, convolution, linear, read_state, weight
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.models.video.action_transformer import unit
from tests.parity.references.state import check_arguments

UNITS = 3
ARGUMENTS = {"num_features", "num_frames", "head", "spatial", "num_classes"}


class Standardization(SameShape):
    """Like a layer norm, but divided by the unbiased standard deviation plus 1e-6."""

    def build(self, x_shape):
        self.gamma = self.add_weight(name="gamma", shape=(x_shape[-1],), initializer="ones")
        self.beta = self.add_weight(name="beta", shape=(x_shape[-1],), initializer="zeros")

    def call(self, x):
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.sum(ops.square(centred), axis=-1, keepdims=True) / (x.shape[-1] - 1)
        return self.gamma * centred / (ops.sqrt(variance) + 1e-6) + self.beta


class AsTheyAre(Layer):
    """One head, whose queries, keys and values are what it is given."""

    num_heads = 1

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.key_width = self.value_width = query_shape[-1]

    def project(self, query, value=None, key=None):
        return [x[:, None] for x in (query, value, value)]


def positions(num_frames, dim):
    """sin(t / 10000^(2 i / dim)) at even i, and the cosine at odd i: (T, dim)."""
    angles = np.arange(num_frames)[:, None] / 10_000 ** (2 * np.arange(dim) / dim)
    return np.where(np.arange(dim) % 2, np.cos(angles), np.sin(angles)).astype("float32")


def norm(ours, theirs):
    """The two weights of a `Standardization`."""
    return weight(f"{ours}/gamma", f"{theirs}.alpha") + weight(f"{ours}/beta", f"{theirs}.bias")


def rows(num_heads):
    """The table of weights."""
    table = batch_norm("input_norm", "bn1") + norm("norm", "bn2") + linear("classes", "classifier")
    table += convolution("frames", "Qpr")
    for head in range(num_heads):
        for i in range(UNITS):
            ours, theirs = f"head_{head}_unit_{i}", f"list_layers.{head}.T{i + 1}"
            table += norm(f"{ours}/context_attention/norm", f"{theirs}.norm_1")
            table += norm(f"{ours}/feedforward/norm", f"{theirs}.norm_2")
            table += linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.ff.linear_1")
            table += linear(f"{ours}/feedforward/branch/output", f"{theirs}.ff.linear_2")
    return table


def read(arguments, weights):
    """The model for their arguments and weights, and its outputs by their names."""
    check_arguments(arguments, ARGUMENTS, "transformer_v2.py")
    width, num_frames, num_heads = (arguments[name] for name in ("num_features", "num_frames", "head"))
    grid, dim = tuple(arguments["spatial"]), width // 2
    head_dim = dim // num_heads
    features = keras.Input((num_frames, *grid, width), name="features_in")
    x = BatchNormalization(name="input_norm")(features)
    x = x * width**0.5 + positions(num_frames, width)[:, None, None]
    x = ops.reshape(x, (-1, *grid, width))  # (B T, rows, columns, D)
    x = Convolution(dim, grid, padding=0, use_bias=False, name="frames")(x)
    raw = ops.reshape(x, (-1, num_frames, dim))  # (B, T, D / 2)
    frames = Standardization(name="norm")(ops.relu(raw))
    outputs = {"features/frames_before_relu": raw, "features/frames": frames}
    heads = []
    for head in range(num_heads):
        memory = frames[..., head * head_dim : (head + 1) * head_dim]
        query = memory[:, num_frames // 2][:, None]  # (B, 1, K)
        for i in range(UNITS):
            options = {"norm": lambda _: Standardization(), "name": f"head_{head}_unit_{i}"}
            layer = unit(head_dim // 2, 0.0, AsTheyAre(), **options)
            query = layer(query, context_attention={"context": memory})
        heads.append(query[:, 0])
        outputs[f"features/head_{head}"] = heads[-1]
    outputs["output"] = ops.normalize(ops.concatenate(heads, axis=-1), axis=-1, epsilon=1e-12)
    outputs["logits"] = keras.layers.Dense(arguments["num_classes"], name="classes")(outputs["output"])
    model = keras.Model({"features_in": features}, outputs)
    read_state(model, weights, rows(num_heads))
    return model, outputs
