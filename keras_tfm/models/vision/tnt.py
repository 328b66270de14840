"""TNT (Han et al. 2021, "Transformer in Transformer").

Each patch is itself a sequence, of smaller patches called pixels. An inner Transformer processes the pixels
of each patch; its output, projected, is added to the patch's vector in an outer Transformer. The stem is a 7
x 7 convolution with a stride of `pixel_size`, applied to each patch separately. In the authors' first
version, whose published weights are older (`legacy`), it is applied to the whole image.
"""

import dataclasses
import math
from typing import Annotated, Any

from keras import ops

from keras_tfm.configs import Between, Depth, Heads, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patch_encoder import PrependedTokens
from keras_tfm.layers.patches import flatten_map, patch_grid
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.windows import split_windows
from keras_tfm.models.base import ConfiguredModel, Trace, growing_rates
from keras_tfm.models.vision.images import PatchedImageConfig, Side, image_input


@dataclasses.dataclass(frozen=True)
class TNTConfig(PatchedImageConfig):
    """The sizes of a `TNT`.

    Args:
        pixel_size: the distance between neighbouring pixels (small patches).
        inner_dim: the width of the pixels.
        inner_heads: the number of heads for the pixels.
        mlp_ratio: the feed-forward width of the patches as a multiple of `dim`; the pixels' is four times
            their width.
        legacy: whether it is the authors' first version.
    """

    patch_size: Side = 16
    pixel_size: Side = 4
    num_layers: Depth = 12
    dim: Size = 384
    num_heads: Heads = 6
    inner_dim: Size = 24
    inner_heads: Size = 4
    mlp_ratio: Annotated[float, Between(0.01, 64)] = 4.0
    legacy: bool = False
    epsilon: Rate = 1e-5

    def __post_init__(self):
        super().__post_init__()
        if self.patch_size % self.pixel_size:
            raise ValueError(
                f"`pixel_size` must divide `patch_size`, {self.patch_size}; it is {self.pixel_size}."
            )
        if self.inner_dim % self.inner_heads:
            raise ValueError(
                f"`inner_heads` must divide `inner_dim`, {self.inner_dim}; it is {self.inner_heads}."
            )


