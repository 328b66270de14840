"""DINOv3 of Siméoni et al. 2025, "DINOv3": `DINOv2` with rotary positions in place of learned ones.

Patches are rotated by their place inside each attention layer; class and register tokens have no position.
Keys have no bias, and in the 7 B model queries and values have none either. Deviates from the authors' code
in that coordinates are not shifted and scaled at random while it trains, and that the mask token, which only
their pre-training uses, is left out.
"""

import dataclasses
from typing import Annotated, Any

from keras_tfm.configs import Between, Rate, Whole
from keras_tfm.layers.attention.grid_rotary import GridRotaryEmbedding
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.attention.projections import PARTS
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import PatchEmbedding, flatten_map
from keras_tfm.models.vision.dinov2 import DINOConfig, DINOv2
from keras_tfm.models.vision.images import Side


@dataclasses.dataclass(frozen=True)
class DINOv3Config(DINOConfig):
    """Fields that differ from `DINOConfig`'s: `gated` feed-forward layers use `activation` for the gate,
    `rotary_base` is the base of `GridRotaryEmbedding`, and `query_bias`, `key_bias` and `value_bias` say
    which of attention's projections have a bias.
    """

    image_size: Side | tuple[Side, Side] = 224
    patch_size: Side | tuple[Side, Side] = 16
    num_registers: Whole = 4
    epsilon: Rate = 1e-5
    rotary_base: Annotated[float, Between(0, 1e9, is_above=True)] = 100.0
    query_bias: bool = True
    key_bias: bool = False
    value_bias: bool = True

    def __post_init__(self):
        super().__post_init__()
        if self.dim % (4 * self.num_heads):
            raise ValueError(
                "`dim` must be a multiple of 4 `num_heads`, for rotations by row and by column; "
                f"it is {self.dim} for {self.num_heads} heads."
            )


class DINOv3(DINOv2):
    """`DINOv2` with rotary positions: `sequence_output` is (B, 1 + R + N, D), the class token first.

    `pooled_output` (B, D) is the class token's final state, `patch_output` (B, N, D) are the patches'.

    >>> model = keras_tfm.models.DINOv3(keras_tfm.models.tiny_config(keras_tfm.models.DINOv3))
    >>> model({"images": np.zeros((1, 32, 32, 3))})["patch_output"].shape
    TensorShape([1, 64, 128])
    """

    config_class = DINOv3Config
    reads_any_size = False  # the rotations are made for one grid

    @classmethod
    def embed(cls, config, images):
        embedding = PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")
        x = flatten_map(embedding(images))  # (B, N, D)
        if config.num_registers:
            x = PrependedTokens(config.num_registers, TRUNCATED, name="register_tokens")(x)
        return None, PrependedTokens(initializer=TRUNCATED, name="class_token")(x)

    @classmethod
    def attention(cls, config):
        biased = [part for part in PARTS if getattr(config, f"{part}_bias")]
        position = GridRotaryEmbedding(cls.grid_of(config), 1 + config.num_registers, config.rotary_base)
        return MultiHeadAttention(
            config.num_heads,
            dropout=config.attention_dropout,
            use_bias=biased,
            position=position,
            kernel_initializer=TRUNCATED,
        )

    @classmethod
    def feedforward(cls, config):
        options = {"kernel_initializer": TRUNCATED, "gated": config.gated}
        return FeedForward(config.intermediate_dim, config.activation, **options)


# The published models, by their names; a "+" has gated feed-forward layers. Their last training was on images
# of 512 x 512 and more, and they read 224 x 224 by default.
_S = DINOv3Config(dim=384, num_heads=6, intermediate_dim=1536)
_GATED: dict[str, Any] = {"gated": True, "activation": "silu"}
DINOv3.sizes = {
    "S/16": _S,
    "S+/16": dataclasses.replace(_S, **_GATED),
    "B/16": DINOv3Config(),
    "L/16": DINOv3Config(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096),
    "H+/16": DINOv3Config(num_layers=32, dim=1280, num_heads=20, intermediate_dim=5120, **_GATED),
    "7B/16": DINOv3Config(
        num_layers=40,
        dim=4096,
        num_heads=32,
        intermediate_dim=8192,
        query_bias=False,
        value_bias=False,
        **_GATED,
    ),
}
