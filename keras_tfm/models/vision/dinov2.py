"""DINOv2 (Oquab et al. 2023, "DINOv2: Learning Robust Visual Features without Supervision").

A ViT whose parts have learned factors (`layer_scale`); the giant has gated feed-forward layers (SwiGLU).
Register tokens, which have no position, may follow the class token (Darcet et al. 2024, "Vision Transformers
Need Registers"). As in the authors' code stochastic depth is the same in all blocks. The mask token is left
out, because only their pre-training uses it.
"""

import dataclasses

from keras import ops

from keras_tfm.configs import Rate, Whole
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.patch_encoder import PatchEncoder, PrependedTokens
from keras_tfm.models.vision.images import Side
from keras_tfm.models.vision.vit import PatchesConfig, ViT, attention_of


@dataclasses.dataclass(frozen=True)
class DINOConfig(PatchesConfig):
    """The fields that `DINOv2` and `DINOv3` share.

    Args:
        num_registers: the number of register tokens.
        layer_scale: the first value of the learned factors.
        gated: whether the feed-forward layers have a SiLU gate, whatever `activation` says.
            `intermediate_dim` is then the width of the gate, and of the values that it multiplies.
    """

    image_size: Side | tuple[Side, Side] = 518
    patch_size: Side | tuple[Side, Side] = 14
    num_registers: Whole = 0
    attention_dropout: Rate = 0.0
    layer_scale: float = 1.0
    gated: bool = False


@dataclasses.dataclass(frozen=True)
class DINOv2Config(DINOConfig):
    """The sizes of a `DINOv2`: `qkv_bias` says whether queries, keys and values have biases."""

    qkv_bias: bool = True


class DINOv2(ViT):
    """A `ViT` with register tokens: `sequence_output` is (B, 1 + R + N, D), the class token first.

    `pooled_output` (B, D) is the class token's final state, `patch_output` (B, N, D) are the patches' final
    states.

    >>> sizes = dict(image_size=32, patch_size=16, num_layers=1, dim=16, num_heads=2)
    >>> model = keras_tfm.models.DINOv2.from_size("S/14", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class: type[DINOConfig] = DINOv2Config

    @classmethod
    def embed(cls, config, images):
        options = {"position_initializer": TRUNCATED, "smooths": cls.smooths(config)}
        encoder = PatchEncoder(config.dim, config.patch_size, **options, name="patch_encoder")
        x = encoder(images)
        if config.num_registers:
            patches = PrependedTokens(config.num_registers, name="register_tokens")(x[:, 1:])
            x = ops.concatenate([x[:, :1], patches], axis=1)  # (B, 1 + R + N, D)
        return encoder.position, x

    @classmethod
    def smooths(cls, config):
        """Whether positions for another size are averages: with registers, as transformers reads both."""
        return config.num_registers > 0

    @classmethod
    def block(cls, config, index):
        rates = {"stochastic_depth": config.stochastic_depth, "layer_scale": config.layer_scale}
        part = residuals(config.dropout, config.epsilon, normalize_first=True, **rates)
        attention, feedforward = cls.attention(config), cls.feedforward(config)
        return block_of(part, f"block_{index}", attention=attention, feedforward=feedforward)

    @classmethod
    def attention(cls, config):
        """The attention of a block."""
        return attention_of(config, config.attention_dropout, kernel_initializer=TRUNCATED)

    @classmethod
    def feedforward(cls, config):
        """The feed-forward layer of a block."""
        activation = "silu" if config.gated else config.activation
        options = {"kernel_initializer": TRUNCATED, "gated": config.gated}
        return FeedForward(config.intermediate_dim, activation, **options)

    @classmethod
    def pooled(cls, config, x):
        return {"pooled_output": x[:, 0], "patch_output": x[:, 1 + config.num_registers :]}


def with_registers(config):
    """`config` with four registers, as in Darcet et al. 2024."""
    return dataclasses.replace(config, num_registers=4)


# The architectures of Oquab et al. 2023: 21 M, 86 M, 300 M and 1.1 B parameters. The training of the
# published models ends with images of 518 x 518.
_S = DINOv2Config(dim=384, num_heads=6, intermediate_dim=1536)
_L = DINOv2Config(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096)
_G = DINOv2Config(num_layers=40, dim=1536, num_heads=24, intermediate_dim=4096, gated=True)
DINOv2.sizes = {"S/14": _S, "B/14": DINOv2Config(), "L/14": _L, "g/14": _G}
DINOv2.sizes |= {f"{name}-registers": with_registers(config) for name, config in DINOv2.sizes.items()}
