"""PCT of Guo et al. 2021, "PCT: Point Cloud Transformer": attention to what a point differs in from its like.

    points --> dense --> 512 of them --> 256 of them --> offset attention x 4 --> all outputs --> maximum
                         with what the points around them have

Offset attention passes on a point's vector minus what attention gives for it. Queries and keys are the same,
and weights are divided by the sum over the queries of the softmax over the keys. The numbers equal
Strawberry-Eat-Mango/PCT_Pytorch, whose neighbours are the nearest, whatever the paper's radius.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.configs import Depth, Rate, Refusal, Size
from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import NormalizedDense
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import masked_softmax
from keras_tfm.layers.points import nan_where_points_are_not_finite
from keras_tfm.layers.regularization import Dropout
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.points.clouds import CloudConfig, Points, cloud_input, neighbourhoods


@dataclasses.dataclass(frozen=True)
class PCTConfig(CloudConfig):
    """The sizes of a `PCT`.

    Args:
        dim: the width of the first points; each sampling doubles it.
        counts: how many points are left after each sampling.
        num_neighbours: of the points around each that is left.
        least_norm: points nearer to the origin are not sampled, as in the authors' code.
        fused_dim: the width of a point at the end.
        head_dims: the widths of the dense layers after the maximum.
        dropout: the rate after each of them.
    """

    dim: Size = 64
    counts: tuple[Points, ...] = (512, 256)
    num_neighbours: Points = 32
    least_norm: Rate = 1e-3**0.5
    num_layers: Depth = 4
    fused_dim: Size = 1024
    head_dims: tuple[Size, ...] = (512, 256)
    dropout: Rate = 0.5

    def __post_init__(self):
        super().__post_init__()
        if self.width % 4:
            raise Refusal("dim", "such that the last points have a multiple of four features", self.dim)
        sizes = (self.num_points, *self.counts)
        if not self.counts or any(after > before for before, after in zip(sizes, self.counts)):  # noqa: B905
            raise Refusal("counts", f"numbers that do not grow, from {self.num_points}", self.counts)
        if self.num_neighbours > sizes[-2]:
            raise Refusal(
                "num_neighbours", f"at most the points of a cloud, {sizes[-2]}", self.num_neighbours
            )

    @property
    def width(self):
        """The width of the points that attend."""
        return self.dim * 2 ** len(self.counts)


class PCT(ConfiguredModel):
    """Clouds of points in, one vector for each cloud out.

    Input: `points` (B, N, 3), for example within the unit sphere. Outputs: `sequence_output` (B, M, D), of
    the points that were sampled, and `pooled_output` (B, D'), after their maximum and two dense layers. A
    cloud with a coordinate that is not finite has outputs of NaN.

    >>> model = keras_tfm.models.PCT.from_size("tiny")
    >>> model({"points": np.random.default_rng(0).normal(size=(2, 256, 3))})["pooled_output"].shape
    TensorShape([2, 64])
    """

    config_class = PCTConfig

    def __init__(self, config: PCTConfig, name: str = "pct", **kwargs: Any) -> None:
        cloud = cloud_input(config)
        points, x = cloud, _dense(config.dim, "embedding", layers=2)(cloud)
        for stage, count in enumerate(config.counts):
            near = neighbourhoods(points, count, config.num_neighbours, stage, config.least_norm)
            centres = near.centres_of(x)  # (B, M, 1, D)
            neighbours = near.of(x)  # (B, M, K, D)
            x = ops.concatenate([neighbours - centres, ops.zeros_like(neighbours) + centres], axis=-1)
            x = ops.max(_dense(x.shape[-1], f"stage_{stage}_pooling", layers=2)(x), axis=2)  # (B, M, 2 D)
            points = near.points
        trace = Trace()
        blocks = [OffsetAttention(name=f"block_{i}") for i in range(config.num_layers)]
        trace.run("encoder", blocks, _dense(config.width, "projection", layers=2)(x))
        x = ops.concatenate([*trace.hidden_states["encoder"][1:], x], axis=-1)
        x = NormalizedDense(config.fused_dim, activation="leaky_relu", name="fusion")(x)
        outputs = {"sequence_output": x, "pooled_output": _pooled(config, ops.max(x, axis=1))}
        outputs = {key: nan_where_points_are_not_finite(y, cloud) for key, y in outputs.items()}
        super().__init__(config, {"points": cloud}, outputs, trace, name=name, **kwargs)


def _dense(width, name, layers):
    return Chain([NormalizedDense(width, activation="relu") for _ in range(layers)], name=name)


def _pooled(config, x):
    """The dense layers after the maximum, all but the first with a bias: (B, D) -> (B, D')."""
    for i, width in enumerate(config.head_dims):
        options: dict = {"activation": "leaky_relu", "use_bias": i > 0}
        x = NormalizedDense(width, **options, name=f"pooled_{i}")(x)
        x = Dropout(config.dropout, name=f"pooled_dropout_{i}")(x)
    return x


class OffsetAttention(SameShape):
    """x + ReLU(BN(Dense(x - attention(x)))) of points (B, N, D): (B, N, D). Guo et al. 2021, eqs. 4 to 8.

    The weight of point i for point j is the softmax over the keys of query i, at key j, divided by the sum of
    all points' weights for j. Scores are not scaled.
    """

    is_block = True

    def build(self, x_shape):
        dim = x_shape[-1]
        self.query_key = Dense(dim // 4, use_bias=False, name="query_key")
        self.value = Dense(dim, name="value")
        self.output_projection = NormalizedDense(dim, activation="relu", use_bias=True, name="output")
        for layer in (self.query_key, self.value, self.output_projection):
            layer.build(x_shape)

    def call(self, x, training=None):
        """(B, N, D) -> (B, N, D)."""
        queries = self.query_key(x)
        weights = masked_softmax(ops.einsum("bik,bjk->bij", queries, queries))
        weights = weights / (1e-9 + ops.sum(weights, axis=1, keepdims=True))
        weights = ops.swapaxes(weights, 1, 2)  # (B, N, N): row j has the weights for point j
        tap(self, weights[:, None])
        averages = ops.einsum("bji,bic->bjc", ops.cast(weights, x.dtype), self.value(x))
        return x + self.output_projection(x - averages, training=training)


# Guo et al. 2021, section 5.1, with 40 classes of ModelNet40 to follow; tiny is this package's own.
PCT.sizes = {
    "tiny": PCTConfig(
        256, 16, (64, 32), num_neighbours=16, num_layers=2, fused_dim=128, head_dims=(64,), dropout=0.0
    ),
    "base": PCTConfig(),
}
