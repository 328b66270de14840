"""Action Transformer (Girdhar et al. 2019, "Video Action Transformer Network"): what each person does.

The trunk is I3D's up to the block Mixed_4f. The features of a person's box in the middle frame are the query,
which attends to all cells of the whole video. Boxes are an input: the paper's come from a network that
proposes them.

    videos --> trunk --> features, with where and when --------------------> memory (B, cells, .)
                         '- middle frame -> RoIAlign <- boxes --> queries (B, persons, D) -> units -> states

Widths that the paper does not print, of the feed-forward layers and of the places, are ours.
"""

import dataclasses
from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.chain import Chain, ParallelBlock
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.regions import RoIAlign
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.video.i3d import DEPTHS, WIDTHS, Branches, TrunkConfig, trunk
from keras_tfm.models.vision.images import Side, video_input

STRIDE = 16  # of the trunk's last map, in pixels


@dataclasses.dataclass(frozen=True)
class ActionTransformerConfig(TrunkConfig):
    """The sizes of an `ActionTransformer`.

    Args:
        query: "high" keeps the cells of a person's region apart until they become the query, "low" averages
            them: the paper's HighRes and LowRes.
        region_size: the side of a region, in cells.
        dim: D, the width of the queries; each head's unit has a `num_heads`-th of it.
        intermediate_dim: the hidden width of the feed-forward layer of a unit.
        position_dim: the width of the vector that says where a cell is, and of the one that says when.
        dropout: the rate for the output of attention and of feed-forward layers.
    """

    image_size: Side | tuple[Side, Side] = 400
    dims: tuple[Branches, ...] = WIDTHS[:7]
    query: Literal["high", "low"] = "high"
    region_size: Side = 7
    dim: Size = 128
    num_layers: Depth = 3
    num_heads: Heads = 2
    intermediate_dim: Size = 256
    position_dim: Size = 64
    dropout: Rate = 0.3
    depths = DEPTHS[:2]


