"""CAT (Lin et al. 2021, "CAT: Cross Attention in Vision Transformer").

A pyramid whose blocks come in threes: attention between the cells of each window, attention between the
windows for each channel separately, and attention between cells again. The input of each part is normalised.
Before each stage except the first, 2 x 2 cells are merged into one of twice the width.
"""

import dataclasses

from keras import ops

from keras_tfm.configs import Depth, Size
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.blocks import block_of, residuals
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import PatchEmbedding, PatchMerging, height_and_width, patch_grid
from keras_tfm.layers.windows import WindowAttention, join_windows, split_windows
from keras_tfm.models.base import check_stages, growing_rates
from keras_tfm.models.vision.images import PatchedImageConfig, Rates, Ratio, Side
from keras_tfm.models.vision.pyramid import Pyramid

EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class CATConfig(Rates, PatchedImageConfig):
    """The sizes of a `CAT`.

    Args:
        depths: the number of threes of blocks in each stage.
        dim: the width of the first stage; it doubles with each stage.
        num_heads: the number of heads in each stage.
        window: the side of a window, in patches. It must divide the maps that are larger than it.
        mlp_ratio: the feed-forward width as a multiple of a stage's width.
    """

    patch_size: Side = 4
    depths: tuple[Depth, ...] = (1, 1, 3, 1)
    dim: Size = 64
    num_heads: tuple[Size, ...] = (2, 4, 8, 16)
    window: Side = 7
    mlp_ratio: Ratio = 4.0

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "depths", "num_heads")

    @property
    def widths(self):
        """The width of each stage."""
        return tuple(self.dim * 2**stage for stage in range(len(self.depths)))


class CAT(Pyramid):
    """A `Pyramid` of blocks with attention within windows, and between windows.

    >>> sizes = dict(image_size=32, depths=(1,), dim=16, num_heads=(2,), window=4)
    >>> model = keras_tfm.models.CAT.from_size("T", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 64, 16])
    """

    config_class = CATConfig

    @classmethod
    def stem(cls, config, images):
        x = PatchEmbedding(config.dim, config.patch_size, name="patch_embedding")(images)
        return LayerNormalization(EPSILON, name="embedding_norm")(x)

    @classmethod
    def stage(cls, config, stage):
        width, grid = config.widths[stage], patch_grid(height_and_width(config.image_size), config.patch_size)
        window = min(config.window, *(-(-side // 2**stage) for side in grid))
        blocks = [_block(config, stage, i, window) for i in range(3 * config.depths[stage])]
        if stage == 0:
            return blocks
        options = {"kernel_initializer": TRUNCATED, "name": f"stage_{stage}_merging"}
        return [PatchMerging(width, LayerNormalization(EPSILON), **options), *blocks]

    @classmethod
    def last(cls, config, x):
        return LayerNormalization(EPSILON, name="norm")(x)


class AttentionAmongWindows(SameShape):
    """Attention between the windows of a map, for each channel separately: (B, height, width, D) in and out.

    The tokens of `attention` are a channel's `window` x `window` cells of each window. The window must
    divide the map.
    """

    def __init__(self, attention, window, **kwargs):
        super().__init__(**kwargs)
        height_and_width(window, "window")
        self.attention = attention
        self.window = window

    def build(self, x_shape):
        rows, columns = patch_grid(x_shape[1:3], self.window)
        height, width = height_and_width(self.window)
        self.attention.build((None, rows * columns, height * width))

    def call(self, x, training=None):
        """(B, height, width, D) -> (B, height, width, D)."""
        _, height, width, dim = x.shape
        windows = split_windows(x, self.window)  # (B N, T, D)
        length = windows.shape[1]
        num_windows = height * width // length
        tokens = ops.transpose(ops.reshape(windows, (-1, num_windows, length, dim)), (0, 3, 1, 2))
        tokens = ops.reshape(tokens, (-1, num_windows, length))  # (B D, N, T)
        y = ops.reshape(self.attention(tokens, training=training), (-1, dim, num_windows, length))
        y = ops.reshape(ops.transpose(y, (0, 2, 3, 1)), (-1, length, dim))  # (B N, T, D)
        return join_windows(y, self.window, (height, width))


def _block(config, stage, index, window):
    """Block number `index` of a stage; the second of each three is between windows."""
    number = 3 * sum(config.depths[:stage]) + index
    rate = growing_rates(config.stochastic_depth, 3 * sum(config.depths))[number]
    part = residuals(config.dropout, EPSILON, normalize_first=True, stochastic_depth=rate)
    options = {"dropout": config.attention_dropout, "kernel_initializer": TRUNCATED}
    if index % 3 == 1:
        attention = AttentionAmongWindows(MultiHeadAttention(1, **options), window)
    else:
        position = GridPositionBias(window, initializer=TRUNCATED)
        inner = MultiHeadAttention(config.num_heads[stage], position=position, **options)
        attention = WindowAttention(inner, window)
    hidden = int(config.mlp_ratio * config.widths[stage])
    feedforward = FeedForward(hidden, "gelu", kernel_initializer=TRUNCATED)
    name = f"stage_{stage}_block_{index}"
    return block_of(part, name, attention=attention, feedforward=feedforward)


# The configurations of Lin et al. 2021.
_T = CATConfig()
_S = dataclasses.replace(_T, dim=96, num_heads=(3, 6, 12, 24))
CAT.sizes = {"T": _T, "S": _S, "B": dataclasses.replace(_S, depths=(1, 1, 6, 1))}
