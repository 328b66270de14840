"""TSP-RCNN's head of Sun et al. 2021, "Rethinking Transformer-based Set Prediction for Object Detection": an
encoder of what `RoIAlign` reads in proposals.

    regions --> projection --+--> norm --> encoder --> ...
    sines of the boxes ------+              |
              +---- positions of queries and keys

Proposals, (x, y, width, height) and corners, are encoded by sines, which are also the positions in all
blocks. The network of proposals before it, a Faster R-CNN's, is no part of it. Architecture only: there are
no weights to read.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Config, Depth, Heads, Rate, Refusal, Size
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import LayerNormalization
from keras_tfm.models.base import ConfiguredModel, Trace
from keras_tfm.models.detection.base import EPSILON, CoordinateSines
from keras_tfm.models.detection.tsp_fcos import encoder_block


@dataclasses.dataclass(frozen=True)
class TSPRCNNHeadConfig(Config):
    """Regions have `region_size` x `region_size` places of `region_dim` numbers."""

    region_size: Size = 7
    region_dim: Size = 256
    dim: Size = 512
    num_layers: Depth = 6
    num_heads: Heads = 8
    intermediate_dim: Size = 2048
    dropout: Rate = 0.0

    def __post_init__(self):
        super().__post_init__()
        if self.dim % 16:
            raise Refusal("dim", "a multiple of 16, for the sines of eight numbers", self.dim)


class TSPRCNNHead(ConfiguredModel):
    """Regions and their boxes in, one vector for each proposal out.

    Inputs: `regions` (B, N, rows, columns, C), as of `RoIAlign`; `boxes` (B, N, 4), (x, y, width, height)
    around the centre as parts of the image's sides; and `region_mask` (B, N), False where there is no
    proposal, by default True. Output: `sequence_output` (B, N, D).

    >>> model = keras_tfm.models.TSPRCNNHead.from_size("tiny")
    >>> inputs = {"regions": np.ones((1, 5, 3, 3, 32)), "boxes": np.full((1, 5, 4), 0.5)}
    >>> model(inputs)["sequence_output"].shape
    TensorShape([1, 5, 64])
    """

    config_class = TSPRCNNHeadConfig

    def __init__(self, config: TSPRCNNHeadConfig, name: str = "tsp_rcnn_head", **kwargs: Any) -> None:
        size = config.region_size, config.region_size, config.region_dim
        inputs = {
            "regions": keras.Input((None, *size), name="regions"),
            "boxes": keras.Input((None, 4), name="boxes"),
            "region_mask": keras.Input((None,), dtype="bool", name="region_mask"),
        }
        boxes = inputs["boxes"]
        half = boxes[..., 2:] / 2
        corners = [boxes[..., :2] - half, boxes[..., :2] + half]
        numbers = ops.concatenate([boxes, *corners], axis=-1)  # (B, N, 8)
        position = CoordinateSines(config.dim // 8, name="position")(numbers)  # (B, N, D)
        cells = keras.layers.Reshape((-1, size[0] * size[1] * size[2]))(inputs["regions"])
        x = Dense(config.dim, name="region_projection")(cells)
        x = x + Dense(config.dim, name="position_projection")(position)
        x = LayerNormalization(EPSILON, name="token_norm")(x)
        trace = Trace()
        blocks = [encoder_block(config, i) for i in range(config.num_layers)]
        tensors = {"position": position, "mask": inputs["region_mask"]}
        x = trace.run("encoder", blocks, x, attention=tensors)
        outputs = {"sequence_output": LayerNormalization(EPSILON, name="norm")(x)}
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)


# Sun et al. 2021, section 4.2. tiny is this package's own.
TSPRCNNHead.sizes = {
    "tiny": TSPRCNNHeadConfig(3, 32, 64, 2, 4, 128),
    "base": TSPRCNNHeadConfig(),
}
