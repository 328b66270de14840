"""The Vision Transformer of Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words".

An encoder that normalises first, with exact GELU and a last normalisation, over patches and a class token.
Deviates from the authors' code in where dropout acts: as in all blocks here on the attention weights too, and
not between the two layers of a feed-forward.
"""

import dataclasses
from typing import Annotated

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
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, states_of

Side = Annotated[int, Between(1, 2**14)]  # in pixels


@dataclasses.dataclass(frozen=True)
class PatchesConfig(Config):
    """What ViT and its kin have in common; `image_size`, `patch_size` are sides or (height, width) pairs."""

    image_size: Side | tuple[Side, Side] = 224
    patch_size: Side | tuple[Side, Side] = 16
    num_channels: Size = 3
    num_layers: Depth = 12
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    dropout: Rate = 0.0
    activation: str = "gelu"
    epsilon: Rate = 1e-6


@dataclasses.dataclass(frozen=True)
class ViTConfig(PatchesConfig):
    """Without `class_token` the pooled output is the mean over the patches."""

    class_token: bool = True


class ViT(ConfiguredModel):
    """Images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), what became of the class token. A family that differs overrides
    `embed`, `block` or `pooled`.
    """

    config_class: type[Config] = ViTConfig

    def __init__(self, config, name=None, **kwargs):
        image_size = height_and_width(config.image_size, "image_size")
        images = keras.Input((*image_size, config.num_channels), name="images")
        position, x = self.embed(config, images)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        blocks = [self.block(config, i) for i in range(config.num_layers)]
        states = states_of(blocks, x)
        x = LayerNormalization(config.epsilon, name="norm")(states[-1])
        outputs = {"sequence_output": x, **self.pooled(config, x)}
        name = name or type(self).__name__.lower()
        stacks = {"encoder": blocks}, {"encoder": states}
        super().__init__(config, {"images": images}, outputs, *stacks, name=name, **kwargs)
        self.position = position

    @classmethod
    def embed(cls, config, images):
        """The `PositionEmbedding` of the tokens, and the tokens (B, N + 1, D) of `images`."""
        encoder = PatchEncoder(config.patch_size, config.dim, config.class_token, name="patch_encoder")
        tokens = encoder(images)
        return encoder.position, tokens

    @classmethod
    def block(cls, config, index):
        """Block number `index`, called `block_{index}`."""
        part = residuals(True, config.dropout, config.epsilon)
        attention = MultiHeadAttention(config.num_heads, dropout=config.dropout)
        feedforward = FeedForward(config.intermediate_dim, config.activation)
        return Block(part(attention), part(feedforward), name=f"block_{index}")

    @classmethod
    def pooled(cls, config, x):
        """The outputs beside `sequence_output`, of which they are made."""
        return {"pooled_output": ops.take(x, 0, axis=1) if config.class_token else ops.mean(x, axis=1)}

    def with_image_size(self, image_size):
        """A copy for images of another size, the positions interpolated: for fine-tuning (section 3.2)."""
        config = dataclasses.replace(self.config, image_size=image_size)
        model = type(self)(config, name=self.name, dtype=self.dtype_policy)
        grids = [
            patch_grid(height_and_width(size), self.config.patch_size)
            for size in (self.config.image_size, image_size)
        ]
        positions = self.position.embedding.embeddings
        for new, old in zip(model.weights, self.weights, strict=True):
            new.assign(interpolate_positions(old, *grids) if old is positions else old)
        return model


# Base, Large and Huge: Dosovitskiy et al. 2021, table 1; after the stroke the patch's side, at 224 x 224.
# tiny is this package's own, for images of some 32 x 32 and 10^4 to 10^5 examples.
_BASE = ViTConfig()
_LARGE = ViTConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096)
_HUGE = ViTConfig(num_layers=32, dim=1280, num_heads=16, intermediate_dim=5120)
ViT.sizes = {
    "tiny": ViTConfig(image_size=32, patch_size=4, num_layers=6, dim=128, num_heads=4, intermediate_dim=512),
    "B/32": dataclasses.replace(_BASE, patch_size=32),
    "B/16": _BASE,
    "L/32": dataclasses.replace(_LARGE, patch_size=32),
    "L/16": _LARGE,
    "H/14": dataclasses.replace(_HUGE, patch_size=14),
}
