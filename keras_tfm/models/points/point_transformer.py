"""Point Transformer of Zhao et al. 2021, "Point Transformer": vector attention among neighbours.

    N ---------------------------------------> N        each step down keeps a quarter of the points,
      N/4 ---------------------------------> N/4        with the maximum of what is around them;
        N/16 ---------------------------> N/16          each step up interpolates, and adds the
          N/64 -----------------------> N/64            points of that size
            N/256 ---------------> N/256

Neighbours are the nearest points of the same size. The sizes follow POSTECH-CVLab/point-transformer.
Its scores are k - q and its offsets p_j - p_i, the negatives of the paper's and of these: its weights fit
with the signs of three kernels changed. Deviates from it in that all clouds have the same number of points.
"""

import dataclasses
from typing import Annotated, Any

import keras
from keras import ops

from keras_tfm.configs import Between, Field, FieldError, Refusal, Size, Whole
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, NormalizedDense
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.points import (
    NearestPoints,
    PointInterpolation,
    VectorAttention,
    nan_where_points_are_not_finite,
)
from keras_tfm.models.base import ConfiguredModel, Trace, check_stages
from keras_tfm.models.points.clouds import CloudConfig, Points, cloud_input, neighbourhoods

STRIDE = 4  # how many times fewer points each stage has
INTERPOLATED = 3  # points for each place


