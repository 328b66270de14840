"""ConvTransformer (Liu et al. 2020, "ConvTransformer: A Convolutional Transformer Network for Video Frame
Synthesis"): frames that come next, or between.

Frames are maps throughout. What is a vector per token in a Transformer is a map per frame, linear functions
are convolutions, and how much frame j counts for frame i is a map too: a number per pixel.

    frames -> 4 convolutions, + time -> encoder ------.
    the last frame, or the mean of two, + its time -> decoder -> U-Net -> frames

The weights are a softmax of a^T LeakyReLU(conv [q_i; k_j]); the convolution of both maps side by side is the
sum of a convolution of q_i and one of k_j. Sizes and layers that the paper's summaries leave open are ours.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from keras import ops

from keras_tfm.configs import Between, Config, Depth, Heads, Rate, Refusal, Size
from keras_tfm.layers.attention.tap import is_recorded, tap
from keras_tfm.layers.base import SameShape, require_sizes
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.masks import masked_softmax
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.positions import sines
from keras_tfm.layers.resizing import resize_bilinear
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side, video_input

SLOPE = "leaky_relu"
KERNEL = (1, 3, 3)  # frame by frame


@dataclasses.dataclass(frozen=True)
class ConvTransformerConfig(Config):
    """The sizes of a `ConvTransformer`.

    Args:
        num_frames: how many frames are given.
        target: "next" for the frames after those, "between" for the one in their middle.
        num_targets: how many frames come next; one is between.
        image_size: the side of the frames or their (height, width), multiples of 4.
    """

    num_frames: Annotated[int, Between(1, 2**14)] = 4
    target: Literal["next", "between"] = "next"
    num_targets: Size = 1
    image_size: Side | tuple[Side, Side] = 256
    num_channels: Size = 3
    num_layers: Depth = 7
    num_decoder_layers: Depth = 1
    dim: Size = 128
    num_heads: Heads = 4
    dropout: Rate = 0.0

    def __post_init__(self):
        super().__post_init__()
        sides = height_and_width(self.image_size, "image_size")
        if any(side % 4 for side in sides):
            raise Refusal("image_size", "multiples of 4", " x ".join(map(str, sides)))
        if self.dim % 2:
            raise Refusal("dim", "even, for a sine and a cosine per frequency", self.dim)
        if self.target == "between" and (self.num_frames % 2 or self.num_targets > 1):
            frames = f"{self.num_targets} amid {self.num_frames}"
            raise Refusal("target", "'next' but for one frame amid an even number", f"'between', {frames}")


class ConvTransformer(ConfiguredModel):
    """ConvTransformer: frames in, the next ones or the one between out.

    Input: `videos` (B, F, H, W, C), floating-point. Output: `videos` (B, targets, H, W, C), to be compared
    with the true frames by the mean absolute error.

    >>> sizes = dict(num_frames=3, image_size=8, num_layers=1, dim=8, num_heads=2)
    >>> model = keras_tfm.models.ConvTransformer.from_size("base", num_targets=2, **sizes)
    >>> model({"videos": np.zeros((1, 3, 8, 8, 3))})["videos"].shape
    TensorShape([1, 2, 8, 8, 3])
    """

    config_class = ConvTransformerConfig

    def __init__(self, config: ConvTransformerConfig, name: str = "conv_transformer", **kwargs: Any) -> None:
        x = videos = video_input(config)
        _, frames, *size, _ = videos.shape
        for i in range(4):
            x = Convolution(config.dim, KERNEL, activation=SLOPE, name=f"embedding_{i}")(x)
        if config.target == "next":
            places: list[float] = [frames + i for i in range(config.num_targets)]
            y = ops.repeat(x[:, -1:], config.num_targets, axis=1)
        else:
            places = [(frames - 1) / 2]
            y = ops.mean(x[:, frames // 2 - 1 : frames // 2 + 1], axis=1, keepdims=True)
        x = TimeEncoding(list(range(frames)), name="times")(x)
        y = TimeEncoding(places, name="target_times")(y)
        trace = Trace()
        blocks = [conv_block(config, f"encoder_block_{i}") for i in range(config.num_layers)]
        x = trace.run("encoder", blocks, x)
        blocks = [conv_block(config, f"decoder_block_{i}", True) for i in range(config.num_decoder_layers)]
        y = trace.run("decoder", blocks, y, context_attention={"context": x})
        y = ops.reshape(y, (-1, *size, config.dim))  # (B targets, H, W, D)
        y = synthesized(config, y)
        outputs = {"videos": ops.reshape(y, (-1, len(places), *size, config.num_channels))}
        super().__init__(config, {"videos": videos}, outputs, trace, name=name, **kwargs)


class TimeEncoding(SameShape):
    """Adds to each frame (B, T, H, W, D) the sines and cosines of its time, one of the T `places`, at all
    pixels (Vaswani et al. 2017, section 3.5).
    """

    def __init__(self, places: Sequence[float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.places = places

    def call(self, x):
        """(B, T, H, W, D) in and out."""
        waves = sines(ops.convert_to_tensor(self.places, "float32"), x.shape[-1])  # (T, D)
        return x + ops.cast(waves, x.dtype)[:, None, None]


class ConvolutionalAttention(SameShape):
    """Attention of frames (B, T, H, W, D) to frames (B, S, H, W, D), pixel by pixel: (B, T, H, W, D).

    Queries, keys and values are 3 x 3 convolutions. The softmax is over the S frames, for each pixel and
    each of `num_heads` heads. What is recorded is the mean of the pixels' weights.
    """

    def __init__(self, num_heads: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(num_heads=num_heads)
        self.num_heads = num_heads

    def build(self, x_shape, context_shape=None):
        dim = x_shape[-1]
        if dim % self.num_heads:
            raise ValueError(f"`num_heads` must divide the width {dim}; it is {self.num_heads}.")
        parts = {"query": x_shape, "key": context_shape or x_shape, "value": context_shape or x_shape}
        for name, shape in parts.items():
            setattr(self, name, Convolution(dim, KERNEL, name=name))
            getattr(self, name).build(shape)
        self.comparison = self.add_weight((self.num_heads, dim // self.num_heads), name="comparison")
        self.output_layer = Convolution(dim, KERNEL, name="output")
        self.output_layer.build(x_shape)

    def call(self, x, context=None):
        """Attend from `x` to `context`, by default to `x` itself."""
        context = x if context is None else context
        query, key, value = (
            self._heads(part) for part in (self.query(x), self.key(context), self.value(context))
        )
        pairs = ops.leaky_relu(query[:, :, None] + key[:, None], 0.2)  # (B, T, S, H, W, heads, K)
        scores = ops.einsum("btsyxhk,hk->btyxhs", pairs, ops.cast(self.comparison, pairs.dtype))
        weights = masked_softmax(scores, None)
        if is_recorded():
            tap(self, ops.transpose(ops.mean(weights, axis=(2, 3)), (0, 2, 1, 3)))  # (B, heads, T, S)
        weights = ops.cast(weights, value.dtype)
        y = ops.einsum("btyxhs,bsyxhk->btyxhk", weights, value)
        return self.output_layer(ops.reshape(y, (-1, *x.shape[1:])))

    def _heads(self, x):
        *sides, dim = x.shape[1:]
        return ops.reshape(x, (-1, *sides, self.num_heads, dim // self.num_heads))  # (B, T, H, W, heads, K)


def conv_block(config, name, is_decoder=False):
    """Attention among frames, in a decoder also to the encoder's frames, and two convolutions.

    A decoder's one frame does not attend to itself.
    """
    part = residuals(dropout=config.dropout)
    convolutions = [Convolution(config.dim, KERNEL, activation=activation) for activation in (SLOPE, None)]
    is_alone = is_decoder and config.num_targets == 1
    attention = None if is_alone else ConvolutionalAttention(config.num_heads)
    context = ConvolutionalAttention(config.num_heads) if is_decoder else None
    branches = {"attention": attention, "context_attention": context, "feedforward": Chain(convolutions)}
    return block_of(part, name, **branches)


def synthesized(config, x):
    """The colours (B, H, W, C) of maps (B, H, W, D), by a U-Net of two levels."""
    maps = [x]
    for i in (1, 2):
        layer = Convolution(2**i * config.dim, 3, 2, activation=SLOPE, name=f"down_{i}")
        maps.append(layer(maps[-1]))
    y = maps.pop()
    for i in (1, 0):
        before = maps.pop()
        y = ops.concatenate([resize_bilinear(y, before.shape[1:3]), before], axis=-1)
        y = Convolution(2**i * config.dim, 3, activation=SLOPE, name=f"up_{i}")(y)
    return Convolution(config.num_channels, 3, name="colours")(y)


# Seven blocks and one, four heads, width 128: as summaries give them, not looked up in the paper.
ConvTransformer.sizes = {"base": ConvTransformerConfig()}
