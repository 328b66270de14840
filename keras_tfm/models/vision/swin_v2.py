"""Swin Transformer V2 of Liu et al. 2022, "Swin Transformer V2: Scaling Up Capacity and Resolution".

`Swin` whose residuals and mergings are normalised after the branch, whose scores are cosines, and whose
position bias is made by a small network, so that it serves windows of any size. Deviates from the authors'
code in that the gains of the residuals' norms begin at 1; theirs begin at 0.
"""

import dataclasses
import math

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Whole
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import own
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.patches import height_and_width
from keras_tfm.models.base import check_stages
from keras_tfm.models.vision.images import Side
from keras_tfm.models.vision.swin import INITIALIZER, Swin, SwinConfig


@dataclasses.dataclass(frozen=True)
class SwinV2Config(SwinConfig):
    """`pretrained_windows` are the sides of each stage's windows in pre-training, in units of which offsets
    are measured: 0, or None for all, means the window itself.
    """

    image_size: Side | tuple[Side, Side] = 256
    window: Side = 8
    pretrained_windows: tuple[Whole, ...] | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.pretrained_windows is not None:
            check_stages(self, "depths", "pretrained_windows")


class SwinV2(Swin):
    """`Swin`, its inputs and outputs, with normalised outputs of branches and cosine attention."""

    config_class = SwinV2Config
    normalize = "output"

    @classmethod
    def attention(cls, config, stage, window):
        pretrained = config.pretrained_windows[stage] if config.pretrained_windows else 0
        return CosineAttention(
            config.num_heads[stage],
            dropout=config.attention_dropout,
            position=ContinuousPositionBias(window, pretrained or None),
            kernel_initializer=INITIALIZER,
        )


class CosineAttention(MultiHeadAttention):
    """Self-attention by the cosines of queries and keys, times a learned factor of each head: eq. 2.

    The factor is exp(temperature), at first 10 and at most `max_factor`. Keys have no bias. The arguments but
    the last are `MultiHeadAttention`'s.
    """

    def __init__(
        self,
        num_heads,
        dropout=0.0,
        position=None,
        kernel_initializer="glorot_uniform",
        max_factor=100.0,
        **kwargs,
    ):
        super().__init__(
            num_heads,
            dropout=dropout,
            use_bias=("query", "value"),
            position=position,
            scale=1.0,
            kernel_initializer=kernel_initializer,
            **kwargs,
        )
        if max_factor <= 0:
            raise ValueError(f"`max_factor` must be above 0; it is {max_factor}.")
        self.max_factor = max_factor

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        initial = keras.initializers.Constant(math.log(10))
        self.temperature = self.add_weight((self.num_heads, 1, 1), initial, name="temperature")

    def score(self, query, key, bias=None, positions=None, key_positions=None):
        factor = ops.exp(ops.minimum(in_float32(self.temperature), math.log(self.max_factor)))
        unit_query, unit_key = ops.cast(unit(query) * factor, query.dtype), ops.cast(unit(key), key.dtype)
        return super().score(unit_query, unit_key, bias, positions, key_positions)


class ContinuousPositionBias(GridPositionBias):
    """A bias for each head and offset of a grid's cells, at most 16, that a network of two layers makes.

    It sees sign(d) log2(1 + 8 |d|) / log2(8) of both axes' offsets d, as fractions of the greatest offset in
    a grid of the side or (height, width) `pretrained_grid`, by default `grid`. `hidden_dim` is
    the width of the network's hidden layer.
    """

    def __init__(self, grid, pretrained_grid=None, hidden_dim=512, **kwargs):
        super().__init__(grid, **kwargs)
        if pretrained_grid is not None:
            height_and_width(pretrained_grid, "pretrained_grid")
        if hidden_dim < 1:
            raise ValueError(f"`hidden_dim` must be at least 1; it is {hidden_dim}.")
        self.pretrained_grid = pretrained_grid
        self.hidden_dim = hidden_dim

    def build(self, heads):
        self.offsets = self._offsets()
        self.indices = self.rows()
        initializers = {"kernel_initializer": own(INITIALIZER)}
        self.hidden = keras.layers.Dense(self.hidden_dim, "relu", name="hidden", **initializers)
        self.hidden.build(self.offsets.shape)
        initializers = {"kernel_initializer": own(INITIALIZER)}
        self.projection = keras.layers.Dense(heads[0], use_bias=False, name="output", **initializers)
        self.projection.build((len(self.offsets), self.hidden_dim))
        self.built = True

    def _offsets(self):
        """What the network sees of each row of the table: a NumPy array (rows, 2)."""
        sides, counts = (height_and_width(size) for size in (self.grid, self.pretrained_grid or self.grid))
        vertical, horizontal = (
            np.arange(1 - side, side) / max(count - 1, 1) for side, count in zip(sides, counts, strict=True)
        )
        offsets = np.stack(np.meshgrid(vertical, horizontal, indexing="ij"), axis=-1).reshape(-1, 2)
        return (np.sign(offsets) * np.log2(1 + 8 * np.abs(offsets)) / np.log2(8)).astype("float32")

    @property
    def table(self):
        """The biases of all offsets, a row each: (rows, H)."""
        return 16 * ops.sigmoid(self.projection(self.hidden(self.offsets)))


def unit(x):
    """The vectors of (..., K) over their lengths, in float32 at least."""
    x = in_float32(x)
    return x * ops.rsqrt(ops.maximum(ops.sum(ops.square(x), axis=-1, keepdims=True), 1e-24))


# The configurations of Liu et al. 2022: the width and depth of each size, then the window. The windows
# after "to" were fine-tuned at 256 and 384 from ones of 12 at 192; stochastic depth of the authors' files.
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
