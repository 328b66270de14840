"""Visformer (Chen et al. 2021, "Visformer: The Vision-friendly Transformer").

Three stages of fewer and wider cells. The blocks of the first stage have no attention, but a grouped
convolution inside the feed-forward layer. All norms are batch normalisation, no layer inside a block has a
bias, and positions are added at the start of each stage.
"""

import dataclasses
from typing import Annotated

from keras_tfm.configs import Between, Depth, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.grid import MapAttention
from keras_tfm.layers.image_positions import GridPositionEmbedding
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patches import PatchEmbedding
from keras_tfm.models.base import rate_of
from keras_tfm.models.vision.images import ImageConfig, Stages
from keras_tfm.models.vision.pyramid import Pyramid

PATCHES = (4, 2, 2)  # patch sizes at the start of each stage, after a stem of stride 2


@dataclasses.dataclass(frozen=True)
class VisformerConfig(ImageConfig, Stages):
    """The sizes of a `Visformer`.

    Args:
        stem_dim: the width of the convolution before the stages.
        dim: the width of the second stage; the first is half as wide, the third twice.
        depths: the number of blocks in each stage.
        groups: the groups of the first stage's convolutions.
        mlp_ratio: the feed-forward width of the other stages as a multiple of their width.
        stochastic_depth: the rate of the last block.
    """

    stem_dim: Size = 32
    dim: Size = 384
    depths: tuple[Depth, Depth, Depth] = (7, 4, 4)
    num_heads: Size = 6
    groups: Size = 8
    mlp_ratio: Annotated[float, Between(0.01, 64)] = 4.0
    dropout: Rate = 0.0
    stochastic_depth: Rate = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.dim % 2 or self.dim % self.groups or self.dim % self.num_heads:
            raise ValueError(
                f"`dim` must be even, and a multiple of `groups` {self.groups} and of `num_heads` "
                f"{self.num_heads}; it is {self.dim}."
            )

    @property
    def widths(self):
        """The width of each stage."""
        return (self.dim // 2, self.dim, 2 * self.dim)


class Visformer(Pyramid):
    """A `Pyramid` with convolutions in its first stage and attention in the others.

    >>> sizes = dict(image_size=32, dim=16, depths=(1, 1, 1), num_heads=2, groups=2)
    >>> model = keras_tfm.models.Visformer.from_size("Ti", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 1, 32])
    """

    config_class = VisformerConfig

    @classmethod
    def stem(cls, config, images):
        norm = BatchNormalization()
        return Convolution(config.stem_dim, 7, 2, norm=norm, activation="relu", name="stem")(images)

    @classmethod
    def stage(cls, config, stage):
        width, kind = config.widths[stage], _attending_block if stage else _convolving_block
        return [
            PatchEmbedding(width, PATCHES[stage], name=f"stage_{stage}_embedding"),
            BatchNormalization(name=f"stage_{stage}_norm"),
            GridPositionEmbedding(initializer=TRUNCATED, name=f"stage_{stage}_position"),
            *(
                kind(config, width, rate_of(config, stage, i), f"stage_{stage}_block_{i}")
                for i in range(config.depths[stage])
            ),
        ]

    @classmethod
    def last(cls, config, x):
        return BatchNormalization(name="norm")(x)


def _convolving_block(config, width, rate, name):
    """Convolutions of 1 x 1, of 3 x 3 in groups and of 1 x 1, twice as wide inside."""
    branch = [
        Convolution(2 * width, 1, activation="gelu", use_bias=False),
        Convolution(2 * width, 3, groups=config.groups, activation="gelu", use_bias=False),
        Convolution(width, 1, use_bias=False),
    ]
    return block_of(_residuals(config, rate), name, feedforward=Chain(branch))


def _attending_block(config, width, rate, name):
    attention = MultiHeadAttention(config.num_heads, use_bias=False, kernel_initializer=TRUNCATED)
    hidden = int(config.mlp_ratio * width)
    feedforward = FeedForward(hidden, "gelu", use_bias=False, kernel_initializer=TRUNCATED)
    part = _residuals(config, rate)
    return block_of(part, name, attention=MapAttention(attention), feedforward=feedforward)


def _residuals(config, rate):
    options = {"normalize_first": True, "stochastic_depth": rate}
    return residuals(config.dropout, 1e-5, BatchNormalization, **options)


# Chen et al. 2021 and the authors' code.
Visformer.sizes = {
    "Ti": VisformerConfig(stem_dim=16, dim=192, num_heads=3),
    "S": VisformerConfig(),
}