class ActionTransformer(ConfiguredModel):
    """Action Transformer: videos and persons' boxes in, a state per person out.

    Inputs: `videos` (B, F, H, W, C), floating-point, and `boxes` (B, N, 4), (left, top, right, bottom) in
    pixels of the middle frame, the one of number F / 2. Output: `sequence_output` (B, N, D). No person sees
    the others' boxes, so boxes that fill up a batch may be zeros. Persons do several things at once: with a
    `TokenTagger` train by the binary cross-entropy of each class. `hidden_states` are the trunk's,
    "encoder", and of the persons, "decoder".

    >>> sizes = dict(num_frames=8, image_size=32, stem_dims=(4, 4, 8), dims=[[4, 4, 4, 2, 2, 2]] * 7)
    >>> model = keras_tfm.models.ActionTransformer.from_size("HighRes", **sizes)
    >>> boxes = np.array([[[0, 0, 16, 32], [8, 4, 20, 28]]])
    >>> model({"videos": np.ones((1, 8, 32, 32, 3)), "boxes": boxes})["sequence_output"].shape
    TensorShape([1, 2, 128])
    """

    config_class = ActionTransformerConfig

    def __init__(
        self, config: ActionTransformerConfig, name: str = "action_transformer", **kwargs: Any
    ) -> None:
        videos, trace = video_input(config), Trace()
        boxes = keras.Input((None, 4), name="boxes")
        maps = trunk(config, videos, trace)
        x = PlaceEmbedding(config.position_dim, name="places")(maps[-1])
        _, frames, rows, columns, width = x.shape
        memory = ops.reshape(x, (-1, frames * rows * columns, width))  # (B, S, C)
        regions = RoIAlign(config.region_size, 1 / STRIDE, name="regions")(x[:, frames // 2], boxes)
        persons = RegionQuery(config.dim, config.query == "high", name="query")(regions)
        layers = [unit_layer(config, f"decoder_block_{i}") for i in range(config.num_layers)]
        persons = trace.run("decoder", layers, persons, context=memory)
        inputs = {"videos": videos, "boxes": boxes}
        super().__init__(config, inputs, {"sequence_output": persons}, trace, name=name, **kwargs)
        self.maps = maps


class PlaceEmbedding(Layer):
    """Appends to each cell of a video where it is and when: (B, T, H, W, D) -> (B, T, H, W, D + 2 `dim`).

    Two networks of two layers read the place (x, y) and the time from the middle, from -1 to 1.
    """

    def __init__(self, dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.where, self.when = (Chain([Dense(dim, activation="relu"), Dense(dim)]) for _ in range(2))

    def build(self, x_shape):
        self.where.build((None, 2))
        self.when.build((None, 1))

    def call(self, x):
        """(B, T, H, W, D) -> (B, T, H, W, D + 2 dim)."""
        _, frames, rows, columns, _ = x.shape
        when, *place = (np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in (frames, rows, columns))
        grid = np.stack(np.meshgrid(*place, indexing="ij")[::-1], axis=-1)  # (H, W, 2)
        parts = [
            self.where(ops.convert_to_tensor(grid, x.dtype))[None],  # (1, H, W, dim)
            self.when(ops.convert_to_tensor(when[:, None], x.dtype))[:, None, None],  # (T, 1, 1, dim)
        ]
        shape = (*ops.shape(x)[:-1], self.dim)
        return ops.concatenate([x, *(ops.broadcast_to(part, shape) for part in parts)], axis=-1)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], x_shape[-1] + 2 * self.dim)


class RegionQuery(Layer):
    """The queries (B, N, `dim`) of persons' regions (B, N, height, width, D).

    Cells are projected one by one and then all together, or, without `is_fine`, averaged and projected.
    """

    def __init__(self, dim: int, is_fine: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.is_fine = is_fine
        self.cells = Dense(dim) if is_fine else None
        self.projection = Dense(dim)

    def build(self, x_shape):
        width = x_shape[-1]
        if self.cells is not None:
            self.cells.build(x_shape)
            width = x_shape[2] * x_shape[3] * self.dim
        self.projection.build((None, None, width))

    def call(self, x):
        """(B, N, height, width, D) -> (B, N, dim)."""
        if self.cells is None:
            return self.projection(ops.mean(x, axis=(2, 3)))
        (batch_size, count), (height, width) = ops.shape(x)[:2], x.shape[2:4]
        x = ops.reshape(self.cells(x), (batch_size, count, height * width * self.dim))
        return self.projection(x)

    def compute_output_shape(self, x_shape):
        return (*x_shape[:2], self.dim)


class MemoryProjections(Layer):
    """One head, whose queries are taken as they are, and whose keys and values are linear functions of what
    is attended to.
    """

    num_heads = 1

    def build(self, query_shape, value_shape=None, key_shape=None):
        self.key_width = self.value_width = query_shape[-1]
        self.key_value = Dense(2 * self.key_width, name="key_value")
        self.key_value.build(value_shape)

    def project(self, query, value=None, key=None):
        """Heads (B, 1, T, D), (B, 1, S, D) and (B, 1, S, D) of `query` (B, T, D) and `value` (B, S, C)."""
        key, value = ops.split(self.key_value(value), 2, axis=-1)
        return [x[:, None] for x in (query, key, value)]


def unit(intermediate_dim, dropout, projections, norm=LayerNormalization, name=None):
    """The paper's unit (section 3.2): attention of one head to a context, then a feed-forward layer, each in
    a residual with a norm at the sum.
    """
    attention = Attention(projections, output_layer=keras.layers.Identity())
    part, feedforward = residuals(dropout, norm=norm), FeedForward(intermediate_dim, "relu")
    return block_of(part, name, context_attention=attention, feedforward=feedforward)


class ProjectedUnit(Layer):
    """A `unit` of its own width: (B, N, D) and a context (B, S, C) -> (B, N, `dim`)."""

    def __init__(self, dim: int, intermediate_dim: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.projection = Dense(dim)
        self.unit = unit(intermediate_dim, dropout, MemoryProjections())

    def build(self, x_shape, context_shape):
        self.projection.build(x_shape)
        shape = (*x_shape[:-1], self.dim)
        self.unit.build(shape, {"context_attention": {"context": context_shape}})

    def call(self, x, context, training=None):
        """(B, N, D), (B, S, C) -> (B, N, dim)."""
        return self.unit(self.projection(x), context_attention={"context": context}, training=training)

    def compute_output_shape(self, x_shape, context_shape=None):
        return (*x_shape[:-1], self.dim)


def unit_layer(config, name):
    """The units of all heads side by side, whose outputs together are the next query."""
    sizes = (config.dim // config.num_heads, config.intermediate_dim, config.dropout)
    return ParallelBlock([ProjectedUnit(*sizes) for _ in range(config.num_heads)], name=name)


# Girdhar et al. 2019, table 1: 64 frames of 400 x 400.
ActionTransformer.sizes = {
    "HighRes": ActionTransformerConfig(),
    "LowRes": ActionTransformerConfig(query="low"),
}
