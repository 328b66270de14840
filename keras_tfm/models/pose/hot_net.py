"""HOT-Net of Huang et al. 2020, "HOT-Net: Non-Autoregressive Transformer for 3D Hand-Object Pose Estimation":
where joints, and the corners of an object's box, are in space, from where they are in an image.

Each place in the image is a token, with a learned vector of which it is. It lacks what the authors add for
hands alone, the constraints of their anatomy and of a mesh. Architecture only: no weights are published, and
the numbers of layers are this package's own.
"""

import dataclasses
from typing import Any

import keras

from keras_tfm.layers.dense import Dense
from keras_tfm.layers.initializers import TRUNCATED
from keras_tfm.layers.positions import PositionEmbedding
from keras_tfm.models.pose.reference import FromReference, Joints, ReferenceConfig


@dataclasses.dataclass(frozen=True)
class HOTNetConfig(ReferenceConfig):
    """`ReferenceConfig`; by default a hand of 21 joints and the 8 corners of a box."""

    num_joints: Joints = 29


class HOTNet(FromReference):
    """Places in an image and a reference pose in, places in space out.

    Inputs: `points` (B, J, 2) and `reference` (B, J, 3), for example the mean pose. Outputs: `joints` (B, J,
    3), `encoder_sequence_output` (B, J, D) and `decoder_sequence_output` (B, J, D).

    >>> model = keras_tfm.models.HOTNet.from_size("tiny")
    >>> model({"points": np.zeros((1, 29, 2)), "reference": np.zeros((1, 29, 3))})["joints"].shape
    TensorShape([1, 29, 3])
    """

    config_class = HOTNetConfig

    def __init__(self, config: HOTNetConfig, name: str = "hot_net", **kwargs: Any) -> None:
        points = keras.Input((config.num_joints, 2), name="points")
        tokens = Dense(config.dim, name="encoder_embedding")(points)
        tokens = PositionEmbedding(config.num_joints, TRUNCATED, name="encoder_position")(tokens)
        super().__init__(config, points, tokens, name=name, **kwargs)


# This package's own.
HOTNet.sizes = {
    "tiny": HOTNetConfig(dim=64, num_layers=2, num_heads=4, intermediate_dim=128, dropout=0.0),
    "base": HOTNetConfig(),
}
