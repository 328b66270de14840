"""MaX-DeepLab of Wang et al. 2021, "MaX-DeepLab: End-to-End Panoptic Segmentation with Mask Transformers".

A network of two paths (section 3.3): pixels, a map that becomes smaller, and a memory of a fixed number of
learnt vectors, of which each ends as one mask and its class. In every block of the last stage, or stages,
both paths read themselves and each other; P is for pixels, M for memory, and "P2M" says that M reads P:

    pixels --+--> along columns, along rows (P2P) --> + --> ReLU --> pixels
             |--> what they read of the memory (M2P) >|
             |--> shortcut -------------------------> |

    memory ---> reads pixels and memory, by one softmax (P2M, M2M) ---> feed-forward ---> memory

The stages before are any backbone's, a ResNet's in the paper. A pyramid merges all maps into features of
pixels, whose products with vectors of the memory are masks: see `heads.MaskClassifier`. There are no
published weights with which this model was compared; its equations are tested by hand. Deviates from the
paper in its head, which is MaskFormer's, with a mask of its own for each vector and MaskFormer's loss, where
the paper has one softmax over all masks, a loss in the style of the panoptic quality, and auxiliary ones; and
in that a feature pyramid decodes the pixels, once.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Depth, FieldError, Rate, Size
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.attention.projections import HeadProjection
from keras_tfm.layers.base import Layer
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.bottleneck import ShortcutBlock
from keras_tfm.layers.cache import Keys
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.patches import flatten_map
from keras_tfm.models.base import ConfiguredModel
from keras_tfm.models.detection.backbones import AroundBackbone
from keras_tfm.models.detection.base import EPSILON
from keras_tfm.models.detection.mask_former import feature_pyramid, normalized_maps
from keras_tfm.models.detection.medt import axial_branch
from keras_tfm.models.vision.images import Side


@dataclasses.dataclass(frozen=True)
class MaxDeepLabConfig(AroundBackbone):
    """`AroundBackbone` has the fields of the backbone. Behind it come stages whose numbers of blocks are
    `depths`; each is twice as wide as the stage before and begins with half its size. Pixels and memory read
    each other in the last `num_two_path_stages`, by default in all; before, pixels read pixels alone. The
    memory has `num_queries` vectors of the width `dim`, with `num_heads` and feed-forward layers of
    `intermediate_dim`; the pixels attend with `num_pixel_heads`. The values that are read between the paths
    have the width `reading_dim`, queries and keys half of it; by default all have the reader's width.
    `pyramid_dim` is the width of the pyramid's maps, `mask_dim` the width of the features of pixels.
    `dropout` acts on what the memory's sub-layers add.
    """

    image_size: Side | tuple[Side, Side] = 512
    depths: tuple[Depth, ...] = (6, 3)
    num_queries: Size = 128
    dim: Size = 256
    num_heads: Size = 8
    num_pixel_heads: Size = 8
    intermediate_dim: Size = 1024
    pyramid_dim: Size = 256
    mask_dim: Size = 128
    dropout: Rate = 0.0
    activation: str = "relu"
    num_two_path_stages: Size | None = None
    reading_dim: Size | None = None

    def __post_init__(self):
        super().__post_init__()
        count, width = self.num_two_path_stages, self.reading_dim
        if count is not None and count > len(self.depths):
            raise ValueError(
                f"`num_two_path_stages` must be at most {len(self.depths)}, as there are `depths`; "
                f"it is {count}."
            )
        if width is not None and width % (2 * self.num_heads):
            raise ValueError(
                f"`reading_dim` must be a multiple of twice `num_heads`, {2 * self.num_heads}; it is {width}."
            )

    @property
    def first_two_path_stage(self):
        """The number of the first stage in which pixels and memory read each other."""
        return len(self.depths) - (self.num_two_path_stages or len(self.depths))


class MaxDeepLab(ConfiguredModel):
    """Images in, features of pixels and one vector for each place of the memory out.

    Input: `images` (B, H, W, C), floating-point. Outputs: `mask_features` (B, rows, columns, E), of the size
    of the backbone's first map, `decoder_sequence_output` (B, Q, D), the memory, and `decoder_outputs` (B, 1,
    Q, D), the same. `maps` are the maps of all stages. The widths of the last stages must be multiples of
    four times `num_pixel_heads`.

    >>> model = keras_tfm.models.MaxDeepLab.from_size("tiny", image_size=32)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["mask_features"].shape, outputs["decoder_sequence_output"].shape
    (TensorShape([1, 8, 8, 64]), TensorShape([1, 16, 64]))
    """

    config_class = MaxDeepLabConfig

    def __init__(self, config: MaxDeepLabConfig, name: str = "max_deeplab", **kwargs: Any) -> None:
        backbone = config.new_backbone()
        maps = normalized_maps(config, backbone)
        x = maps[-1]
        memory = LearnedVectors(config.num_queries, config.dim, name="memory")(flatten_map(x))
        trace = config.trace_of(backbone)
        for stage, depth in enumerate(config.depths):
            rows, columns, width = maps[-1].shape[1:]
            if rows % 2 or columns % 2:
                raise FieldError(
                    "{image_size} must give each stage of two paths a map of even sides; stage {} gets {} x "
                    "{}.",
                    stage,
                    rows,
                    columns,
                )
            width *= 2
            for i in range(depth):
                block, pixels = pixel_block(config, stage, i, width), {"context": flatten_map(x)}
                if stage < config.first_two_path_stage:
                    x = trace.run("pixels", [block], x)
                else:
                    x = trace.run("pixels", [block], x, memory=memory)
                    memory = trace.run("memory", [memory_block(config, stage, i)], memory, attention=pixels)
            maps.append(x)
        features = feature_pyramid(maps, config.pyramid_dim)
        outputs = {
            "mask_features": Convolution(config.mask_dim, 3, name="mask_features")(features),
            "decoder_sequence_output": memory,
            "decoder_outputs": memory[:, None],
        }
        super().__init__(config, backbone.input, outputs, trace, name=name, **kwargs)
        self.maps = maps


class PixelBlock(Layer):
    """ReLU(x + branch(x) + what the cells of x read of a memory), for maps (B, rows, columns, C).

    It is no `Block`: both branches are computed from x and added at once.

    Args:
        branch: a layer that may change the shape of the map.
        reading: attention of sequences (B, N, C) to a memory (B, Q, D).
        shortcut: a layer that gives x the shape of the branch's output; None leaves it as it is.
    """

    is_block = True

    def __init__(self, branch, reading, shortcut=None, **kwargs):
        super().__init__(**kwargs)
        self.branch = branch
        self.reading = reading
        self.shortcut = shortcut
        self.norm = BatchNormalization()

    def build(self, x_shape, memory_shape):
        self.branch.build(x_shape)
        if self.shortcut is not None:
            self.shortcut.build(x_shape)
        batch_size, rows, columns, width = self.branch.compute_output_shape(x_shape)
        self.reading.build((batch_size, rows * columns, width), memory_shape)
        self.norm.build((batch_size, rows, columns, width))

    def call(self, x, memory, training=None):
        """(B, rows, columns, C), and the memory (B, Q, D) -> (B, rows', columns', C')."""
        y = self.branch(x, training=training)
        x = x if self.shortcut is None else self.shortcut(x, training=training)
        read = self.reading(flatten_map(x), memory, training=training)  # (B, N, C')
        read = self.norm(ops.reshape(read, (-1, *x.shape[1:])), training=training)
        return ops.relu(x + y + read)

    def compute_output_shape(self, x_shape, memory_shape=None):
        return self.branch.compute_output_shape(x_shape)


class MemoryAttention(MultiHeadAttention):
    """Attention of a memory (B, Q, D) to pixels (B, N, C) and to itself, by one softmax: (B, Q, D).

    Its weights, which `record_attention` reads, are (B, H, Q, N + Q), the pixels first. Keys and values of
    pixels and of the memory have projections of their own.
    """

    def build(self, memory_shape, pixels_shape):  # type: ignore[override]
        super().build(memory_shape, pixels_shape)
        widths = self.projections.key_width, self.projections.value_width
        self.own_key_value = HeadProjection(self.num_heads, widths, name="own_key_value")
        self.own_key_value.build(memory_shape)

    def call(self, memory, pixels, training=None):  # type: ignore[override]
        """(B, Q, D) and (B, N, C) -> (B, Q, D)."""
        query, *of_pixels = self.projections.project(memory, pixels)
        pairs = zip(of_pixels, self.own_key_value(memory), strict=True)
        keys = Keys(*(ops.concatenate(pair, axis=2) for pair in pairs))  # (B, H, N + Q, K)
        return self.merge(self.attend(query, keys, training=training))


def pixel_block(config, stage, index, width):
    """The block of pixels number `index` of a stage, whose first one halves the map and has another width."""
    stride = 1 if index else 2
    branch = axial_branch(width // 2, config.num_pixel_heads, "relative", stride)
    shortcut = None if index else Convolution(width, 1, stride, norm=BatchNormalization())
    name = f"pixel_stage_{stage}_block_{index}"
    if stage < config.first_two_path_stage:
        return ShortcutBlock(branch, shortcut, activation="relu", name=name)
    return PixelBlock(branch, MultiHeadAttention(*heads(config)), shortcut, name=name)


def memory_block(config, stage, index):
    """The block of the memory beside it."""
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    feedforward = FeedForward(config.intermediate_dim, config.activation)
    parts = {"attention": part(MemoryAttention(*heads(config))), "feedforward": part(feedforward)}
    return Block(parts, name=f"memory_stage_{stage}_block_{index}")


def heads(config):
    """The number of heads that read between the paths, and the widths of a head's keys and values."""
    if config.reading_dim is None:
        return config.num_heads, None, None
    width = config.reading_dim // config.num_heads
    return config.num_heads, width // 2, width


# small has the stages, widths and heads of MaX-DeepLab-S, by its authors' configuration in deeplab2: axial
# attention in the last two stages of a ResNet-50 and two paths in the last one, where the values that are
# read have 256 entries. It has 56.7 M weights with a head, the paper's 61.9 M with its own stem, decoder and
# heads, which differ as said above. tiny is this package's own, for images of some 96 x 96.
MaxDeepLab.sizes = {
    "small": MaxDeepLabConfig(
        backbone_config={"dims": (256, 512), "depths": (3, 4)},
        intermediate_dim=2048,
        num_two_path_stages=1,
        reading_dim=256,
    ),
    "tiny": MaxDeepLabConfig(
        image_size=96,
        backbone_config={"stem_dim": 32, "dims": (32, 64), "depths": (1, 1), "block": "basic"},
        frozen_norms=False,
        depths=(1, 1),
        num_queries=16,
        dim=64,
        num_heads=4,
        num_pixel_heads=4,
        intermediate_dim=128,
        pyramid_dim=64,
        mask_dim=64,
    ),
}
