"""ViViT (Arnab et al. 2021, "ViViT: A Video Vision Transformer"): models 1 to 4.

Model 1 is a ViT whose tokens are tubelets, patches several frames long, which all attend to each other.
Model 2, the factorised encoder, has two encoders. The first processes the tubelets of each moment, with a
class token; the second processes the final states of these class tokens, after a class token of its own. The
others have one encoder and no class token. In model 3, factorised self-attention, a block attends among the
tubelets of a moment, then among the tubelets of a place. In model 4, factorised dot products, half of the
heads do the one and half the other. As in the released code GELU is approximated with tanh.
"""

import dataclasses
from typing import Annotated, Any, Literal

import keras
from keras import ops

from keras_tfm.configs import Between, Config, Depth, FieldError, Heads, Rate, Size
from keras_tfm.layers.attention.axial import DividedAttention
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.tubelets import TubeletEmbedding
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side, video_input
from keras_tfm.models.vision.stem import Stem, check_stem, convolved, stride_of
from keras_tfm.models.vision.vit import attention_of, encoder_block

AXES: tuple[Literal["space"], Literal["time"]] = ("space", "time")


@dataclasses.dataclass(frozen=True)
class ViViTConfig(Config):
    """The sizes of a `ViViT`.

    Args:
        tubelet_size: (frames, height, width) of a tubelet, in pixels.
        stem: the (width, stride) of convolutions, 3 x 3, that each frame passes before it is cut into
            tubelets (Xiao et al. 2021, "Early Convolutions Help Transformers See Better"); none in the paper.
        position_stddev: the spread of the initial positions, see `ViTConfig`.
        num_temporal_layers: the layers of model 2's second encoder; None for the others.
        attention: "joint" for models 1 and 2, "factorized" for model 3, "split" for model 4.
        pooler: whether a tanh layer follows on the pooled output.
    """

    num_frames: Annotated[int, Between(1, 2**14)] = 32
    image_size: Side | tuple[Side, Side] = 224
    tubelet_size: tuple[Side, Side, Side] = (2, 16, 16)
    num_channels: Size = 3
    num_layers: Depth = 12
    num_temporal_layers: Depth | None = None
    attention: Literal["joint", "factorized", "split"] = "joint"
    dim: Size = 768
    num_heads: Heads = 12
    intermediate_dim: Size = 3072
    dropout: Rate = 0.0
    activation: str = "gelu_tanh"
    epsilon: Rate = 1e-6
    pooler: bool = False
    stem: Stem = ()
    position_stddev: Annotated[float, Between(0, 10)] = 0.02
    qkv_bias = True  # a class attribute, not a field

    def __post_init__(self):
        super().__post_init__()
        check_stem(self.stem, "tubelet_size", self.tubelet_size[1:])
        if self.attention != "joint" and self.num_temporal_layers is not None:
            raise FieldError(
                "{num_temporal_layers} must be None where {attention} is not 'joint'; it is {}.",
                self.num_temporal_layers,
            )
        if self.attention == "split" and self.num_heads % 2:
            raise FieldError(
                "{num_heads} must be even where {attention} is 'split'; it is {}.", self.num_heads
            )


class ViViT(ConfiguredModel):
    """ViViT: videos in, hidden states out.

    Input: `videos` (B, F, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class
    token first and then the tubelets, moment by moment and row by row, and `pooled_output` (B, D), the class
    token's final state. With `num_temporal_layers` the second encoder gives the sequence: a class token and
    the moments. The first encoder's stack is "encoder", whose states are (B moments, ., D), the second's
    "temporal". Models 3 and 4 have the N tubelets alone, and `pooled_output` is the mean of their states.

    >>> sizes = dict(num_frames=4, image_size=32, num_layers=1, dim=16, num_heads=2, intermediate_dim=32)
    >>> model = keras_tfm.models.ViViT.from_size("B/16x2", **sizes)
    >>> model(np.ones((1, 4, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 9, 16])
    """

    config_class = ViViTConfig

    def __init__(self, config: ViViTConfig, name: str = "vivit", **kwargs: Any) -> None:
        videos = video_input(config)
        x = _tubelets(config, videos)
        _, moments, rows, columns, dim = x.shape
        length = rows * columns if config.num_temporal_layers else moments * rows * columns
        x = ops.reshape(x, (-1, length, dim))  # (B, N, D), or (B moments, N, D)
        trace = Trace()
        if config.attention == "joint":
            x = PrependedTokens(name="class_token")(x)
        blocks = [_block(config, moments, f"block_{i}") for i in range(config.num_layers)]
        x = _encoded(config, trace, "encoder", x, blocks, "")
        if config.num_temporal_layers:
            x = PrependedTokens(name="temporal_class_token")(ops.reshape(x[:, 0], (-1, moments, dim)))
            names = [f"temporal_block_{i}" for i in range(config.num_temporal_layers)]
            blocks = [encoder_block(config, 0.0, name) for name in names]
            x = _encoded(config, trace, "temporal", x, blocks, "temporal_")
        pooled = ops.take(x, 0, axis=1) if config.attention == "joint" else ops.mean(x, axis=1)
        if config.pooler:
            pooled = keras.layers.Dense(dim, "tanh", name="pooler")(pooled)
        outputs = {"sequence_output": x, "pooled_output": pooled}
        super().__init__(config, {"videos": videos}, outputs, trace, name=name, **kwargs)


