"""Hand-Transformer (Huang et al. 2020, "Hand-Transformer: Non-Autoregressive Structured Modeling for 3D Hand
Pose Estimation"): the joints of a hand from points on it, all at once.

A point's vector is made by dense layers that all points share, with the maximum over the points beside it, as
in PointNet (Qi et al. 2017); nothing depends on their order. Architecture only: no weights are published, and
the numbers of layers are this package's own.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Size
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.models.points.clouds import Points
from keras_tfm.models.pose.reference import FromReference, ReferenceConfig


@dataclasses.dataclass(frozen=True)
class HandTransformerConfig(ReferenceConfig):
    """`ReferenceConfig`, with `num_points` of a cloud, and `point_dims`, the widths of the dense layers of a
    point.
    """

    num_points: Points = 1024
    point_dims: tuple[Size, ...] = (64, 128)


class HandTransformer(FromReference):
    """A cloud of points and a reference pose in, the places of joints out.

    Inputs: `points` (B, N, 3) and `reference` (B, J, 3), for example the mean pose. Outputs: `joints` (B, J,
    3), and as of `HOTNet`.

    >>> model = keras_tfm.models.HandTransformer.from_size("tiny")
    >>> model({"points": np.zeros((1, 128, 3)), "reference": np.zeros((1, 21, 3))})["joints"].shape
    TensorShape([1, 21, 3])
    """

    config_class = HandTransformerConfig

    def __init__(self, config: HandTransformerConfig, name: str = "hand_transformer", **kwargs: Any) -> None:
        points = keras.Input((config.num_points, 3), name="points")
        own = Chain([Dense(dim, "relu") for dim in config.point_dims], name="point_embedding")(points)
        whole = ops.zeros_like(own) + ops.max(own, axis=1, keepdims=True)
        tokens = Dense(config.dim, name="encoder_embedding")(ops.concatenate([own, whole], axis=-1))
        super().__init__(config, points, tokens, name=name, **kwargs)


# This package's own: the joints of MSRA, and of the drawn hands.
HandTransformer.sizes = {
    "tiny": HandTransformerConfig(
        dim=64,
        num_layers=2,
        num_heads=4,
        intermediate_dim=128,
        dropout=0.0,
        num_points=128,
        point_dims=(64, 64),
    ),
    "base": HandTransformerConfig(),
}
