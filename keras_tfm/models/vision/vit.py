"""The Vision Transformer, ViT (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words").

A Transformer encoder that normalises the input of each sub-layer, with exact GELU and a last norm, on
patches and a class token, or on patches alone. Deviates from the authors' code in where dropout acts: on the
attention weights too, as in all blocks of this package, and not between the two layers of a feed-forward
layer.
"""

import dataclasses
from typing import Annotated, Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Between, Config, Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.image_positions import interpolate_positions
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PatchEncoder
from keras_tfm.layers.patches import height_and_width, patch_grid
from keras_tfm.layers.pooling import AttentionPooling
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace, growing_rates
from keras_tfm.models.vision.images import PatchedImageConfig, image_input
from keras_tfm.training.model import Model
from keras_tfm.training.weights import assign_by_path, by_path


@dataclasses.dataclass(frozen=True)
class PatchesConfig(PatchedImageConfig):
    """The fields that ViT and its variants share; the defaults are ViT-B/16's."""

    num_layers: Depth = 12
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    activation: str = "gelu"
    epsilon: Rate = 1e-6
    qkv_bias = True  # a class attribute, not a field: fixed in a family that does not make it one


@dataclasses.dataclass(frozen=True)
class ViTConfig(PatchesConfig):
    """The sizes of a `ViT`; the defaults are ViT-B/16's.

    Args:
        pooling: what the pooled output is: the "class" token, or, without a class token, the "mean" of the
            patches, all patches concatenated ("flatten"), or an `AttentionPooling` (Zhai et al. 2022).
        pooler: whether a tanh layer follows on the pooled output.
        position_stddev: the spread of the initial positions. The default is the authors'. With few examples
            ten times as much is better, because patches have about unit scale, and small positions take many
            epochs to matter: on scikit-learn's digits the accuracy after 40 epochs is 98 % instead of 92 %.
        qkv_bias: whether queries, keys and values have biases.
    """

    pooling: Literal["class", "mean", "flatten", "attention"] = "class"
    pooler: bool = False
    position_stddev: Annotated[float, Between(0, 10)] = 0.02
    qkv_bias: bool = True


class ViT(ConfiguredModel):
    """ViT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the class token's final state. With another `pooling` they are (B, N,
    D) and (B, D), or (B, N D) for "flatten". A family that differs overrides `embed`, `block` or `pooled`.

    >>> model = keras_tfm.models.ViT.from_size("tiny", num_layers=1)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 65, 128])
    """

    config_class: type[Config] = ViTConfig
    reads_any_size = True  # whether the layers of `embed` do, as `reading` needs it

    def __init__(self, config: ViTConfig, name: str | None = None, **kwargs: Any) -> None:
        images = image_input(config)
        position, x = self.embed(config, images)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        trace = Trace()
        x = trace.run("encoder", self.encoder(config), x)
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, **self.pooled(config, x)}
        name = name or type(self).__name__.lower()
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)
        self.position = position

    @classmethod
    def embed(cls, config, images):
        """The `PositionEmbedding` of the tokens, or None, and the tokens (B, N + 1, D) of `images`."""
        positions = keras.initializers.RandomNormal(stddev=config.position_stddev)
        has_token = config.pooling == "class"
        encoder = PatchEncoder(config.dim, config.patch_size, has_token, positions, name="patch_encoder")
        tokens = encoder(images)
        return encoder.position, tokens

    @classmethod
    def encoder(cls, config):
        """The blocks, the first one first."""
        return [cls.block(config, i) for i in range(config.num_layers)]

    @classmethod
    def block(cls, config, index):
        """Block number `index`, called `block_{index}`."""
        rate = growing_rates(config.stochastic_depth, config.num_layers)[index]
        return encoder_block(config, rate, f"block_{index}")

    @classmethod
    def pooled(cls, config, x):
        """The outputs besides `sequence_output`, `x`, from which they are made."""
        y = _pooled(config, x)
        if config.pooler:
            y = keras.layers.Dense(config.dim, "tanh", name="pooler")(y)
        return {"pooled_output": y}

    @classmethod
    def smooths(cls, config):
        """What `interpolate_positions` is to do for images of another size."""
        return True

    @classmethod
    def grid_of(cls, config):
        """The (rows, columns) of patches."""
        return patch_grid(height_and_width(config.image_size), config.patch_size)

    def with_image_size(self, image_size):
        """A copy for images of another size, with interpolated positions, for fine-tuning."""
        model = self.with_fresh_weights(image_size=image_size)
        grid, new_grid = (self.grid_of(each.config) for each in (self, model))
        given: dict[str, Any] = by_path(self)
        if self.position is not None:
            positions, smooths = self.position.embedding.embeddings, self.smooths(self.config)
            given[positions.path] = interpolate_positions(in_float32(positions), grid, new_grid, smooths)
        assign_by_path(model, given)
        return model

    def reading(self, image_size):
        """A model of the same layers for images of another size, with positions interpolated at each call.

        It shares its weights with this model, so that both sizes can be trained together. Raises ValueError
        for a family whose layers are made for one size.
        """
        if not self.reads_any_size:
            raise ValueError(
                f"{type(self).__name__} has layers for images of one size; it cannot read others."
            )
        images = image_input(dataclasses.replace(self.config, image_size=image_size))
        return Model({"images": images}, self.call({"images": images}), name=f"{self.name}_reading")


def _pooled(config, x):
    """One vector for the tokens (B, N, D), as `pooling` says."""
    if config.pooling == "class":
        return ops.take(x, 0, axis=1)
    if config.pooling == "mean":
        return ops.mean(x, axis=1)
    if config.pooling == "flatten":
        return ops.reshape(x, (-1, x.shape[1] * x.shape[2]))  # (B, N D)
    sizes = (config.num_heads, config.intermediate_dim, config.activation, config.epsilon)
    return AttentionPooling(*sizes, name="pooling")(x)


def encoder_block(config, rate, name):
    """A block of ViT; `rate` is the rate of stochastic depth."""
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    attention = attention_of(config, config.dropout)
    feedforward = FeedForward(config.intermediate_dim, config.activation)
    return block_of(part, name, attention=attention, feedforward=feedforward)


def attention_of(config, dropout, **initializer):
    """The attention of a block. `qkv_bias` are the names of projections with a bias, or True for all or False
    for none; the output layer always has one.
    """
    return MultiHeadAttention(
        config.num_heads, dropout=dropout, use_bias=config.qkv_bias or (), **initializer
    )


# Ti and S: Steiner et al. 2022, "How to train your ViT?". B, L and H: Dosovitskiy et al. 2021. g and G: Zhai
# et al. 2022, with the `pooling` "attention"; the weights that others have published have a class token
# instead. The number after the slash is the side of a patch, for images of 224 x 224. tiny is this package's
# own, for images of about 32 x 32 and 10^4 to 10^5 examples.
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
