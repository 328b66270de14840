"""The Swin Transformer (Liu et al. 2021, "Hierarchical Vision Transformer using Shifted Windows").

A pyramid of blocks that attend within windows; in every second block the windows are shifted by half their
side. Before each stage except the first, 2 x 2 cells are merged into one of twice the width. The input of
each part is normalised. As in the authors' code the patch embedding and the merging have norms of their own,
and stochastic depth grows with the depth. Deviates from timm for images that are not square: if one axis of
a map is not longer than the window, neither axis is shifted, as in the authors' code.
"""

import dataclasses
from typing import Literal

from keras_tfm.configs import Config, Depth, Rate, Size
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.blocks import Residual, block_of
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import PatchEmbedding, PatchMerging, height_and_width
from keras_tfm.layers.regularization import Dropout
from keras_tfm.layers.windows import WindowAttention
from keras_tfm.models.base import check_stages, rate_of
from keras_tfm.models.vision.images import PatchedImageConfig, Rates, Ratio, Side, Stages
from keras_tfm.models.vision.pyramid import Pyramid

EPSILON = 1e-5  # of the norms outside the blocks; `epsilon` of the configuration is for the blocks


@dataclasses.dataclass(frozen=True)
class SwinConfig(Rates, PatchedImageConfig, Stages):
    """The sizes of a `Swin`.

    Args:
        depths: the number of blocks in each stage.
        dim: the width of the first stage; it doubles with each stage.
        num_heads: the number of heads in each stage.
        window: the side of a window in cells of the map.
        mlp_ratio: the feed-forward width as a multiple of a stage's width.
        fixed_windows: whether windows keep their size, and every second block its shift, on a map that is no
            larger, as in detectors. Else such a map is one window.
    """

    patch_size: Side = 4
    depths: tuple[Depth, ...] = (2, 2, 6, 2)
    dim: Size = 96
    num_heads: tuple[Size, ...] = (3, 6, 12, 24)
    window: Side = 7
    mlp_ratio: Ratio = 4.0
    activation: str = "gelu"
    epsilon: Rate = 1e-5
    fixed_windows: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "depths", "num_heads")

    @property
    def widths(self):
        """The width of each stage."""
        return tuple(self.dim * 2**stage for stage in range(len(self.depths)))

    @property
    def grids(self):
        """The (rows, columns) of each stage's maps; halves are rounded up."""
        sides = height_and_width(self.image_size)
        patches = [side // self.patch_size for side in sides]
        return tuple(tuple(-(-count // 2**stage) for count in patches) for stage in range(len(self.depths)))

    @property
    def windows(self):
        """The side of the windows of each stage's maps."""
        return tuple(self.window if self.fixed_windows else min(self.window, *grid) for grid in self.grids)


class Swin(Pyramid):
    """A `Pyramid` of blocks that attend within windows. A family that differs overrides `normalize` or
    `attention`.

    >>> model = keras_tfm.models.Swin.from_size("tiny", dim=16, depths=(2,), num_heads=(2,))
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 256, 16])
    """

    config_class: type[Config] = SwinConfig
    normalize: Literal["input", "output"] = "input"  # where the norms of residuals and mergings are

    @classmethod
    def stem(cls, config, images):
        x = PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images)
        x = LayerNormalization(EPSILON, name="embedding_norm")(x)
        return Dropout(config.dropout, name="embedding_dropout")(x)

    @classmethod
    def last(cls, config, x):
        return LayerNormalization(config.epsilon, name="norm")(x)

    @classmethod
    def stage(cls, config, stage):
        """The layers of a stage: a merging, except in the first stage, and blocks."""
        width, blocks = (
            config.widths[stage],
            [cls.block(config, stage, i) for i in range(config.depths[stage])],
        )
        if stage == 0:
            return blocks
        options = {"kernel_initializer": TRUNCATED, "name": f"stage_{stage}_merging"}
        return [PatchMerging(width, LayerNormalization(EPSILON), cls.normalize, **options), *blocks]

    @classmethod
    def block(cls, config, stage, index):
        """Block number `index` of a stage; every second one is shifted, unless its window is the
        whole map.
        """
        window, keeps_size = config.windows[stage], config.fixed_windows
        shift = window // 2 if index % 2 and (keeps_size or window < min(config.grids[stage])) else 0
        rate = rate_of(config, stage, index)

        def part(branch):
            norm = LayerNormalization(config.epsilon)
            return Residual(branch, norm, cls.normalize, config.dropout, stochastic_depth=rate)

        attention = WindowAttention(
            cls.attention(config, stage, window), window, shift, keeps_size=keeps_size
        )
        hidden = int(config.mlp_ratio * config.widths[stage])
        feedforward = FeedForward(hidden, config.activation, kernel_initializer=TRUNCATED)
        name = f"stage_{stage}_block_{index}"
        return block_of(part, name, attention=attention, feedforward=feedforward)

    @classmethod
    def attention(cls, config, stage, window):
        """The attention between the cells of a window with this side."""
        return MultiHeadAttention(
            config.num_heads[stage],
            dropout=config.attention_dropout,
            position=GridPositionBias(window, initializer=TRUNCATED),
            kernel_initializer=TRUNCATED,
        )


# Liu et al. 2021, "Architecture Variants": 29 M, 50 M, 88 M and 197 M parameters with a head of 1000 classes.
# tiny is this package's own, for images of about 32 x 32.
_T = SwinConfig()
_S = dataclasses.replace(_T, depths=(2, 2, 18, 2), stochastic_depth=0.3)
_B = dataclasses.replace(_S, dim=128, num_heads=(4, 8, 16, 32), stochastic_depth=0.5)
Swin.sizes = {
    "T": dataclasses.replace(_T, stochastic_depth=0.2),
    "S": _S,
    "B": _B,
    "L": dataclasses.replace(_B, dim=192, num_heads=(6, 12, 24, 48)),
    "tiny": SwinConfig(image_size=32, patch_size=2, depths=(2, 2, 2), dim=32, num_heads=(1, 2, 4), window=4),
}