def _tubelets(config, videos):
    """The vectors (B, moments, rows, columns, D) of the tubelets of `videos` (B, F, H, W, C)."""
    length, *sides = config.tubelet_size
    if config.stem:
        frames = ops.reshape(videos, (-1, *videos.shape[2:]))  # (B F, H, W, C)
        x = convolved(config.stem, frames)
        videos = ops.reshape(x, (-1, config.num_frames, *x.shape[1:]))  # (B, F, rows, columns, D)
        sides = [side // stride_of(config.stem) for side in sides]
    return TubeletEmbedding(config.dim, (length, *sides), name="tubelets")(videos)


def _encoded(config, trace, stack, x, blocks, prefix):
    """The output of a ViT's encoder of these `blocks` on the tokens `x`; `trace` records them as `stack`."""
    positions = keras.initializers.RandomNormal(stddev=config.position_stddev)
    x = PositionEmbedding(x.shape[1], positions, name=f"{prefix}position")(x)
    x = Dropout(config.dropout, name=f"{prefix}embedding_dropout")(x)
    return LayerNormalization(config.epsilon, name=f"{prefix}norm")(trace.run(stack, blocks, x))


def _block(config, num_moments, name):
    """A block of the encoder for tubelets of so many moments."""
    if config.attention == "joint":
        return encoder_block(config, 0.0, name)
    part = residuals(config.dropout, config.epsilon, normalize_first=True)
    feedforward = FeedForward(config.intermediate_dim, config.activation)
    if config.attention == "split":
        attention = SplitAttention(config.num_heads, num_moments, config.dropout)
        return block_of(part, name, attention=attention, feedforward=feedforward)
    space, time = (DividedAttention(attention_of(config, config.dropout), axis, num_moments) for axis in AXES)
    return block_of(part, name, attention=space, temporal_attention=time, feedforward=feedforward)


class SplitAttention(SameShape):
    """Attention whose first heads see the places of a moment, the others the moments of a place: (B, F N, D)
    in and out.

    The output layer's product with all heads side by side is the sum of its products with either half, by
    which each half is a `DividedAttention` of its own. `num_moments` is F.
    """

    def __init__(self, num_heads: int, num_moments: int, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.num_moments = num_moments
        self.dropout = dropout

    def build(self, x_shape):
        for axis in AXES:
            heads = HeadProjections(self.num_heads // 2, x_shape[2] // self.num_heads)
            output = Dense(x_shape[2], use_bias=axis == "space")  # one bias, as of one output layer
            attention = Attention(heads, dropout=self.dropout, output_layer=output)
            setattr(self, axis, DividedAttention(attention, axis, self.num_moments, name=axis))
            getattr(self, axis).build(x_shape)

    def call(self, x, training=None):
        """(B, F N, D) -> (B, F N, D)."""
        return self.space(x, training=training) + self.time(x, training=training)


# Arnab et al. 2021, sections 4.1 and 4.2: the sizes of ViT, and after the slash the size of a tubelet. "FE"
# is the factorised encoder, model 2, with 4 layers over the moments; FSA and FDP, this package's names, are
# models 3 and 4.
_BASE = ViViTConfig()
_LARGE = ViViTConfig(num_layers=24, dim=1024, num_heads=16, intermediate_dim=4096)
ViViT.sizes = {
    "B/16x2": _BASE,
    "L/16x2": _LARGE,
    "B/16x2-FE": dataclasses.replace(_BASE, num_temporal_layers=4),
    "B/16x2-FSA": dataclasses.replace(_BASE, attention="factorized"),
    "B/16x2-FDP": dataclasses.replace(_BASE, attention="split"),
    "L/16x2-FE": dataclasses.replace(_LARGE, num_temporal_layers=4),
}
