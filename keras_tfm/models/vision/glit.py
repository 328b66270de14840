"""GLiT (Chen et al. 2021, "GLiT: Neural Architecture Search for Global and Local Image Transformer").

A ViT in which a search replaced some or all heads of a layer by a gated convolution along the sequence. The
first features pass through attention, the others through the convolution, in parallel. As in the authors'
code the convolution runs over the class token too.
"""

import dataclasses
from typing import Annotated, Any

from keras import ops

from keras_tfm.configs import Between, Rate, Size, Whole
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages, growing_rates
from keras_tfm.models.vision.autoformer import Ratio, embedded
from keras_tfm.models.vision.images import PatchedImageConfig, image_input

Kernel = Annotated[int, Between(1, 1023)]


@dataclasses.dataclass(frozen=True)
class GLiTConfig(PatchedImageConfig):
    """The sizes of a `GLiT`; tuples have one entry per layer.

    Args:
        num_heads: into how many heads `dim` is divided.
        num_attention_heads: how many heads of each layer attend, from 0 to `num_heads`.
        expansions: in layers where all heads attend, a head's width as a multiple of `dim` / `num_heads`; in
            others the convolution's width as a multiple of its input's.
        kernel_sizes: the width of the convolutions, odd.
        mlp_ratios: the feed-forward width as a multiple of `dim`.
    """

    dim: Size = 192
    num_heads: Size = 3
    num_attention_heads: tuple[Whole, ...] = (3,) * 12
    expansions: tuple[Ratio, ...] = (1.0,) * 12
    kernel_sizes: tuple[Kernel, ...] = (31,) * 12
    mlp_ratios: tuple[Ratio, ...] = (4.0,) * 12
    epsilon: Rate = 1e-6

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "num_attention_heads", "expansions", "kernel_sizes", "mlp_ratios")
        if self.dim % self.num_heads:
            raise ValueError(f"`num_heads` must divide `dim`, {self.dim}; it is {self.num_heads}.")
        if max(self.num_attention_heads) > self.num_heads:
            raise ValueError(
                f"`num_attention_heads` must be at most `num_heads`, {self.num_heads}; "
                f"they are {self.num_attention_heads}."
            )
        if not all(size % 2 for size in self.kernel_sizes):
            raise ValueError(f"`kernel_sizes` must be odd; they are {self.kernel_sizes}.")


class GLiT(ConfiguredModel):
    """GLiT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the class token's final state.

    >>> sizes = dict(image_size=32, dim=16, num_heads=2, num_attention_heads=(1,),
    ...              expansions=(1.0,), kernel_sizes=(3,), mlp_ratios=(2.0,))
    >>> model = keras_tfm.models.GLiT.from_size("T", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = GLiTConfig

    def __init__(self, config: GLiTConfig, name: str = "glit", **kwargs: Any) -> None:
        images = image_input(config)
        blocks = [_block(config, i) for i in range(len(config.mlp_ratios))]
        trace = Trace()
        x = trace.run("encoder", blocks, embedded(config, images))
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


class GatedConvolution(SameShape):
    """A gated linear layer, a depthwise convolution along the sequence, and a linear layer: (B, T, D) in and
    out.

    The first layer gives `hidden_dim` values times the sigmoid of as many gates (Dauphin et al. 2017). The
    convolution is `kernel_size` tokens wide, with zeros at both ends; batch normalisation and swish follow
    it.
    """

    def __init__(self, hidden_dim, kernel_size=31, **kwargs):
        super().__init__(**kwargs)
        if hidden_dim < 1 or kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(
                "`hidden_dim` must be at least 1, and `kernel_size` odd; "
                f"they are {hidden_dim} and {kernel_size}."
            )
        self.hidden_dim = hidden_dim
        self.kernel_size = kernel_size

    def build(self, x_shape):
        batch_size, length, dim = x_shape
        self.gated = Dense(2 * self.hidden_dim, name="gated")
        self.convolution = Convolution(
            self.hidden_dim,
            (self.kernel_size, 1),
            groups=self.hidden_dim,
            norm=BatchNormalization(),
            activation="silu",
            use_bias=True,
            name="depthwise",
        )
        self.output_projection = Dense(dim, name="output")
        self.gated.build(x_shape)
        self.convolution.build((batch_size, length, 1, self.hidden_dim))
        self.output_projection.build((batch_size, length, self.hidden_dim))

    def call(self, x, training=None):
        """(B, T, D) -> (B, T, D)."""
        values, gates = ops.split(self.gated(x), 2, axis=-1)
        hidden = (values * ops.sigmoid(gates))[:, :, None]  # a map of one column: (B, T, 1, E)
        return self.output_projection(self.convolution(hidden, training=training)[:, :, 0])


class SideBySide(SameShape):
    """Applies `first` to the first `width` features and `second` to the others: (B, T, D) in and out."""

    def __init__(self, first, second, width, **kwargs):
        super().__init__(**kwargs)
        self.first = first
        self.second = second
        self.width = width

    def build(self, x_shape):
        *sizes, dim = x_shape
        if not 0 < self.width < dim:
            raise ValueError(f"`width` must lie between 0 and the width {dim}; it is {self.width}.")
        self.first.build((*sizes, self.width))
        self.second.build((*sizes, dim - self.width))

    def call(self, x, training=None):
        """(B, T, D) -> (B, T, D)."""
        first = self.first(x[..., : self.width], training=training)
        return ops.concatenate([first, self.second(x[..., self.width :], training=training)], axis=-1)


def _block(config, i):
    rate = growing_rates(config.stochastic_depth, len(config.mlp_ratios))[i]
    hidden_dim = max(int(config.dim * config.mlp_ratios[i]), 1)
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    feedforward = FeedForward(hidden_dim, "gelu", kernel_initializer=TRUNCATED)
    return block_of(part, f"block_{i}", attention=_mixing(config, i), feedforward=feedforward)


def _mixing(config, i):
    """The attention, the convolution, or both, of layer `i`."""
    num_heads, expansion = config.num_attention_heads[i], config.expansions[i]
    head, is_attention = config.dim // config.num_heads, num_heads == config.num_heads
    if num_heads:
        key_dim = max(int(head * expansion), 1) if is_attention else head
        options = {"dropout": config.dropout, "kernel_initializer": TRUNCATED}
        attention = MultiHeadAttention(num_heads, key_dim, **options)
        if is_attention:
            return attention
    width = head * (config.num_heads - num_heads)
    convolution = GatedConvolution(max(int(width * expansion), 1), config.kernel_sizes[i])
    return SideBySide(attention, convolution, config.dim - width) if num_heads else convolution


# Tiny: the network in the authors' code, with their stochastic depth.
GLiT.sizes = {
    "T": GLiTConfig(
        num_attention_heads=(3, 0, 1, 3, 0, 1, 3, 1, 0, 3, 0, 3),
        expansions=(0.5, 2, 4, 1, 4, 4, 1, 4, 4, 1, 4, 2),
        kernel_sizes=(31, 31, 31, 31, 45, 31, 31, 31, 45, 31, 31, 31),
        mlp_ratios=(4, 4, 6, 4, 4, 6, 2, 2, 4, 4, 4, 6),
        stochastic_depth=0.1,
    ),
}
