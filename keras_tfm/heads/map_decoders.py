"""From a backbone's maps to one map for classes of pixels: SegFormer's decoder and the three of SETR.

Xie et al. 2021, "SegFormer", section 3.2; Zheng et al. 2021, "Rethinking Semantic Segmentation from a
Sequence-to-Sequence Perspective with Transformers" (SETR), section 3.3. Each is a layer that takes the list
of maps, the largest first, (B, rows, columns, D) each, and gives one (B, rows, columns, D). Dropout and the
linear layer of the classes stand behind it, in `SemanticSegmenter`.
"""

from typing import Any

from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.layers.patches import MOST_FIRST, grid_of_model
from keras_tfm.layers.resizing import resize_bilinear

EPSILON = 1e-6  # of SETR's layer norms, the authors' code


class MLPDecoder(Layer):
    """SegFormer's decoder: each map projected to `dim`, all resized to the first one's size and fused.

    To fuse is one linear layer of the maps side by side, the last first, batch normalisation and ReLU. A
    product within each cell and the resizing commute: each map is multiplied by its part of the kernel where
    it is small, and the results are added, which gives the same up to rounding.

    >>> maps = [np.ones((1, 8, 8, 4)), np.ones((1, 4, 4, 6))]
    >>> keras_tfm.heads.MLPDecoder(dim=16)(maps).shape
    TensorShape([1, 8, 8, 16])
    """

    def __init__(self, dim: int = 256, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_dim(dim)
        self.dim = dim

    def build(self, maps_shape):
        self.projections = [Dense(self.dim, name=f"projection_{i}") for i in range(len(maps_shape))]
        for projection, shape in zip(self.projections, maps_shape, strict=True):
            projection.build(shape)
        self.fuse = Dense(self.dim, use_bias=False, name="fuse")
        self.fuse.build((None, len(maps_shape) * self.dim))
        self.norm = BatchNormalization(name="norm")
        self.norm.build(self.compute_output_shape(maps_shape))

    def call(self, maps, training=None):
        """[(B, rows, columns, D)] -> (B, rows, columns, dim), of the first map's size."""
        size = maps[0].shape[1:3]
        parts = [project(x) for project, x in zip(self.projections, maps, strict=True)][::-1]
        if self.fuse.quantization_mode is None:
            kernels = ops.split(self.fuse.kernel, len(parts))
            pairs = zip(parts, kernels, strict=True)
            x = sum(resize_bilinear(ops.matmul(part, kernel), size) for part, kernel in pairs)
        else:  # a kernel in 8 bits has no parts
            x = self.fuse(ops.concatenate([resize_bilinear(part, size) for part in parts], axis=-1))
        return ops.relu(self.norm(x, training=training))

    def compute_output_shape(self, maps_shape):
        return (*maps_shape[0][:3], self.dim)


class NaiveDecoder(Layer):
    """SETR-Naïve: the last map, normalised, by a 1 x 1 convolution to `dim`, batch-normalised, and ReLU.

    >>> keras_tfm.heads.NaiveDecoder(dim=16)([np.ones((1, 8, 8, 4)), np.ones((1, 4, 4, 6))]).shape
    TensorShape([1, 4, 4, 16])
    """

    def __init__(self, dim: int = 256, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_dim(dim)
        self.dim = dim
        self.norm = LayerNormalization(EPSILON)
        self.convolution = _convolution(dim, 1)

    def build(self, maps_shape):
        self.norm.build(maps_shape[-1])
        self.convolution.build(maps_shape[-1])

    def call(self, maps, training=None):
        """[(B, rows, columns, D)] -> (B, rows, columns, dim), of the last map's size."""
        return self.convolution(self.norm(maps[-1]), training=training)

    def compute_output_shape(self, maps_shape):
        return (*maps_shape[-1][:3], self.dim)


class ProgressiveDecoder(Layer):
    """SETR-PUP: the last map, normalised, `num_steps` times convolved by 3 x 3 and doubled in its sides.

    A convolution has `dim` filters, batch normalisation and ReLU; to double a map at a time keeps the noise
    of one large step out.

    >>> keras_tfm.heads.ProgressiveDecoder(dim=16, num_steps=2)([np.ones((1, 4, 4, 6))]).shape
    TensorShape([1, 16, 16, 16])
    """

    def __init__(self, dim: int = 256, num_steps: int = 4, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_dim(dim)
        if num_steps < 0:
            raise ValueError(f"`num_steps` must be at least 0; it is {num_steps}.")
        self.dim = dim
        self.num_steps = num_steps
        self.norm = LayerNormalization(EPSILON)
        self.convolutions = [_convolution(dim, 3, name=f"convolution_{i}") for i in range(num_steps)]

    def build(self, maps_shape):
        self.norm.build(maps_shape[-1])
        shape = maps_shape[-1]
        for convolution in self.convolutions:
            convolution.build(shape)
            shape = (shape[0], 2 * shape[1], 2 * shape[2], self.dim)

    def call(self, maps, training=None):
        """[(B, rows, columns, D)] -> (B, 2^n rows, 2^n columns, dim), n being `num_steps`."""
        x = self.norm(maps[-1])
        for convolution in self.convolutions:
            rows, columns = x.shape[1:3]
            x = resize_bilinear(convolution(x, training=training), (2 * rows, 2 * columns))
        return x

    def compute_output_shape(self, maps_shape):
        batch_size, rows, columns, dim = maps_shape[-1]
        scale = 2**self.num_steps
        return (batch_size, scale * rows, scale * columns, self.dim if self.num_steps else dim)


class MultiLevelDecoder(Layer):
    """SETR-MLA: several maps, each plus all maps behind it, convolved on their own and put side by side.

    Each map is normalised and projected by 1 x 1 to `dim`; from the last to the first the sums go on; each
    sum is convolved by 3 x 3 to `dim` and twice to half of it, and resized to `scale` times the first map's
    sides. All convolutions have batch normalisation and ReLU. Maps of a pyramid are resized to the next
    larger one before they are added.

    >>> maps = [np.ones((1, 8, 8, 4)), np.ones((1, 4, 4, 6))]
    >>> keras_tfm.heads.MultiLevelDecoder(dim=16, scale=2)(maps).shape
    TensorShape([1, 16, 16, 16])
    """

    def __init__(self, dim: int = 256, scale: int = 4, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        _check_dim(dim)
        if dim % 2 or scale < 1:
            raise ValueError(f"`dim` must be even, and `scale` at least 1; they are {dim} and {scale}.")
        self.dim = dim
        self.scale = scale

    def build(self, maps_shape):
        self.levels = []
        for i, shape in enumerate(maps_shape):
            first = Chain([LayerNormalization(EPSILON), _convolution(self.dim, 1)], name=f"first_{i}")
            widths = (self.dim, self.dim // 2, self.dim // 2)
            last = Chain([_convolution(width, 3) for width in widths], name=f"last_{i}")
            first.build(shape)
            last.build((*shape[:3], self.dim))
            self.levels.append((first, last))
        self.parts = [layer for level in self.levels for layer in level]  # where Keras looks for layers

    def call(self, maps, training=None):
        """[(B, rows, columns, D)] of n maps -> (B, scale rows, scale columns, n dim / 2)."""
        rows, columns = maps[0].shape[1:3]
        size = (self.scale * rows, self.scale * columns)
        levels, total = [], None
        for (first, last), x in zip(self.levels[::-1], maps[::-1], strict=True):
            x = first(x, training=training)
            total = x if total is None else x + resize_bilinear(total, x.shape[1:3])
            levels.append(resize_bilinear(last(total, training=training), size))
        return ops.concatenate(levels[::-1], axis=-1)

    def compute_output_shape(self, maps_shape):
        batch_size, rows, columns, _ = maps_shape[0]
        return (batch_size, self.scale * rows, self.scale * columns, len(maps_shape) * self.dim // 2)


def maps_of(backbone):
    """The maps of a `backbone`, the largest first: its `maps` or, of one that keeps all patches to its end,
    four states of blocks, evenly spaced, the last as its `sequence_output` has it, without the tokens that
    are no patches.

    ValueError for a model that has neither.
    """
    if hasattr(backbone, "maps"):
        return list(backbone.maps)
    config, states = backbone.config, getattr(backbone, "hidden_states", {}).get("encoder", [])
    grid = grid_of_model(type(backbone), config)
    if grid is None or len(states) < 2:
        raise ValueError(
            f"`backbone` must have maps, or states of patches; it is a {type(backbone).__name__}."
        )
    rows, columns = grid
    count = min(4, len(states) - 1)
    levels = [states[(len(states) - 1) * (i + 1) // count] for i in range(count - 1)]
    levels.append(backbone.output["sequence_output"])
    if any(len(x.shape) != 3 or not 0 <= x.shape[1] - rows * columns <= MOST_FIRST for x in levels):
        raise ValueError(
            f"`backbone` must keep all patches to its end, behind at most {MOST_FIRST} other tokens; "
            f"{type(backbone).__name__} does not."
        )
    return [ops.reshape(x[:, x.shape[1] - rows * columns :], (-1, rows, columns, x.shape[2])) for x in levels]


def _convolution(filters, size, **options):
    return Convolution(filters, size, norm=BatchNormalization(), activation="relu", **options)


def _check_dim(dim):
    if dim < 1:
        raise ValueError(f"`dim` must be at least 1; it is {dim}.")
