"""PED of Lin et al. 2021, "DETR for Crowd Pedestrian Detection": a Deformable DETR of many queries, each of
which sees its neighbours alone.

    queries --> boxes --> attention to the queries of the nearest boxes
                  |           |
                  +------> attention to points inside the box --> corrected boxes --> next block

Queries are dense, and far ones have nothing to say to each other: self-attention is hidden but for the boxes
of the highest GIoU with the query's own (section 4.2). Attention to the image looks at points in a regular
field within the box, each head in a strip of its own (section 4.3, "rectified attention field").
`heads.CrowdDetector` trains it with boxes of visible parts and regions to ignore (section 4.4). Deviates from
the authors' code in that far queries are hidden, where theirs adds 1 to the scores of near ones; and in that
the positions of queries are the sines of their boxes. Architecture only, no published weights.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Count, Refusal, Size
from keras_tfm.layers.attention.deformable import DeformableAttention
from keras_tfm.layers.boxes import nearest_boxes
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.models.detection.backbones import TINY
from keras_tfm.models.detection.base import (
    CoordinateSines,
    LearnedQueries,
    SetDetector,
    SetDetectorConfig,
    last_maps,
    start_of,
)
from keras_tfm.models.detection.deformable_detr import encoded_levels, levels_of, projections_of
from keras_tfm.models.detection.refinement import box_heads, decoder_block, refined

FIRST_BOX = [0.0, 0.0, -2.0, -1.5]  # logits: in the middle, 0.12 of the width and 0.18 of the height


@dataclasses.dataclass(frozen=True)
class PEDConfig(SetDetectorConfig):
    """`SetDetectorConfig`, with the last `num_maps` maps of the backbone and, up to `num_levels`, further
    ones of half the sides. A query attends to `num_neighbours` queries, itself among them. A head looks at
    `num_points` points of each level, in the decoder at `num_decoder_points`.
    """

    num_queries: LearnedQueries = 1000
    num_neighbours: Size = 100
    intermediate_dim: Size = 1024
    num_maps: Count = 3
    num_levels: Size = 4
    num_points: Size = 4
    num_decoder_points: Size = 4

    def __post_init__(self):
        super().__post_init__()
        if self.num_levels < self.num_maps:
            raise Refusal("num_levels", f"at least `num_maps`, {self.num_maps}", self.num_levels)
        if self.num_neighbours > self.num_queries:
            raise Refusal("num_neighbours", f"at most `num_queries`, {self.num_queries}", self.num_neighbours)


class PED(SetDetector):
    """Images in, one vector for each object query out, and its box.

    Inputs as of `SetDetector`. Outputs: `encoder_sequence_output` (B, N, D), the cells of all levels, the
    finest first; `decoder_sequence_output` (B, Q, D); `decoder_outputs` (B, L, Q, D), of all decoder blocks,
    and `decoder_boxes` (B, L, Q, 4), (x, y, width, height) around the centre as parts of the image's sides,
    padding apart.

    >>> model = keras_tfm.models.PED.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["decoder_boxes"].shape
    TensorShape([1, 3, 64, 4])
    """

    config_class = PEDConfig
    is_for_crowds = True  # how a head is trained

    def __init__(self, config: PEDConfig, name: str = "ped", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        levels = levels_of(projections_of(config), last_maps(backbone.maps, config.num_maps))
        encoder = encoded_levels(config, levels, pixel_mask, trace)
        x = LearnedVectors(config.num_queries, config.dim, name="decoder_queries")(encoder.x)
        first = keras.initializers.Constant(FIRST_BOX)
        references = ops.sigmoid(Dense(4, bias_initializer=first, name="decoder_references")(x))
        numbers = range(config.decoder_sizes[0])
        decoder = [decoder_block(config, encoder.grids, i, attention=RectifiedAttention) for i in numbers]
        sines = CoordinateSines(config.dim // 2, name="decoder_sines")
        position = Chain([Dense(config.dim, "relu"), Dense(config.dim)], name="decoder_position")
        states, boxes = refined(
            trace,
            decoder,
            box_heads(config),
            x,
            references,
            encoder.shares,
            lambda references: position(sines(references)),
            encoder.context,
            lambda references: nearest_boxes(references, config.num_neighbours),
        )
        outputs = {
            "encoder_sequence_output": encoder.x,
            "decoder_sequence_output": trace.hidden_states["decoder"][-1],
            "decoder_outputs": states,  # (B, L, Q, D)
            "decoder_boxes": boxes,  # (B, L, Q, 4)
        }
        super().__init__(config, backbone, pixel_mask, outputs, trace, name=name, **kwargs)


class RectifiedAttention(DeformableAttention):
    """`DeformableAttention` around references that are boxes, whose points begin in a regular field: the p-th
    of P points of the h-th of H heads at (p + 1/2) / P of the width and (h + 1/2) / H of the height.

    Offsets are in P-ths of the sides. The weights of points are linear functions of the queries without
    their positions. ValueError for references that are points.
    """

    def first_offsets(self):
        """None: the field is regular."""
        return keras.initializers.Zeros()

    def weighed_by(self, content, query):
        """The queries without their positions."""
        return content

    def _points(self, offsets, references):
        if references.shape[-1] != 4:
            width = references.shape[-1]
            raise ValueError(f"{self.name!r} needs `references` (B, T, L, 4), boxes; they are {width} wide.")
        x, y = ((np.arange(count) + 0.5) / count for count in (self.num_points, self.num_heads))
        field = np.stack(np.broadcast_arrays(x, y[:, None]), axis=-1).astype("float32")  # (H, P, 2)
        places = field[:, None] + offsets / self.num_points  # (B, T, H, L, P, 2)
        return references[..., :2] + references[..., 2:] * (places - 0.5)


# Lin et al. 2021, section 5.1. tiny is this package's own, for images of some 96 x 96.
PED.sizes = {
    "tiny": PEDConfig(
        **TINY | {"num_queries": 64},
        num_neighbours=16,
        dim=64,
        num_layers=1,
        num_decoder_layers=3,
        num_heads=4,
        intermediate_dim=128,
        dropout=0.0,
        num_maps=2,
        num_levels=2,
        num_points=2,
    ),
    "50": PEDConfig(),
}
