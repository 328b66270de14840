"""IPT (Chen et al. 2021, "Pre-Trained Image Processing Transformer"): one Transformer for several tasks of
image restoration, each with a head, a query and a tail of its own.

    images -> head of the task -> tokens of 3 x 3 cells -> encoder
                                  query of the task     -> decoder -> a map, added to the head's -> tail

The learned positions are added to queries and keys in every block. Architecture only: no published weights
are read.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.configs import Depth, Rate, Refusal, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Residual, block_of, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.patches import combine_patches, extract_patches, height_and_width, patch_grid
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.models.base import Trace
from keras_tfm.models.pictures.restoration import (
    Restorer,
    RestorerConfig,
    Scale,
)
from keras_tfm.models.vision.images import Side

EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class IPTConfig(RestorerConfig):
    """The sizes of an `IPT`; the tokens are `patch_size`² `num_features` wide.

    Args:
        image_size: the side of the images or their (height, width); larger ones are cut into such.
        patch_size: the side of a token, in cells of the head's map.
        mlp_ratio: the feed-forward width as a multiple of the tokens'.
    """

    tasks: tuple[str, ...] = ("x2", "x3", "x4", "derain", "denoise30", "denoise50")
    scales: tuple[Scale, ...] = (2, 3, 4, 1, 1, 1)
    image_size: Side | tuple[Side, Side] = 48
    patch_size: Side = 3
    num_layers: Depth = 12
    num_heads: Size = 12
    mlp_ratio: Size = 4
    dropout: Rate = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.dim % self.num_heads:
            raise Refusal("num_heads", f"a divisor of {self.dim}, the width of a token", self.num_heads)
        patch_grid(height_and_width(self.image_size, "image_size"), self.patch_size)

    @property
    def dim(self):
        """The width of the tokens."""
        return self.patch_size**2 * self.num_features


class IPT(Restorer):
    """Degraded images in, restored images out, for each task.

    Input: `images` (B, H, W, C), floating-point, from 0 to 1. Outputs, by the names of the tasks: images
    (B, scale H, scale W, C), which may leave that range a little. `for_task(name)` computes one of them.

    >>> model = keras_tfm.models.IPT.from_size("tiny")
    >>> model.for_task("x2")(np.zeros((1, 12, 12, 3))).shape
    TensorShape([1, 24, 24, 3])
    """

    config_class = IPTConfig

    def __init__(self, config: IPTConfig, name: str = "ipt", **kwargs: Any) -> None:
        size, channels = height_and_width(config.image_size, "image_size"), len(config.mean)
        images, trace = keras.Input((*size, channels), name="images"), Trace()
        super().__init__(config, images, trace, Body(config, trace), name=name, **kwargs)


class Body:
    """The layers of the Transformer, which all tasks share but for the query; no layer itself."""

    def __init__(self, config, trace):
        rows, columns = patch_grid(height_and_width(config.image_size), config.patch_size)
        self.config, self.trace, self.count = config, trace, rows * columns
        self.embedding = Residual(Dense(config.dim), name="embedding")
        self.positions = LearnedVectors(self.count, name="positions")
        stacks = ("encoder", "decoder")
        self.blocks = {x: [stack_block(config, x, i) for i in range(config.num_layers)] for x in stacks}
        mlp = FeedForward(config.mlp_ratio * config.dim, dropout=config.dropout)
        self.output = Residual(mlp, name="mlp")

    def __call__(self, x, task):
        """The map (B, H, W, C) of the decoder for a map of a head."""
        size = tuple(x.shape[1:3])
        x = self.embedding(extract_patches(x, self.config.patch_size))  # (B, N, D)
        position = {"position": self.positions(x)}
        x = self.trace.run("encoder", self.blocks["encoder"], x, attention=position)
        query = {"position": LearnedVectors(self.count, name=f"{task}_query")(x)}
        context = query | {"context": x, "context_position": position["position"]}
        x = self.trace.run("decoder", self.blocks["decoder"], x, attention=query, context_attention=context)
        return combine_patches(self.output(x), self.config.patch_size, size)


def stack_block(config, stack, index):
    """The block of this number of the encoder or the decoder."""
    part = residuals(normalize_first=True, dropout=config.dropout, epsilon=EPSILON)

    def attention():
        inner = MultiHeadAttention(config.num_heads, dropout=config.dropout, use_bias=False)
        return PositionedAttention(inner)

    context = attention() if stack == "decoder" else None
    feedforward = FeedForward(config.mlp_ratio * config.dim, dropout=config.dropout)
    branches = {"attention": attention(), "context_attention": context, "feedforward": feedforward}
    return block_of(part, f"{stack}_block_{index}", **branches)


# Chen et al. 2021, section 3.1, and the authors' code: 115.5 M parameters, with a head and a tail of each
# task. tiny is this package's own.
IPT.sizes = {
    "base": IPTConfig(),
    "tiny": IPTConfig(("x2", "denoise"), (2, 1), 12, image_size=12, patch_size=2, num_layers=2, num_heads=4),
}
