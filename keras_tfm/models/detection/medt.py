"""MedT and its gated axial U-Net, for few and small images, without pre-trained weights (Valanarasu et al.
2021, "Medical Transformer: Gated Axial-Attention for Medical Image Segmentation").

A U-Net: stages of blocks that attend along columns and rows, each but the first of half the size, then
convolutions that double the size and add the stage before. MedT joins two: a shallow one of the whole image,
and a deep one, without positions, of each of 4 x 4 pieces. Deviates from the authors' code in that gates
learn from the first step, which there start after ten epochs, and that the pieces of a batch are normalised
together. They have features of pixels for `heads.SemanticSegmenter(model, num_classes, "linear")`.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Depth, FieldError, Refusal, Size
from keras_tfm.layers.attention.axial import AxisAttention, GatedAxialAttention
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.patches import height_and_width
from keras_tfm.layers.resizing import resize_bilinear
from keras_tfm.layers.windows import join_windows, split_windows
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.vision.images import ImageConfig, Side, Stages, image_input

NUM_STAGES = 4
STEM_DIM = 128  # within the stem, whatever `dim`
PIECES = 4  # along each axis, of MedT's images


@dataclasses.dataclass(frozen=True)
class MedTConfig(ImageConfig, Stages):
    """`dim` is the width of the first stage's attention, which doubles with each of the four stages, whose
    numbers of blocks are `depths`.
    """

    image_size: Side | tuple[Side, Side] = 128
    dim: Size = 16
    depths: tuple[Depth, ...] = (1, 2, 4, 1)
    num_heads: Size = 8

    def __post_init__(self):
        super().__post_init__()
        if len(self.depths) != NUM_STAGES:
            raise ValueError(f"`depths` must have {NUM_STAGES} numbers; they are {self.depths}.")
        if self.dim % (2 * self.num_heads):
            raise FieldError(
                "{dim} must be a multiple of twice {num_heads}, {}; it is {}.", 2 * self.num_heads, self.dim
            )
        if any(side % 32 for side in height_and_width(self.image_size)):
            raise Refusal("image_size", "a multiple of 32", self.image_size)


class GatedAxialUNet(ConfiguredModel):
    """Images in, features of their pixels out: a U-Net of gated axial attention.

    Input: `images` (B, H, W, C), floating-point. Output: `mask_features` (B, H, W, `dim`); `maps` is a list
    of it alone. `hidden_states` are maps.

    >>> model = keras_tfm.models.GatedAxialUNet.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["mask_features"].shape
    TensorShape([1, 32, 32, 8])
    """

    config_class = MedTConfig

    def __init__(self, config: MedTConfig, name: str | None = None, **kwargs: Any) -> None:
        images = image_input(config)
        trace = Trace()
        features = self.features(config, trace, images)
        name, outputs = name or type(self).__name__.lower(), {"mask_features": features}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)
        self.maps = [features]

    @classmethod
    def features(cls, config, trace, images):
        """The features of the pixels."""
        return u_net(config, trace, images, config.dim // 2, NUM_STAGES, "gated")


class MedT(GatedAxialUNet):
    """`GatedAxialUNet` of two stages, and another of four, without positions, of each of 4 x 4 pieces of the
    image, whose features are added; a convolution joins them.

    >>> model = keras_tfm.models.MedT.from_size("tiny")
    >>> model.output["mask_features"].shape
    (None, 128, 128, 8)
    """

    @classmethod
    def features(cls, config, trace, images):
        x = u_net(config, trace, images, config.dim // 2, 2, "gated")
        height, width, channels = images.shape[1:]
        if (height // PIECES) % 32 or (width // PIECES) % 32:
            raise Refusal("image_size", f"a multiple of {32 * PIECES}", config.image_size)
        size = height // PIECES, width // PIECES
        pieces = ops.reshape(split_windows(images, size), (-1, *size, channels))  # (16 B, H / 4, W / 4, C)
        y = u_net(config, trace, pieces, 4 * config.dim, NUM_STAGES, "none", "local_")
        y = join_windows(ops.reshape(y, (-1, size[0] * size[1], config.dim)), size, (height, width))
        return Convolution(config.dim, 3, activation="relu", name="joining")(x + y)


def u_net(config, trace, x, stem_dim, num_stages, position, prefix=""):
    """The features of the pixels of `x`, by a U-Net of the first `num_stages`."""
    for i, (width, size, stride) in enumerate(((stem_dim, 7, 2), (STEM_DIM, 3, 1), (stem_dim, 3, 1))):
        norm = BatchNormalization()
        x = Convolution(width, size, stride, norm=norm, activation="relu", name=f"{prefix}stem_{i}")(x)
    maps, width = [], x.shape[-1]
    for stage, depth in enumerate(config.depths[:num_stages]):
        dim = config.dim * 2**stage
        strides = [2 if stage and not i else 1 for i in range(depth)]
        names = [f"{prefix}stage_{stage}_block_{i}" for i in range(depth)]
        blocks = [
            axial_block(dim, config.num_heads, position, width if not i else 2 * dim, stride, name)
            for i, (stride, name) in enumerate(zip(strides, names, strict=True))
        ]
        x, width = trace.run("encoder", blocks, x), 2 * dim
        maps.append(x)
    if num_stages == NUM_STAGES:
        x = _doubled(Convolution(x.shape[-1], 3, 2, name=f"{prefix}decoder_0")(x)) + x
    for stage in reversed(range(num_stages)):
        convolution = Convolution(config.dim * 2**stage, 3, name=f"{prefix}decoder_{NUM_STAGES - stage}")
        x = _doubled(convolution(x))
        x = x + maps[stage - 1] if stage else x
    return x


def _doubled(x):
    """The map in twice its size, and ReLU."""
    return ops.relu(resize_bilinear(x, (2 * x.shape[1], 2 * x.shape[2])))


def axial_block(dim, num_heads, position, width, stride=1, name=None):
    """A residual block for maps of this `width`, whose branch is an `axial_branch`."""
    shortcut = None
    if stride > 1 or width != 2 * dim:
        shortcut = Convolution(2 * dim, 1, stride, norm=BatchNormalization())
    branch = axial_branch(dim, num_heads, position, stride)
    return ShortcutBlock(branch, shortcut, activation="relu", name=name)


def axial_branch(dim, num_heads, position, stride=1):
    """A map projected to `dim`, attended along columns, then rows, and projected to 2 `dim`."""

    def attention(axis):
        return AxisAttention(GatedAxialAttention(dim, num_heads, position), axis)

    pool = [keras.layers.AveragePooling2D(stride, name="pooling")] if stride > 1 else []
    return Chain(
        [
            Convolution(dim, 1, norm=BatchNormalization(), activation="relu"),
            attention("height"),
            attention("width"),
            *pool,
            keras.layers.Activation("relu", name="activation"),
            Convolution(2 * dim, 1, norm=BatchNormalization(), name="output"),
        ]
    )


# tiny is this package's own. The authors' code has dim 16 for images of 128 x 128.
for _model in (GatedAxialUNet, MedT):
    _model.sizes = {
        "base": MedTConfig(),
        "tiny": MedTConfig(dim=8, depths=(1, 1, 1, 1), num_heads=2),
    }
