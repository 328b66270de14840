"""TransGAN (Jiang, Chang and Wang 2021, "TransGAN: Two Pure Transformers Can Make One Strong GAN, and That
Can Scale Up"): a generator of pictures without convolutions, and its discriminator.

    generator       latents -> a map of 8 x 8 cells -> blocks -> twice the side, 1/4 of the width -> ...
    discriminator   patches of P -> blocks -> half the side, joined by patches of 2 P -> ...

Cells of larger maps attend to their window alone. Architecture only: no published weights are read. The sizes
of the discriminator are this package's, where the paper's text has none.
"""

import dataclasses
from typing import Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Rate, Refusal, Size
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import Residual, block_of
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import GridPositionEmbedding
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, PixelShuffle, flatten_map
from keras_tfm.layers.windows import WindowAttention
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Ratio, Side, Stages, image_input


@dataclasses.dataclass(frozen=True)
class Blocks(Config, Stages):
    """What the blocks of both networks have in common.

    Args:
        depths: the number of blocks in each stage.
        num_heads: the number of heads in all blocks.
        mlp_ratio: the feed-forward width as a multiple of a stage's width.
        largest_map: the side of the largest map whose cells attend to each other all.
        window: the side of the windows of larger maps.
        relative_positions: whether attention adds a learned number for the distance of two cells.
        norm: "pixel" divides by the root mean square, without weights; "layer" is layer normalisation.
    """

    depths: tuple[Depth, ...] = (5, 4, 2)
    num_channels: Size = 3
    dim: Size = 1024
    num_heads: Size = 4
    mlp_ratio: Ratio = 4.0
    largest_map: Side = 32
    window: Side = 16
    relative_positions: bool = True
    norm: Literal["pixel", "layer"] = "pixel"
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        most = 4 ** (len(self.depths) - 1)
        if not self.depths or self.dim % most or self.dim // most % self.num_heads:
            expected = f"a multiple of {self.num_heads * most}, for {len(self.depths)} stages"
            raise Refusal("dim", f"{expected} and {self.num_heads} heads", self.dim)


@dataclasses.dataclass(frozen=True)
class TransGANConfig(Blocks):
    """`Blocks` has most sizes of a `TransGAN`, the generator, whose first stage is `dim` wide.

    Args:
        first_side: the side of the first map; the images' is twice as long for each further stage.
        latent_dim: the width of the noise that an image is made of.
    """

    first_side: Side = 8
    latent_dim: Size = 512

    @property
    def image_size(self):
        """The side of the images."""
        return self.first_side * 2 ** (len(self.depths) - 1)


class TransGAN(ConfiguredModel):
    """TransGAN's generator: noise in, images out. A variant overrides `attention`.

    Input: `latents` (B, L), from a normal distribution. Output: `images` (B, H, W, C), which nothing bounds.
    `maps` are the stages'.

    >>> model = keras_tfm.models.TransGAN.from_size("tiny")
    >>> model({"latents": np.zeros((1, 32))})["images"].shape
    TensorShape([1, 8, 8, 1])
    """

    config_class = TransGANConfig

    def __init__(self, config: TransGANConfig, name: str = "transgan", **kwargs: Any) -> None:
        latents, side = keras.Input((config.latent_dim,), name="latents"), config.first_side
        x = Dense(side**2 * config.dim, name="first_map")(latents)
        x = ops.reshape(x, (-1, side, side, config.dim))  # (B, rows, columns, D)
        trace, maps = Trace(), []
        for stage, depth in enumerate(config.depths):
            if stage:
                x = PixelShuffle(2, name=f"stage_{stage}_shuffle")(x)  # (B, 2 rows, 2 columns, D / 4)
            x = GridPositionEmbedding(initializer=TRUNCATED, name=f"stage_{stage}_positions")(x)
            x = trace.run("generator", [self.block(config, x.shape, stage, i) for i in range(depth)], x)
            maps.append(x)
        outputs = {"images": Dense(config.num_channels, name="colour")(x)}
        super().__init__(config, {"latents": latents}, outputs, trace, name=name, **kwargs)
        self.maps = maps

    @classmethod
    def block(cls, config, x_shape, stage, index):
        """Block number `index` of a stage, whose maps have the shape `x_shape`."""
        return stage_block(config, cls.attention(config, x_shape), x_shape, f"stage_{stage}_block_{index}")

    @classmethod
    def attention(cls, config, x_shape):
        """The attention among the cells of a map, or of a window of a large one."""
        side = x_shape[1]
        window = side if side <= config.largest_map else config.window
        position = GridPositionBias(window, initializer=TRUNCATED) if config.relative_positions else None
        return WindowAttention(MultiHeadAttention(config.num_heads, use_bias=(), position=position), window)