@dataclasses.dataclass(frozen=True)
class PointTransformerConfig(CloudConfig):
    """The sizes of a `PointTransformer`; tuples have one entry per stage.

    Args:
        num_features: the numbers that come with a point's coordinates, colours for example.
        depths: how many blocks a stage has on the way down; it has one on the way up.
        num_neighbours: how many points each attends to, itself among them.
        num_sharing: how many features have one attention weight.
        has_decoder: whether the way goes up again, to all points.
    """

    num_points: Points = 4096
    num_features: Whole = 3
    dims: tuple[Size, ...] = (32, 64, 128, 256, 512)
    depths: tuple[Annotated[int, Between(0, 1000)], ...] = (1, 2, 3, 5, 2)
    num_neighbours: tuple[Points, ...] = (8, 16, 16, 16, 16)
    num_sharing: Size = 8
    has_decoder: bool = True

    def __post_init__(self):
        super().__post_init__()
        check_stages(self, "dims", "depths", "num_neighbours")
        if any(dim % self.num_sharing for dim in self.dims):
            text = "{} must divide all of {}, {}; it is {}."
            raise FieldError(text, Field("num_sharing"), Field("dims"), self.dims, self.num_sharing)
        if any(count > size for count, size in zip(self.num_neighbours, self.counts, strict=True)):
            raise Refusal(
                "num_neighbours", f"at most the points of the stages, {self.counts}", self.num_neighbours
            )
        if self.has_decoder and self.counts[-1] < INTERPOLATED and len(self.dims) > 1:
            least = INTERPOLATED * STRIDE ** (len(self.dims) - 1)
            raise Refusal("num_points", f"at least {least}, to interpolate between", self.num_points)

    @property
    def counts(self):
        """How many points each stage has."""
        return tuple(self.num_points // STRIDE**stage for stage in range(len(self.dims)))


class PointTransformer(ConfiguredModel):
    """Clouds of points in, a vector for each point out.

    Input: `points` (B, N, 3 + F), the coordinates first. Outputs: `sequence_output` (B, N, D) and
    `encoder_sequence_output`, the vectors of the fewest points; without a decoder `sequence_output` are
    these. A cloud with a number that is not finite has outputs of NaN.

    >>> model = keras_tfm.models.PointTransformer.from_size("tiny")
    >>> model({"points": np.random.default_rng(0).normal(size=(2, 256, 3))})["sequence_output"].shape
    TensorShape([2, 256, 16])
    """

    config_class = PointTransformerConfig

    def __init__(
        self, config: PointTransformerConfig, name: str = "point_transformer", **kwargs: Any
    ) -> None:
        cloud, trace, stages = cloud_input(config, 3 + config.num_features), Trace(), []
        points = cloud[..., :3]
        x = NormalizedDense(config.dims[0], activation="relu", name="embedding")(cloud)
        for stage, (dim, count) in enumerate(zip(config.dims, config.counts, strict=True)):
            if stage:
                near = neighbourhoods(points, count, config.num_neighbours[stage], stage)
                x = pooled(dim, f"stage_{stage}_pooling", near.offsets(points), near.of(x))
                points = near.points
            around = NearestPoints(config.num_neighbours[stage], name=f"stage_{stage}_nearest")
            tensors = {"points": points, "neighbours": around(points, points)}
            blocks = [_block(config, dim, f"stage_{stage}_block_{i}") for i in range(config.depths[stage])]
            x = trace.run("encoder", blocks, x, **tensors)
            stages.append((x, tensors))
        outputs = {"sequence_output": x}
        if config.has_decoder:
            decoded = NormalizedDense(config.dims[0], activation="relu", use_bias=True, name="output")
            outputs = {
                "sequence_output": decoded(_decoded(config, stages, trace)),
                "encoder_sequence_output": x,
            }
        outputs = {key: nan_where_points_are_not_finite(y, cloud) for key, y in outputs.items()}
        super().__init__(config, {"points": cloud}, outputs, trace, name=name, **kwargs)


def pooled(dim, name, offsets, x, num_layers=1):
    """The maximum over K neighbours of dense layers of their `offsets` (B, M, K, 3) and vectors `x` (B, M, K,
    D): (B, M, `dim`).
    """
    layers = Chain([NormalizedDense(dim, activation="relu") for _ in range(num_layers)], name=name)
    return ops.max(layers(ops.concatenate([offsets, x], axis=-1)), axis=2)


def _decoded(config, stages, trace):
    """The way up, from the last of the `stages`, (vectors, tensors of blocks), to the first's vectors."""
    x, tensors = stages[-1]
    mean = Dense(config.dims[-1], "relu", name="decoder_mean")(ops.mean(x, axis=1, keepdims=True))
    x = ops.concatenate([x, ops.zeros_like(x) + mean], axis=-1)  # (B, M, 2 D)
    x = _raised(config.dims[-1], "decoder_projection")(x)
    for stage in reversed(range(len(stages))):
        dim, coarse = config.dims[stage], tensors["points"]
        if stage < len(stages) - 1:
            finer, tensors = stages[stage]
            x = raised(dim, stage, finer, x, coarse, tensors["points"], power=1.0)
        x = trace.run("decoder", [_block(config, dim, f"decoder_stage_{stage}_block_0")], x, **tensors)
    return x


def raised(dim, stage, finer, x, points, places, power):
    """Vectors `x` (B, M, D') of `points`, interpolated at `places` and added to the vectors `finer` (B, N, D)
    there, each after a dense layer: (B, N, `dim`).
    """
    interpolated = PointInterpolation(INTERPOLATED, power, name=f"decoder_stage_{stage}_interpolation")
    x = interpolated(_raised(dim, f"decoder_stage_{stage}_coarse")(x), points, places)
    return _raised(dim, f"decoder_stage_{stage}_fine")(finer) + x


def _raised(dim, name):
    return NormalizedDense(dim, activation="relu", use_bias=True, name=name)


class PointBlock(SameShape):
    """An `attention` between dense layers, all with norms, in a residual: (B, N, D) -> (B, N, D).

    Zhao et al. 2021, figure 4 a.
    """

    is_block = True

    def __init__(self, attention: keras.layers.Layer, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # lower precision moves points
        self.attention = attention

    def build(self, x_shape, points_shape=None, neighbours_shape=None):
        dim = x_shape[-1]
        self.input_projection = NormalizedDense(dim, activation="relu", name="input")
        self.norm = BatchNormalization(name="norm")
        self.output_projection = NormalizedDense(dim, name="output")
        self.attention.build(x_shape, points_shape, neighbours_shape)
        for layer in (self.input_projection, self.norm, self.output_projection):
            layer.build(x_shape)

    def call(self, x, points=None, neighbours=None, training=None):
        """Vectors `x` of `points` (B, N, 3) with `neighbours` (B, N, K), indices."""
        x = ops.cast(x, self.compute_dtype)
        y = self.attention(self.input_projection(x, training=training), points, neighbours, training=training)
        y = ops.relu(self.norm(y, training=training))
        return ops.relu(x + self.output_projection(y, training=training))


def _block(config, dim, name):
    width = dim // config.num_sharing
    position = Chain([NormalizedDense(3, activation="relu", use_bias=True), keras.layers.Dense(dim)])
    hidden = NormalizedDense(width, activation="relu", use_bias=True)
    weighing = Chain([BatchNormalization(), keras.layers.ReLU(), hidden, keras.layers.Dense(width)])
    return PointBlock(VectorAttention(dim, position, weighing), name=name)


# Zhao et al. 2021, section 4.1, as the code named above has it for S3DIS: coordinates and colours. tiny is
# this package's own, for classification.
PointTransformer.sizes = {
    "tiny": PointTransformerConfig(256, 0, (16, 32, 64), (1, 1, 1), (8, 8, 8)),
    "S3DIS": PointTransformerConfig(),
}
