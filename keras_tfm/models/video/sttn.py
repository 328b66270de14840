"""STTN (Zeng et al. 2020, "Learning Joint Spatial-Temporal Transformations for Video Inpainting").

Frames with holes become maps, whose patches attend to the patches of all frames, in one group of channels for
each size of patches; the maps become frames again. The discriminator judges the result in pieces of time and
space.

    videos -> 4 convolutions, 1/4 -> blocks of attention among patches and convolutions -> 4 convolutions, x 4

The authors compute which patches are holes, and then attend to them all the same; their weights expect that.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Config, Depth, Natural, Refusal, Size
from keras_tfm.layers.attention.functional import attention_weights
from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import Residual, block_of
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.compiler.products import product
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.patches import combine_patches, extract_patches, height_and_width, patch_grid
from keras_tfm.layers.resizing import resize_between_corners
from keras_tfm.layers.signatures import Sides
from keras_tfm.layers.spectral import SpectralConvolution
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import Side, video_input

SLOPE = "leaky_relu"  # Keras's slope, like the authors', is 0.2


@dataclasses.dataclass(frozen=True)
class STTNConfig(Config):
    """The sizes of an `STTN`.

    Args:
        image_size: the side of the frames or their (height, width), multiples of 4.
        encoder_dims: the widths of the four convolutions before the blocks; the last is the blocks'.
        decoder_dims: the widths of the convolutions after the blocks, but for the last, which makes colours.
        patch_sizes: the (height, width) of patches, in cells of 4 x 4 pixels: one for each group of channels.
        masks_holes: whether patches that are holes for more than half are left out of what is attended to,
            unless all are.
        num_hints: the channels of what else is known of each pixel, in the paper none. The network cannot
            distinguish its frames by their place in the video: that a hole is soon to close, for example, is
            a hint.
    """

    num_frames: Annotated[int, Between(1, 2**14)] = 5
    image_size: Side | tuple[Side, Side] = (240, 432)
    num_channels: Size = 3
    num_layers: Depth = 8
    encoder_dims: tuple[Size, Size, Size, Size] = (64, 64, 128, 256)
    decoder_dims: tuple[Size, Size, Size] = (128, 64, 64)
    patch_sizes: tuple[tuple[Side, Side], ...] = ((60, 108), (20, 36), (10, 18), (5, 9))
    masks_holes: bool = False
    num_hints: Natural = 0

    def __post_init__(self):
        super().__post_init__()
        sides = height_and_width(self.image_size, "image_size")
        if any(side % 4 for side in sides):
            raise Refusal("image_size", "multiples of 4", " x ".join(map(str, sides)))
        if not self.patch_sizes or self.encoder_dims[-1] % len(self.patch_sizes):
            raise Refusal(
                "patch_sizes",
                f"as many as divide the last of `encoder_dims`, {self.encoder_dims[-1]}",
                len(self.patch_sizes),
            )
        for size in self.patch_sizes:
            patch_grid([side // 4 for side in sides], size)


class STTN(ConfiguredModel):
    """STTN's generator: videos with holes in, videos out.

    Inputs: `videos` (B, F, H, W, C), floating-point, from -1 to 1, and 0 in the holes; with `masks_holes`
    also `holes` (B, F, H, W), True at the pixels of holes, and with `num_hints` also `hints` (B, F, H, W, N),
    floating-point. Output: `videos` (B, F, H, W, C), from -1 to 1, of
    which a user keeps what lies in the holes. `hidden_states` are maps (B F, rows, columns, D).

    >>> sizes = dict(num_frames=3, image_size=16, encoder_dims=[4, 4, 4, 8], decoder_dims=[4, 4, 4])
    >>> model = keras_tfm.models.STTN.from_size("base", num_layers=1, patch_sizes=[[4, 4], [2, 2]], **sizes)
    >>> model({"videos": np.zeros((1, 3, 16, 16, 3))})["videos"].shape
    TensorShape([1, 3, 16, 16, 3])
    """

    config_class = STTNConfig

    def __init__(self, config: STTNConfig, name: str = "sttn", **kwargs: Any) -> None:
        videos = video_input(config)
        _, frames, height, width, _ = videos.shape
        inputs, seen = {"videos": videos}, None
        if config.masks_holes:
            inputs["holes"] = keras.Input((frames, height, width), dtype="bool", name="holes")
            seen = ops.logical_not(inputs["holes"][:, :, ::4, ::4])  # (B, F, rows, columns)
            seen = ops.reshape(seen, (-1, height // 4, width // 4))  # (B F, rows, columns)
        x = ops.reshape(videos, (-1, height, width, config.num_channels))  # (B F, H, W, C)
        if config.num_hints:
            inputs["hints"] = keras.Input((frames, height, width, config.num_hints), name="hints")
            hints = ops.reshape(inputs["hints"], (-1, height, width, config.num_hints))  # (B F, H, W, N)
            x = ops.concatenate([x, hints], axis=-1)
        for i, dim in enumerate(config.encoder_dims):
            x = Convolution(dim, 3, 1 if i % 2 else 2, activation=SLOPE, name=f"encoder_{i}")(x)
        trace = Trace()
        blocks = [inpainting_block(config, f"block_{i}") for i in range(config.num_layers)]
        x = trace.run("encoder", blocks, x, attention={"mask": seen})
        for i, dim in enumerate((*config.decoder_dims, config.num_channels)):
            if i % 2 == 0:
                x = resize_between_corners(x, (2 * x.shape[1], 2 * x.shape[2]))
            x = Convolution(dim, 3, activation="tanh" if i == 3 else SLOPE, name=f"decoder_{i}")(x)
        outputs = {"videos": ops.reshape(x, (-1, frames, height, width, config.num_channels))}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


class PatchAttention(SameShape):
    """Attention among the patches of all frames: maps (B F, rows, columns, D) of queries, keys and values ->
    a map of that shape. The tokens are the patches, flattened.
    """

    def __init__(self, num_frames: int, patch_size: Sides, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_frames = num_frames
        self.patch_size = patch_size

    def call(self, query, key, value, mask=None):
        """`mask` (B F, rows, columns) is True at cells that may be attended to; half of a patch suffices, and
        where no patch has that, all are attended to.
        """
        queries, keys, values = (self._tokens(x) for x in (query, key, value))  # (B, N, K)
        if mask is not None:
            share = ops.mean(self._tokens(ops.cast(mask, "float32")[..., None]), axis=-1)  # (B, N)
            mask = ops.logical_or(share >= 0.5, ops.all(share < 0.5, axis=-1, keepdims=True))
        weights = attention_weights(queries, keys, mask)  # (B, N, N)
        tap(self, weights[:, None])
        y = product(ops.cast(weights, values.dtype), values)  # (B, N, K)
        y = ops.reshape(y, (-1, y.shape[1] // self.num_frames, y.shape[2]))  # (B F, patches, K)
        return combine_patches(y, self.patch_size, tuple(query.shape[1:3]))

    def _tokens(self, x):
        patches = extract_patches(x, self.patch_size)  # (B F, patches, K)
        _, count, width = patches.shape
        return ops.reshape(patches, (-1, self.num_frames * count, width))  # (B, N, K)


class MultiScaleAttention(SameShape):
    """`PatchAttention` of as many groups of channels as there are `patch_sizes`, then a convolution: maps
    (B F, rows, columns, D) in and out (section 3.2 of Zeng et al. 2020).
    """

    def __init__(self, num_frames: int, patch_sizes: Sequence[Sides], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_frames = num_frames
        self.patch_sizes = patch_sizes

    def build(self, x_shape):
        dim = x_shape[-1]
        self.query, self.key, self.value = (Dense(dim, name=name) for name in ("query", "key", "value"))
        for projection in (self.query, self.key, self.value):
            projection.build(x_shape)
        sizes = enumerate(self.patch_sizes)
        self.scales = [PatchAttention(self.num_frames, size, name=f"scale_{i}") for i, size in sizes]
        self.output_layer = Convolution(dim, 3, activation=SLOPE, name="output")
        for layer in (*self.scales, self.output_layer):
            layer.build(x_shape)

    def call(self, x, mask=None):
        """`mask` is as in `PatchAttention`."""
        count = len(self.scales)
        groups = (ops.split(layer(x), count, axis=-1) for layer in (self.query, self.key, self.value))
        triples = zip(self.scales, *groups, strict=True)
        y = [scale(query, key, value, mask=mask) for scale, query, key, value in triples]
        return self.output_layer(ops.concatenate(y, axis=-1))


def inpainting_block(config, name):
    """Attention among patches and two convolutions, the first of them dilated, each in a residual."""
    dim = config.encoder_dims[-1]
    convolutions = [Convolution(dim, 3, dilation=dilation, activation=SLOPE) for dilation in (2, 1)]
    attention = MultiScaleAttention(config.num_frames, config.patch_sizes)
    return block_of(Residual, name, attention=attention, feedforward=Chain(convolutions))


@dataclasses.dataclass(frozen=True)
class STTNDiscriminatorConfig(Config):
    """The sizes of an `STTNDiscriminator`; `dims` are the widths of its convolutions."""

    num_frames: Annotated[int, Between(1, 2**14)] = 5
    image_size: Side | tuple[Side, Side] = (240, 432)
    num_channels: Size = 3
    dims: tuple[Size, ...] = (64, 128, 256, 256, 256, 256)

    def __post_init__(self):
        super().__post_init__()
        if not self.dims:
            raise Refusal("dims", "at least one width", self.dims)


class STTNDiscriminator(ConfiguredModel):
    """STTN's discriminator: videos in, scores of their pieces out, high for real ones.

    Input: `videos` (B, F, H, W, C), floating-point, from -1 to 1. Output: `scores` (B, F, rows, columns, D),
    each of which sees a piece of the video ("T-PatchGAN", Chang et al. 2019). All convolutions but the last
    are spectrally normalised, and have no bias.

    >>> sizes = dict(num_frames=3, image_size=16, dims=[4, 4, 8])
    >>> model = keras_tfm.models.STTNDiscriminator.from_size("base", **sizes)
    >>> model({"videos": np.zeros((1, 3, 16, 16, 3))})["scores"].shape
    TensorShape([1, 3, 2, 2, 8])
    """

    config_class = STTNDiscriminatorConfig

    def __init__(
        self, config: STTNDiscriminatorConfig, name: str = "sttn_discriminator", **kwargs: Any
    ) -> None:
        x = videos = video_input(config)
        last = len(config.dims) - 1
        for i, dim in enumerate(config.dims):
            kind, activation = (Convolution, None) if i == last else (SpectralConvolution, SLOPE)
            options: dict[str, Any] = {"use_bias": i == last, "activation": activation}
            padding = (1, 2, 2) if i else 1
            x = kind(dim, (3, 5, 5), (1, 2, 2), padding, name=f"convolution_{i}", **options)(x)
        super().__init__(config, {"videos": videos}, {"scores": x}, Trace(), name=name, **kwargs)


# Zeng et al. 2020, section 4: five frames of 432 x 240.
STTN.sizes = {"base": STTNConfig()}
STTNDiscriminator.sizes = {"base": STTNDiscriminatorConfig()}