class TNT(ConfiguredModel):
    """TNT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `sequence_output` (B, N + 1, D), the class token
    first, and `pooled_output` (B, D), the class token's final state. There are two stacks: the blocks of the
    "pixels", whose states are (B N, P, d) for P pixels per patch, and the blocks of the patches, "encoder".

    >>> sizes = dict(image_size=32, num_layers=1, dim=16, num_heads=2, inner_dim=8, inner_heads=2)
    >>> model = keras_tfm.models.TNT.from_size("S", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 5, 16])
    """

    config_class = TNTConfig

    def __init__(self, config: TNTConfig, name: str = "tnt", **kwargs: Any) -> None:
        images = image_input(config)
        image_size = tuple(images.shape[1:3])
        num_patches = math.prod(patch_grid(image_size, config.patch_size))
        pixels = _pixels(config, images)
        pixels = PositionEmbedding(pixels.shape[1], TRUNCATED, name="pixel_position")(pixels)
        x = _summary(config, num_patches, name="summary", bias=True)(pixels)
        x = PrependedTokens(1, TRUNCATED, name="class_token")(x)
        x = PositionEmbedding(num_patches + 1, TRUNCATED, name="position")(x)
        x = Dropout(config.dropout, name="embedding_dropout")(x)
        trace = Trace()
        for i, rate in enumerate(growing_rates(config.stochastic_depth, config.num_layers)):
            part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
            pixels = trace.run("pixels", [_pixel_block(config, part, i)], pixels)
            x = trace.run("encoder", [_patch_block(config, part, num_patches, i)], x, pixels=pixels)
        x = LayerNormalization(config.epsilon, name="norm")(x)
        outputs = {"sequence_output": x, "pooled_output": ops.take(x, 0, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)


class SplitMap(Layer):
    """Cuts maps into squares of `size` x `size` cells, each an example: (B, H, W, C) -> (B N, size, size,
    C).
    """

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = size

    def call(self, x):
        """(B, H, W, C) -> (B N, size, size, C)."""
        return ops.reshape(split_windows(x, self.size), (-1, self.size, self.size, x.shape[-1]))

    def compute_output_shape(self, x_shape):
        batch_size, height, width, channels = x_shape
        count = None if batch_size is None else batch_size * height * width // self.size**2
        return (count, self.size, self.size, channels)


class PixelSummary(Layer):
    """Applies `layer` to all pixels of a patch, concatenated: (B N, P, d) -> (B, N, P d) -> (B, N, D).

    `norm`, if given, is applied to each pixel before.
    """

    def __init__(self, layer, num_patches, norm=None, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer
        self.num_patches = num_patches
        self.norm = norm

    def build(self, pixels_shape):
        if self.norm is not None:
            self.norm.build(pixels_shape)
        self.layer.build((None, self.num_patches, math.prod(pixels_shape[1:])))

    def call(self, pixels):
        """(B N, P, d) -> (B, N, D)."""
        _, count, dim = pixels.shape
        pixels = pixels if self.norm is None else self.norm(pixels)
        return self.layer(ops.reshape(pixels, (-1, self.num_patches, count * dim)))

    def compute_output_shape(self, pixels_shape):
        count, *rest = pixels_shape
        batch_size = None if count is None else count // self.num_patches
        return self.layer.compute_output_shape((batch_size, self.num_patches, math.prod(rest)))


class PatchBlock(SameShape):
    """The outer block: it adds the `summary` of their pixels to the patches, but not to the class token.

    Then come the residuals `attention` and `feedforward`. It is no `Block`, since it has two streams.
    """

    is_block = True

    def __init__(self, summary, attention, feedforward, **kwargs):
        super().__init__(**kwargs)
        self.summary = summary
        self.attention = attention
        self.feedforward = feedforward

    def build(self, x_shape, pixels_shape):
        self.summary.build(pixels_shape)
        self.attention.build(x_shape)
        self.feedforward.build(x_shape)

    def call(self, x, pixels, training=None):
        """(B, N + 1, D) and (B N, P, d) -> (B, N + 1, D)."""
        x = ops.concatenate([x[:, :1], x[:, 1:] + self.summary(pixels)], axis=1)
        return self.feedforward(self.attention(x, training=training), training=training)


def _pixels(config, images):
    """The pixels (B N, P, d) of the patches."""
    stem = Convolution(config.inner_dim, 7, config.pixel_size, name="stem")
    if config.legacy:
        return flatten_map(SplitMap(config.patch_size // config.pixel_size, name="patches")(stem(images)))
    return flatten_map(stem(SplitMap(config.patch_size, name="patches")(images)))


def _summary(config, num_patches, name=None, bias=False, legacy=False):
    """A dense layer with a norm before and after it; in blocks of the first version a norm of each pixel
    before it.
    """
    dense = Dense(config.dim, use_bias=bias or legacy, kernel_initializer=TRUNCATED.clone())
    norms = [LayerNormalization(config.epsilon) for _ in range(2)]
    if legacy:
        return PixelSummary(dense, num_patches, norms[0])
    options = {} if name is None else {"name": name}
    return PixelSummary(Chain([norms[0], dense, norms[1]]), num_patches, **options)


def _pixel_block(config, part, index):
    feedforward = FeedForward(4 * config.inner_dim, "gelu", kernel_initializer=TRUNCATED)
    attention = _attention(config.inner_heads)
    return block_of(part, f"pixel_block_{index}", attention=attention, feedforward=feedforward)


def _patch_block(config, part, num_patches, index):
    feedforward = FeedForward(int(config.mlp_ratio * config.dim), "gelu", kernel_initializer=TRUNCATED)
    attention = _attention(config.num_heads)
    summary = _summary(config, num_patches, legacy=config.legacy)
    return PatchBlock(summary, part(attention), part(feedforward), name=f"block_{index}")


def _attention(num_heads):
    """Attention in which only the output layer has a bias."""
    return MultiHeadAttention(num_heads, use_bias=(), kernel_initializer=TRUNCATED)


# The variants of Han et al. 2021, with their stochastic depth.
_S = TNTConfig(stochastic_depth=0.1)
TNT.sizes = {
    "S": _S,
    "S-legacy": dataclasses.replace(_S, legacy=True),
    "B": dataclasses.replace(_S, dim=640, num_heads=10, inner_dim=40),
}
