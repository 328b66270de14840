"""ViViT (Arnab et al. 2021, "ViViT: A Video Vision Transformer"): models 1 and 2.

Model 1 is a ViT whose tokens are tubelets, patches several frames long, which all attend to each other.
Model 2, the factorised encoder, has two encoders. The first processes the tubelets of each moment, with a
class token; the second processes the final states of these class tokens, after a class token of its own. As
in the released code GELU is approximated with tanh.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Config, Depth, Heads, Rate, Size
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.tubelets import TubeletEmbedding
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side
from keras_tfm.models.vision.vit import encoder_block

POSITIONS = keras.initializers.RandomNormal(stddev=0.02)


@dataclasses.dataclass(frozen=True)
class ViViTConfig(Config):
    """The sizes of a `ViViT`.

    Args:
        tubelet_size: (frames, height, width) of a tubelet.
        num_temporal_layers: the layers of model 2's second encoder; None for model 1.
        pooler: whether a tanh layer follows on the pooled output.
    """

    num_frames: Annotated[int, Between(1, 2**14)] = 32
    image_size: Side | tuple[Side, Side] = 224
    tubelet_size: tuple[Side, Side, Side] = (2, 16, 16)
    num_channels: Size = 3
    num_layers: Depth = 12
    num_temporal_layers: Depth | None = None
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    dropout: Rate = 0.0
    activation: str = "gelu_tanh"
    epsilon: Rate = 1e-6
    pooler: bool = False
    qkv_bias = True  # a class attribute, not a field


class ViViT(ConfiguredModel):
    """ViViT: videos in, hidden states out.

    Input: `videos` (B, F, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class
    token first and then the tubelets, moment by moment and row by row, and `pooled_output` (B, D), the class
    token's final state. With `num_temporal_layers` the second encoder gives the sequence: a class token and
    the moments. The first encoder's stack is "encoder", whose states are (B moments, ., D), the second's
    "temporal".

    >>> sizes = dict(num_frames=4, image_size=32, num_layers=1, dim=16, num_heads=2, intermediate_dim=32)
    >>> model = keras_tfm.models.ViViT.from_size("B/16x2", **sizes)
    >>> model(np.ones((1, 4, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 9, 16])
    """

    config_class = ViViTConfig

    def __init__(self, config: ViViTConfig, name: str = "vivit", **kwargs: Any) -> None:
        image_size = height_and_width(config.image_size, "image_size")
        videos = keras.Input((config.num_frames, *image_size, config.num_channels), name="videos")
        embedding = TubeletEmbedding(config.dim, config.tubelet_size, name="tubelets")
        x = embedding(videos)
        _, moments, rows, columns, dim = x.shape
        is_factorized = config.num_temporal_layers is not None
        length = rows * columns if is_factorized else moments * rows * columns
        x = ops.reshape(x, (-1, length, dim))  # (B, N, D), or (B moments, N, D)
        trace = Trace()
        x = _encoded(config, trace, "encoder", x, config.num_layers, "")
        if is_factorized:
            x = ops.reshape(x[:, 0], (-1, moments, dim))
            x = _encoded(config, trace, "temporal", x, config.num_temporal_layers, "temporal_")
        pooled = ops.take(x, 0, axis=1)
        if config.pooler:
            pooled = keras.layers.Dense(dim, "tanh", name="pooler")(pooled)
        outputs = {"sequence_output": x, "pooled_output": pooled}
        super().__init__(config, {"videos": videos}, outputs, trace, name=name, **kwargs)


def _encoded(config, trace, stack, x, num_layers, prefix):
    """The output of a ViT's encoder on `x` after a class token; `trace` records its blocks as `stack`."""
    x = PrependedTokens(name=f"{prefix}class_token")(x)
    x = PositionEmbedding(x.shape[1], POSITIONS, name=f"{prefix}position")(x)
    x = Dropout(config.dropout, name=f"{prefix}embedding_dropout")(x)
    blocks = [encoder_block(config, 0.0, f"{prefix}block_{i}") for i in range(num_layers)]
    return LayerNormalization(config.epsilon, name=f"{prefix}norm")(trace.run(stack, blocks, x))


# Arnab et al. 2021, sections 4.1 and 4.2: the sizes of ViT, and after the slash the size of a tubelet. "FE"
# is the factorised encoder, model 2, with 4 layers over the moments.
_BASE = ViViTConfig()
_LARGE = ViViTConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096)
ViViT.sizes = {
    "B/16x2": _BASE,
    "L/16x2": _LARGE,
    "B/16x2-FE": dataclasses.replace(_BASE, num_temporal_layers=4),
    "L/16x2-FE": dataclasses.replace(_LARGE, num_temporal_layers=4),
}