def stage_block(config, attention, x_shape, name):
    """A block with this `attention` of maps or sequences, normalised at the input of its parts."""

    def part(branch):
        norm = LayerNormalization(config.epsilon) if config.norm == "layer" else PixelNormalization()
        return Residual(branch, norm, "input")

    feedforward = FeedForward(int(config.mlp_ratio * x_shape[-1]), "gelu")
    return block_of(part, name, attention=attention, feedforward=feedforward)


class PixelNormalization(SameShape):
    """x / sqrt(mean(x²) + epsilon) over the last axis, in any shape (Karras et al. 2018, "Progressive Growing
    of GANs", section 4.2); it has no weights.
    """

    def __init__(self, epsilon: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def call(self, x):
        """In float32 inside; the dtype of `x` comes out."""
        values = in_float32(x)
        scale = ops.rsqrt(ops.mean(ops.square(values), axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(values * scale, x.dtype)


@dataclasses.dataclass(frozen=True)
class TransGANDiscriminatorConfig(Blocks):
    """`Blocks` has most sizes of a `TransGANDiscriminator`, whose last stage is `dim` wide.

    Args:
        image_size: the side of the images.
        patch_size: the side of the first stage's patches, which doubles with each stage.
    """

    depths: tuple[Depth, ...] = (3, 3, 3)
    dim: Size = 384
    image_size: Side = 32
    patch_size: Side = 2

    def __post_init__(self):
        super().__post_init__()
        largest = self.patch_size * 2 ** (len(self.depths) - 1)
        if self.image_size % largest:
            raise Refusal("image_size", f"a multiple of {largest}, the largest patch", self.image_size)

    @property
    def widths(self):
        """The width of each stage, which doubles with each."""
        return tuple(self.dim // 2**i for i in reversed(range(len(self.depths))))


class TransGANDiscriminator(ConfiguredModel):
    """TransGAN's discriminator: images in, one score for each out, high for real ones.

    Each stage but the first halves the sides of its map by means, and joins them with patches of the image
    that are twice as large. One more block attends with a class token (section 3.3).

    Input: `images` (B, H, W, C). Output: `scores` (B, 1).

    >>> model = keras_tfm.models.TransGANDiscriminator.from_size("tiny")
    >>> model({"images": np.zeros((2, 8, 8, 1))})["scores"].shape
    TensorShape([2, 1])
    """

    config_class = TransGANDiscriminatorConfig

    def __init__(
        self, config: TransGANDiscriminatorConfig, name: str = "transgan_discriminator", **kwargs: Any
    ) -> None:
        images, trace, x = image_input(config), Trace(), None
        for stage, (depth, width) in enumerate(zip(config.depths, config.widths, strict=True)):
            patches = PatchEmbedding(
                width if x is None else width - x.shape[-1],
                config.patch_size * 2**stage,
                name=f"stage_{stage}_patches",
            )(images)
            if x is None:
                x = GridPositionEmbedding(initializer=TRUNCATED, name="positions")(patches)
            else:
                half = ops.average_pool(x, 2, 2)  # (B, rows / 2, columns / 2, D / 2)
                x = ops.concatenate([half, patches], axis=-1)  # (B, rows / 2, columns / 2, D)
            blocks = [TransGAN.block(config, x.shape, stage, i) for i in range(depth)]
            x = trace.run("discriminator", blocks, x)
        x = PrependedTokens(initializer=TRUNCATED, name="class_token")(flatten_map(x))
        attention = MultiHeadAttention(config.num_heads, use_bias=())
        last = stage_block(config, attention, x.shape, "last_block")
        x = LayerNormalization(config.epsilon, name="norm")(trace.run("discriminator", [last], x)[:, 0])
        outputs = {"scores": Dense(1, name="score")(x)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


# Jiang et al. 2021, section 4.1: the generator for CIFAR-10, but for the width of the latents. tiny is this
# package's own, for the digits of scikit-learn.
_TINY: dict[str, Any] = {"depths": (1, 1, 1), "num_channels": 1, "dim": 128, "num_heads": 2}
TransGAN.sizes = {
    "32": TransGANConfig(),
    "tiny": TransGANConfig(**_TINY, first_side=2, latent_dim=32),
}
TransGANDiscriminator.sizes = {
    "32": TransGANDiscriminatorConfig(),
    "tiny": TransGANDiscriminatorConfig(**_TINY | {"dim": 64}, image_size=8, patch_size=1),
}
