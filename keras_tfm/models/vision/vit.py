"""The Vision Transformer of Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words".

An encoder that normalises first, with exact GELU and a last normalisation, over patches and a class token,
or over patches alone. Deviates from the authors' code in where dropout acts: as in all blocks here on the
attention weights too, and not between the two layers of a feed-forward.
"""

import dataclasses
from typing import Annotated, Literal

import keras
from keras import ops

from keras_tfm.configs import Between, Config, Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import interpolate_positions
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PatchEncoder
from keras_tfm.layers.patches import height_and_width, patch_grid
from keras_tfm.layers.pooling import AttentionPooling
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, growing_rates, states_of
from keras_tfm.models.vision.images import Side, image_input
from keras_tfm.training.model import Model


@dataclasses.dataclass(frozen=True)
class PatchesConfig(Config):
    """What ViT and its kin have in common; `image_size`, `patch_size` are sides or (height, width) pairs.

    `stochastic_depth` is the rate of the last block.
    """

    image_size: Side | tuple[Side, Side] = 224
    patch_size: Side | tuple[Side, Side] = 16
    num_channels: Size = 3
    num_layers: Depth = 12
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    dropout: Rate = 0.0
    stochastic_depth: Rate = 0.0
    activation: str = "gelu"
    epsilon: Rate = 1e-6


@dataclasses.dataclass(frozen=True)
class ViTConfig(PatchesConfig):
    """`pooling` says what becomes the pooled output: the "class" token; where there is none, the "mean" of
    the patches, all of them side by side ("flatten"), or an `AttentionPooling` (Zhai et al. 2022). A `pooler`
    is a tanh layer on it. `position_stddev` is the spread of the first positions, by default the authors'.
    Ten times as much is for few examples: next to patches of about unit scale the authors' stay unseen for
    many epochs. On scikit-learn's digits the accuracy after 40 epochs is 98 % in place of 92 %.
    """

    pooling: Literal["class", "mean", "flatten", "attention"] = "class"
    pooler: bool = False
    position_stddev: Annotated[float, Between(0, 10)] = 0.02


class ViT(ConfiguredModel):
    """Images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the class token's final state; with another `pooling` (B, N, D) and
    (B, D), or (B, N D) where it is "flatten". A family that differs overrides `embed`, `block` or `pooled`.
    """

    config_class: type[Config] = ViTConfig
    reads_any_size = True  # whether `embed` is of layers that do, so that `reading` may call them again

    def __init__(self, config, name=None, **kwargs):
        images = image_input(config)
        position, x = self.embed(config, images)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        blocks = self.encoder(config)
        states = states_of(blocks, x)
        x = LayerNormalization(config.epsilon, name="norm")(states[-1])
        outputs = {"sequence_output": x, **self.pooled(config, x)}
        name = name or type(self).__name__.lower()
        stacks = {"encoder": blocks}, {"encoder": states}
        super().__init__(config, {"images": images}, outputs, *stacks, name=name, **kwargs)
        self.position = position

    @classmethod
    def embed(cls, config, images):
        """The `PositionEmbedding` of the tokens, or None, and the tokens (B, N + 1, D) of `images`."""
        positions = keras.initializers.RandomNormal(stddev=config.position_stddev)
        has_token = config.pooling == "class"
        encoder = PatchEncoder(config.patch_size, config.dim, has_token, positions, name="patch_encoder")
        tokens = encoder(images)
        return encoder.position, tokens

    @classmethod
    def encoder(cls, config):
        """The blocks, the lowest first."""
        return [cls.block(config, i) for i in range(config.num_layers)]

    @classmethod
    def block(cls, config, index):
        """Block number `index`, called `block_{index}`."""
        rate = growing_rates(config.stochastic_depth, config.num_layers)[index]
        return encoder_block(config, rate, f"block_{index}")

    @classmethod
    def pooled(cls, config, x):
        """The outputs beside `sequence_output`, of which they are made."""
        y = _pooled(config, x)
        if config.pooler:
            y = keras.layers.Dense(config.dim, "tanh", name="pooler")(y)
        return {"pooled_output": y}

    @classmethod
    def grid_of(cls, config):
        """How many (rows, columns) of patches there are."""
        return patch_grid(height_and_width(config.image_size), config.patch_size)

    def with_image_size(self, image_size):
        """A copy for images of another size, the positions interpolated: for fine-tuning."""
        config = dataclasses.replace(self.config, image_size=image_size)
        model = type(self)(config, name=self.name, dtype=self.dtype_policy)
        grids = [self.grid_of(each) for each in (self.config, config)]
        positions = None if self.position is None else self.position.embedding.embeddings
        for new, old in zip(model.weights, self.weights, strict=True):
            new.assign(interpolate_positions(old, *grids) if old is positions else old)
        return model

    def reading(self, image_size):
        """A model of these very layers for images of another size, positions interpolated at each call.

        So several sizes are learnt from at once. ValueError for a family whose layers are bound to one.
        """
        if not self.reads_any_size:
            raise ValueError(f"The layers of {type(self).__name__} are bound to the size of its images.")
        images = image_input(dataclasses.replace(self.config, image_size=image_size))
        return Model({"images": images}, self.call({"images": images}), name=f"{self.name}_reading")


