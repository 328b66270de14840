"""Swin Transformer V2 (Liu et al. 2022, "Swin Transformer V2: Scaling Up Capacity and Resolution").

A `Swin` whose norms follow the branches of residuals and the mergings, whose scores are cosines, and whose
position bias is computed by a small network, so that it fits windows of any size. Deviates from the authors'
code: the scales of the residuals' norms start at 1, theirs at 0.
"""

import dataclasses
import math

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Whole
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import copy_of
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.normalization import unit
from keras_tfm.layers.patches import height_and_width
from keras_tfm.models.base import check_stages
from keras_tfm.models.vision.images import Side
from keras_tfm.models.vision.swin import Swin, SwinConfig

HIDDEN_DIM = 512  # of the network that computes the bias of positions


@dataclasses.dataclass(frozen=True)
class SwinV2Config(SwinConfig):
    """The sizes of a `SwinV2`: the fields of `SwinConfig`, and one more.

    Args:
        pretrained_windows: the side of each stage's windows in pre-training, in which offsets are measured.
            0 for a stage, or None for all, stands for the window itself.
    """

    image_size: Side | tuple[Side, Side] = 256
    window: Side = 8
    pretrained_windows: tuple[Whole, ...] | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.pretrained_windows is not None:
            check_stages(self, "depths", "pretrained_windows")


class SwinV2(Swin):
    """A `Swin` with normalised outputs of branches and cosine attention; inputs and outputs are the same.

    >>> model = keras_tfm.models.SwinV2.from_size("T/8", image_size=32, dim=16, depths=(2,), num_heads=(2,))
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 64, 16])
    """

    config_class = SwinV2Config
    normalize = "output"

    @classmethod
    def attention(cls, config, stage, window):
        pretrained = config.pretrained_windows[stage] if config.pretrained_windows else 0
        return CosineAttention(
            config.num_heads[stage],
            dropout=config.attention_dropout,
            position=ContinuousPositionBias(window, pretrained or None),
            kernel_initializer=TRUNCATED,
        )


class CosineAttention(MultiHeadAttention):
    """Self-attention by the cosines of queries and keys, times a learned factor for each head (equation 2).

    The factor is exp(temperature), at first 10 and at most 100. Keys have no bias. The other arguments are as
    in `MultiHeadAttention`.
    """

    def __init__(self, num_heads, dropout=0.0, position=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(
            num_heads,
            dropout=dropout,
            use_bias=("query", "value"),
            position=position,
            scale=1.0,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        initial = keras.initializers.Constant(math.log(10))
        self.temperature = self.add_weight((self.num_heads, 1, 1), initial, name="temperature")

    def score(self, query, key, bias=None, positions=None, key_positions=None):
        factor = ops.exp(ops.minimum(in_float32(self.temperature), math.log(100)))
        unit_query, unit_key = ops.cast(unit(query) * factor, query.dtype), ops.cast(unit(key), key.dtype)
        return super().score(unit_query, unit_key, bias, positions, key_positions)


class ContinuousPositionBias(GridPositionBias):
    """A bias, at most 16, for each head and each offset of a grid's cells, computed by a network of two
    layers.

    The network reads sign(d) log2(1 + 8 |d|) / log2(8) for the offset d along each axis, in units of the
    largest offset of a grid of `pretrained_grid` (a side or (height, width), by default `grid`).
    """

    def __init__(self, grid, pretrained_grid=None, **kwargs):
        super().__init__(grid, **kwargs)
        if pretrained_grid is not None:
            height_and_width(pretrained_grid, "pretrained_grid")
        self.pretrained_grid = pretrained_grid

    def build(self, heads):
        self.offsets = self._offsets()
        self.indices = self.rows()
        initializers = {"kernel_initializer": copy_of(TRUNCATED)}
        self.hidden = keras.layers.Dense(HIDDEN_DIM, "relu", name="hidden", **initializers)
        self.hidden.build(self.offsets.shape)
        initializers = {"kernel_initializer": copy_of(TRUNCATED)}
        self.projection = keras.layers.Dense(heads[0], use_bias=False, name="output", **initializers)
        self.projection.build((len(self.offsets), HIDDEN_DIM))

    def _offsets(self):
        """The network's input for each row of the table: a NumPy array (rows, 2)."""
        sides, counts = (height_and_width(size) for size in (self.grid, self.pretrained_grid or self.grid))
        vertical, horizontal = (
            np.arange(1 - side, side) / max(count - 1, 1) for side, count in zip(sides, counts, strict=True)
        )
        offsets = np.stack(np.meshgrid(vertical, horizontal, indexing="ij"), axis=-1).reshape(-1, 2)
        return (np.sign(offsets) * np.log2(1 + 8 * np.abs(offsets)) / np.log2(8)).astype("float32")

    @property
    def table(self):
        """The biases of all offsets, one row per offset: (rows, H)."""
        return 16 * ops.sigmoid(self.projection(self.hidden(self.offsets)))


# The configurations of Liu et al. 2022, with stochastic depth as in the authors' files. The number after the
# slash is the window; "12to16" was pre-trained with windows of 12 on images of 192 x 192, and fine-tuned with
# windows of 16 on larger images.
_T = SwinV2Config(stochastic_depth=0.2)
_S = dataclasses.replace(_T, depths=(2, 2, 18, 2), stochastic_depth=0.3)
_B = dataclasses.replace(_S, dim=128, num_heads=(4, 8, 16, 32), stochastic_depth=0.5)
SwinV2.sizes = {
    f"{size}/{window}": dataclasses.replace(config, window=window)
    for size, config in {"T": _T, "S": _S, "B": _B}.items()
    for window in (8, 16)
}
_FINE_TUNED = {"16": (256, 16), "24": (384, 24)}
for _size, _base in {
    "B": dataclasses.replace(_B, stochastic_depth=0.2),
    "L": dataclasses.replace(_B, dim=192, num_heads=(6, 12, 24, 48), stochastic_depth=0.2),
}.items():
    SwinV2.sizes[f"{_size}/12"] = dataclasses.replace(_base, image_size=192, window=12)
    for _name, (_side, _window) in _FINE_TUNED.items():
        SwinV2.sizes[f"{_size}/12to{_name}"] = dataclasses.replace(
            _base, image_size=_side, window=_window, pretrained_windows=(12, 12, 12, 6)
        )
