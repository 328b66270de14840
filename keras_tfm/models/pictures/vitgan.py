"""ViTGAN (Lee et al. 2022, "ViTGAN: Training GANs with Vision Transformers"): a generator of pictures, and
the discriminator that it learns from.

    latents -> w, learned positions -> blocks, whose norms w modulates -> each token's pixels as a function
    images  -> patches that overlap -> blocks of attention by distance -> the score of a class token

All kernels of the discriminator keep the greatest singular value that they begin with. The paper leaves open
how the function of a pixel's place gets its token: here each has a dense layer, and the two are added.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Positive, Rate, Size, Whole
from keras_tfm.layers.attention.distance import DistanceAttention, TiedProjections
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.modulated_block import ModulatedBlock
from keras_tfm.layers.normalization import LayerNormalization, ModulatedNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import combine_patches, flatten_map, height_and_width, patch_grid
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.spectral import SpectralConvolution, SpectralDense
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side, image_input


@dataclasses.dataclass(frozen=True)
class PictureSizes(Config):
    """The images, patches and blocks that the generator and the discriminator both have.

    Args:
        image_size: the side of the images or their (height, width).
        patch_size: the side of what one token stands for.
    """

    image_size: Side | tuple[Side, Side] = 32
    patch_size: Side = 4
    num_channels: Size = 3
    num_layers: Depth = 4
    dim: Size = 384
    num_heads: Heads = 6
    intermediate_dim: Size = 1536
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        patch_grid(height_and_width(self.image_size, "image_size"), self.patch_size)


@dataclasses.dataclass(frozen=True)
class ViTGANConfig(PictureSizes):
    """The sizes of a `ViTGAN`, the generator.

    Args:
        latent_dim: the width of the noise that an image is made of.
        frequency: what multiplies the places of pixels, and the inputs of sines, as in SIREN.
    """

    latent_dim: Size = 128
    frequency: Positive = 30.0


class ViTGAN(ConfiguredModel):
    """ViTGAN's generator: noise in, images out. A variant overrides `modulation`, `block` or `draw`.

    Input: `latents` (B, L), from a normal distribution. Output: `images` (B, H, W, C), from -1 to 1.

    >>> model = keras_tfm.models.ViTGAN.from_size("tiny")
    >>> model({"latents": np.zeros((1, 32))})["images"].shape
    TensorShape([1, 8, 8, 1])
    """

    config_class: type[Config] = ViTGANConfig

    def __init__(self, config: ViTGANConfig, name: str = "vitgan", **kwargs: Any) -> None:
        rows, columns = patch_grid(height_and_width(config.image_size, "image_size"), config.patch_size)
        latents = keras.Input((config.latent_dim,), name="latents")
        w = self.modulation(config, latents, rows * columns)
        x = LearnedVectors(rows * columns, config.dim, name="positions")(latents)  # (B, N, D)
        trace = Trace()
        x = trace.run("generator", [self.block(config, i) for i in range(config.num_layers)], x, w=w)
        x = ModulatedNormalization(config.epsilon, name="norm")(x, w)
        outputs = {"images": self.draw(config, x)}
        super().__init__(config, {"latents": latents}, outputs, trace, name=name, **kwargs)

    @classmethod
    def modulation(cls, config, latents, count):
        """The vector w (B, D), or one for each of `count` tokens (B, N, D), that modulates all norms."""
        hidden = Dense(config.dim, "gelu", name="mapping_hidden")(latents)
        return Dense(config.dim, name="mapping")(hidden)

    @classmethod
    def block(cls, config, index):
        """Block number `index`."""
        attention = MultiHeadAttention(config.num_heads)
        feedforward = FeedForward(config.intermediate_dim, "gelu")
        return ModulatedBlock(attention, feedforward, config.epsilon, name=f"block_{index}")

    @classmethod
    def draw(cls, config, x):
        """The images of the tokens (B, N, D)."""
        sizes = config.patch_size, config.num_channels, config.dim
        patches = PixelFunction(*sizes, config.frequency, name="pixels")(x)
        return combine_patches(patches, config.patch_size, config.image_size)


class PixelFunction(Layer):
    """The pixels of a patch as a function of their places, which a token determines: (B, N, D) -> (B, N, P P
    C).

    tanh(W sin(frequency (E + U y))), where y is the token and E a linear function of Fourier features of a
    pixel's place, sines and cosines (section 3.3 of Lee et al.; Sitzmann et al. 2020, "SIREN").
    """

    def __init__(
        self, patch_size: int, num_channels: int, hidden_dim: int, frequency: float = 30.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.patch_size = patch_size
        self.num_channels = num_channels
        self.hidden_dim = hidden_dim
        self.frequency = frequency

    def build(self, x_shape):
        # The sums of SIREN's hidden layers are as wide as sqrt(6 / D) / frequency lets them be.
        limit = (6 / x_shape[-1]) ** 0.5 / self.frequency
        initializer = keras.initializers.RandomUniform(-limit, limit)
        self.token = Dense(self.hidden_dim, kernel_initializer=initializer, name="token")
        self.token.build(x_shape)
        self.place = Dense(self.hidden_dim, use_bias=False, name="place")
        self.place.build((None, self._places().shape[-1]))
        self.colour = Dense(self.num_channels, "tanh", name="colour")
        self.colour.build((None, self.hidden_dim))

    def _places(self):
        """Sines and cosines of the rows and columns of a patch: a NumPy array (P P, 4 P)."""
        centres = (np.arange(self.patch_size) + 0.5) / self.patch_size
        angles = np.pi * centres[:, None] * np.arange(1, self.patch_size + 1)
        features = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)  # (P, 2 P)
        rows, columns = np.repeat(features, self.patch_size, 0), np.tile(features, (self.patch_size, 1))
        return np.concatenate([rows, columns], axis=-1).astype("float32")

    def call(self, x):
        """(B, N, D) -> (B, N, P P C)."""
        places = self.place(ops.cast(self._places(), self.compute_dtype)) / self.frequency  # (P P, F)
        hidden = ops.sin(self.frequency * (self.token(x)[:, :, None] + places))  # (B, N, P P, F)
        return ops.reshape(self.colour(hidden), (-1, x.shape[1], self.patch_size**2 * self.num_channels))

    def compute_output_shape(self, x_shape):
        return (*x_shape[:-1], self.patch_size**2 * self.num_channels)


@dataclasses.dataclass(frozen=True)
class ViTGANDiscriminatorConfig(PictureSizes):
    """The sizes of a `ViTGANDiscriminator`.

    Args:
        overlap: how many pixels a patch, seen, reaches beyond its `patch_size` on each side.
    """

    overlap: Whole = 2


class ViTGANDiscriminator(ConfiguredModel):
    """ViTGAN's discriminator: images in, one score for each out, high for real ones. A variant overrides
    `tokens` or `attention`.

    Input: `images` (B, H, W, C), from -1 to 1. Output: `scores` (B, 1).

    >>> model = keras_tfm.models.ViTGANDiscriminator.from_size("tiny")
    >>> model({"images": np.zeros((2, 8, 8, 1))})["scores"].shape
    TensorShape([2, 1])
    """

    config_class: type[Config] = ViTGANDiscriminatorConfig

    def __init__(
        self, config: ViTGANDiscriminatorConfig, name: str = "vitgan_discriminator", **kwargs: Any
    ) -> None:
        images = image_input(config)
        x = PrependedTokens(initializer="normal", name="class_token")(self.tokens(config, images))
        x = PositionEmbedding(x.shape[1], name="positions")(x)
        trace = Trace()
        x = trace.run("discriminator", [self.block(config, i) for i in range(config.num_layers)], x)
        x = LayerNormalization(config.epsilon, name="norm")(x[:, 0])
        outputs = {"scores": dense(1, name="score")(x)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)

    @classmethod
    def tokens(cls, config, images):
        """The projected patches (B, N, D)."""
        side = config.patch_size + 2 * config.overlap
        options = {"padding": config.overlap, "keeps_norm": True, "name": "patch_embedding"}
        return flatten_map(SpectralConvolution(config.dim, side, config.patch_size, **options)(images))

    @classmethod
    def block(cls, config, index):
        """Block number `index`."""
        part = residuals(normalize_first=True, epsilon=config.epsilon)
        feedforward = Chain([dense(config.intermediate_dim, "gelu"), dense(config.dim)])
        attention = cls.attention(config)
        return block_of(part, f"block_{index}", attention=attention, feedforward=feedforward)

    @classmethod
    def attention(cls, config):
        """The attention of a block."""
        query_key, value = (dense(config.dim, use_bias=False) for _ in range(2))
        projections = TiedProjections(config.num_heads, query_key, value)
        return DistanceAttention(projections, output_layer=dense(config.dim))


def dense(units, activation=None, **options):
    """A dense layer whose kernel keeps the greatest singular value that it begins with."""
    return SpectralDense(units, activation, keeps_norm=True, **options)


# Lee et al. 2022, section 4.1: four blocks for images of 32 x 32, six for 64 x 64, of ViT-S's width. The
# sides of patches and the widths of the latents are this package's, and so is tiny, for the digits of
# scikit-learn.
_TINY: dict[str, Any] = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_layers": 3, "dim": 64}
_TINY |= {"num_heads": 4, "intermediate_dim": 128}
_64: dict[str, Any] = {"image_size": 64, "patch_size": 8, "num_layers": 6}
ViTGAN.sizes = {
    "32": ViTGANConfig(),
    "64": ViTGANConfig(**_64),
    "tiny": ViTGANConfig(**_TINY, latent_dim=32),
}
ViTGANDiscriminator.sizes = {
    "32": ViTGANDiscriminatorConfig(),
    "64": ViTGANDiscriminatorConfig(**_64, overlap=4),
    "tiny": ViTGANDiscriminatorConfig(**_TINY, overlap=1),
}