def _pooled(config, x):
    """One vector of the tokens (B, N, D), as `pooling` says."""
    if config.pooling == "class":
        return ops.take(x, 0, axis=1)
    if config.pooling == "mean":
        return ops.mean(x, axis=1)
    if config.pooling == "flatten":
        return ops.reshape(x, (-1, x.shape[1] * x.shape[2]))  # (B, N D)
    sizes = (config.num_heads, config.intermediate_dim, config.activation, config.epsilon)
    return AttentionPooling(*sizes, name="pooling")(x)


def encoder_block(config, rate, name):
    """A block of ViT and its kin, left out of an example with the probability `rate`."""
    part = residuals(True, config.dropout, config.epsilon, stochastic_depth=rate)
    attention = MultiHeadAttention(config.num_heads, dropout=config.dropout)
    feedforward = FeedForward(config.intermediate_dim, config.activation)
    return Block(part(attention), part(feedforward), name=name)


# Ti and S: Steiner et al. 2022, "How to train your ViT?". B, L and H: Dosovitskiy et al. 2021. g and G: Zhai
# et al. 2022, where their `pooling` is "attention"; the weights that others have published have a class
# token. After the stroke stands the patch's side, at 224 x 224.
# tiny is this package's own, for images of some 32 x 32 and 10^4 to 10^5 examples.
_TINY = ViTConfig(dim=192, num_heads=3, intermediate_dim=768)
_SMALL = ViTConfig(dim=384, num_heads=6, intermediate_dim=1536)
_BASE = ViTConfig()
_LARGE = ViTConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096)
_HUGE = ViTConfig(num_layers=32, dim=1280, num_heads=16, intermediate_dim=5120)
_GIANT = ViTConfig(patch_size=14, num_layers=40, dim=1408, num_heads=16, intermediate_dim=6144)
ViT.sizes = {
    "tiny": ViTConfig(
        image_size=32,
        patch_size=4,
        num_layers=6,
        dim=128,
        num_heads=4,
        intermediate_dim=512,
        position_stddev=0.2,
    ),
    "Ti/16": _TINY,
    "S/32": dataclasses.replace(_SMALL, patch_size=32),
    "S/16": _SMALL,
    "B/32": dataclasses.replace(_BASE, patch_size=32),
    "B/16": _BASE,
    "L/32": dataclasses.replace(_LARGE, patch_size=32),
    "L/16": _LARGE,
    "H/14": dataclasses.replace(_HUGE, patch_size=14),
    "g/14": _GIANT,
    "G/14": dataclasses.replace(_GIANT, num_layers=48, dim=1664, intermediate_dim=8192),
}
