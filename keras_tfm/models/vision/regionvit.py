"""RegionViT (Chen et al. 2022, "RegionViT: Regional-to-Local Attention for Vision Transformers").

A pyramid of windows, each with a token for its region. In a block the tokens of all regions attend to each
other; then the cells of each window and its region's token attend to each other, with the same attention
weights. Deviates from the authors' code, which pads maps that the windows do not divide: here they are
refused.

    r | a b     A state (B, N, 1 + T, D) holds N windows, row by row: of each the token of its region and
      | c d     the T cells of the window, row by row: r a b c d.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Depth, Rate, Size
from keras_tfm.layers.attention.grid_position import GridPositionBias
from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.base import Layer, SameShape
from keras_tfm.layers.blocks import residuals
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import PatchEmbedding, flatten_map, height_and_width, patch_grid
from keras_tfm.layers.windows import join_windows, split_windows
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages, rate_of
from keras_tfm.models.vision.images import ImageConfig, Rates, Ratio, Side, image_input

EPSILON = 1e-5  # of the norms next to convolutions; `epsilon` of the configuration is for the blocks
PATCH_SIZE = 4


@dataclasses.dataclass(frozen=True)
class RegionViTConfig(Rates, ImageConfig):
    """The sizes of a `RegionViT`; tuples have one entry per stage.

    Args:
        deep_stem: whether the patches of 4 x 4 are embedded by three convolutions or by one.
        window: the side of a region in patches. An image must consist of whole regions in every stage.
        mlp_ratio: the feed-forward width as a multiple of a stage's width.
    """

    deep_stem: bool = True
    dims: tuple[Size, ...] = (96, 192, 384, 768)
    depths: tuple[Depth, ...] = (2, 2, 8, 2)
    num_heads: tuple[Size, ...] = (3, 6, 12, 24)
    window: Side = 7
    mlp_ratio: Ratio = 4.0
    epsilon: Rate = 1e-6

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "depths", "num_heads")
        if any(after % before for before, after in zip(self.dims, self.dims[1:], strict=False)):
            raise ValueError(f"Each of `dims` must be a multiple of the one before it; they are {self.dims}.")

    @property
    def grids(self):
        """The (rows, columns) of regions in each stage. Raises ValueError if the image has no whole number
        of regions.
        """
        size, last = height_and_width(self.image_size), 2 ** (len(self.dims) - 1)
        rows, columns = patch_grid(size, PATCH_SIZE * self.window * last)
        return tuple((rows * last // 2**i, columns * last // 2**i) for i in range(len(self.dims)))


class RegionViT(ConfiguredModel):
    """RegionViT: images in, hidden states out.

    Input: `images` (B, H, W, C), floating-point. Outputs of the last stage: `sequence_output` (B, N, D), the
    regions row by row, and `pooled_output` (B, D), their mean. `hidden_states` are (B, N, 1 + T, D): the
    input of the first block and the output of each. For a detector or a decoder, `maps` are the cells at the
    end of each stage, and `region_maps` the regions (B, rows, columns, D), before any norm.

    >>> sizes = dict(image_size=32, dims=(16,), depths=(1,), num_heads=(2,), window=4)
    >>> model = keras_tfm.models.RegionViT.from_size("Ti", **sizes)
    >>> model(np.ones((1, 32, 32, 3)))["sequence_output"].shape
    TensorShape([1, 4, 16])
    """

    config_class = RegionViTConfig

    def __init__(self, config: RegionViTConfig, name: str = "regionvit", **kwargs: Any) -> None:
        images = image_input(config)
        cells = _stem(config)(images)
        regions = PatchEmbedding(config.dims[0], PATCH_SIZE * config.window, name="region_embedding")(images)
        trace, maps = Trace(), []
        for stage, grid in enumerate(config.grids):
            if stage:
                merging = Merging(config.dims[stage], name=f"stage_{stage}_merging")
                cells, regions = merging(cells), merging(regions)
            x = ToRegions(config.window, name=f"stage_{stage}_regions")(cells, regions)
            x = trace.run("encoder", [_block(config, stage, i) for i in range(config.depths[stage])], x)
            cells, regions = cells_of(x, config.window, grid), regions_of(x, grid)
            maps.append((cells, regions))
        x = flatten_map(LayerNormalization(config.epsilon, name="norm")(regions))
        outputs = {"sequence_output": x, "pooled_output": ops.mean(x, axis=1)}
        super().__init__(config, {"images": images}, outputs, trace, name=name, **kwargs)
        self.maps = [cells for cells, _ in maps]
        self.region_maps = [regions for _, regions in maps]


class ToRegions(Layer):
    """Joins cells and regions to the state of a block: each window of cells after the token of its region.

    Cells (B, H, W, D) and regions (B, H / window, W / window, D) -> (B, N, 1 + T, D).
    """

    def __init__(self, window, **kwargs):
        super().__init__(**kwargs)
        self.window = window

    def call(self, cells, regions):
        tokens = flatten_map(regions)  # (B, N, D)
        _, num_regions, dim = tokens.shape
        windows = split_windows(cells, self.window)  # (B N, T, D)
        windows = ops.reshape(windows, (-1, num_regions, self.window**2, dim))  # (B, N, T, D)
        return ops.concatenate([tokens[:, :, None], windows], axis=2)

    def compute_output_shape(self, cells_shape, regions_shape):
        batch_size, rows, columns, dim = regions_shape
        return (batch_size, rows * columns, 1 + self.window**2, dim)


def cells_of(x, window, grid):
    """The map of the cells in a state: (B, N, 1 + T, D) -> (B, rows `window`, columns `window`, D)."""
    windows = ops.reshape(x[:, :, 1:], (-1, window**2, x.shape[-1]))  # (B N, T, D)
    return join_windows(windows, window, tuple(side * window for side in grid))


def regions_of(x, grid):
    """The map of the regions in a state: (B, N, 1 + T, D) -> (B, rows, columns, D)."""
    return ops.reshape(x[:, :, 0], (-1, *grid, x.shape[-1]))


class Merging(Layer):
    """A norm, GELU and a depthwise convolution that halves the sides of a map, of cells or of regions.

    (B, H, W, D) -> (B, H', W', `dim`), where H' is half of H, rounded up.
    """

    def __init__(self, dim, **kwargs):
        super().__init__(**kwargs)
        self.dim = dim

    def build(self, x_shape):
        self.norm = LayerNormalization(EPSILON, name="norm")
        self.norm.build(x_shape)
        self.convolution = Convolution(self.dim, 3, 2, groups=x_shape[-1], name="convolution")
        self.convolution.build(x_shape)

    def call(self, x):
        return self.convolution(ops.gelu(self.norm(x), approximate=False))

    def compute_output_shape(self, x_shape):
        batch_size, height, width, _ = x_shape
        return (batch_size, -(-height // 2), -(-width // 2), self.dim)


class RegionBlock(SameShape):
    """Attention between regions, then within each window, then a feed-forward layer: (B, N, 1 + T, D) in and
    out.

    `attention` is a `Residual` of self-attention, used for both; its norm is for the windows, `region_norm`
    for the regions. `position` is the bias between cells. It is no `Block`: one attention runs twice.
    """

    is_block = True

    def __init__(self, attention, region_norm, feedforward, position, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.region_norm = region_norm
        self.feedforward = feedforward
        self.position = position

    def build(self, x_shape):
        batch_size, num_regions, length, dim = x_shape
        self.attention.build((batch_size, length, dim))
        self.region_norm.build((batch_size, num_regions, dim))
        self.feedforward.build((batch_size, length, dim))
        heads = self.attention.branch.projections
        self.position.build_for(heads.num_heads, heads.key_width, heads.value_width)

    def call(self, x, training=None):
        _, num_regions, length, dim = x.shape
        regions = x[:, :, 0]  # (B, N, D)
        y = self.attention.branch(self.region_norm(regions), training=training)
        regions = self.attention.after(regions, y, training)
        x = ops.concatenate([regions[:, :, None], x[:, :, 1:]], axis=2)
        windows = ops.reshape(x, (-1, length, dim))  # (B N, 1 + T, D)
        tokens = windows[:, None]  # as if of one head: the bias only needs their length
        bias = self.position.scores(tokens, tokens, None, None, None)[None]  # (1, H, 1 + T, 1 + T)
        windows = self.attention(windows, bias=bias, training=training)
        windows = self.feedforward(windows, training=training)
        return ops.reshape(windows, (-1, num_regions, length, dim))


def _stem(config):
    """The embedding of patches of 4 x 4 pixels."""
    dim = config.dims[0]
    if not config.deep_stem:
        return Convolution(dim, 2 * PATCH_SIZE, PATCH_SIZE, PATCH_SIZE - 1, name="stem")
    options: dict[str, Any] = {"activation": "gelu", "use_bias": True}
    layers = [
        Convolution(max(dim // part, 1), 3, 2, norm=LayerNormalization(EPSILON), **options) for part in (4, 2)
    ]
    return Chain([*layers, Convolution(dim)], name="stem")


def _block(config, stage, index):
    rate = rate_of(config, stage, index)
    part = residuals(config.dropout, config.epsilon, normalize_first=True, stochastic_depth=rate)
    attention = MultiHeadAttention(
        config.num_heads[stage], dropout=config.attention_dropout, kernel_initializer=TRUNCATED
    )
    hidden = int(config.mlp_ratio * config.dims[stage])
    feedforward = FeedForward(hidden, "gelu", kernel_initializer=TRUNCATED)
    position = GridPositionBias(config.window, prefix=1, initializer=TRUNCATED)
    region_norm = LayerNormalization(config.epsilon)
    name = f"stage_{stage}_block_{index}"
    return RegionBlock(part(attention), region_norm, part(feedforward), position, name=name)


# The architectures of Chen et al. 2022.
_S = RegionViTConfig()
_M = dataclasses.replace(_S, deep_stem=False, depths=(2, 2, 14, 2))
RegionViT.sizes = {
    "Ti": dataclasses.replace(_S, dims=(64, 128, 256, 512), num_heads=(2, 4, 8, 16)),
    "S": _S,
    "M": _M,
    "B": dataclasses.replace(_M, dims=(128, 256, 512, 1024), num_heads=(4, 8, 16, 32)),
}
