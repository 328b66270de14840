"""DETR of Carion et al. 2020, "End-to-End Object Detection with Transformers": a set of objects at once.

A backbone's last map, projected, is encoded; object queries, learned vectors, attend to it and to each other
in the decoder, and each becomes one object or none. Positions are added to queries and keys in every block,
and not to values. Batch normalisation keeps its statistics and scales, as the authors' does. Deviates from
the authors' code in the dilated fifth stage (DC5), which it lacks, and in that a stem and a first stage learn
unless they are frozen.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.models.detection.backbones import TINY
from keras_tfm.models.detection.base import (
    SetDetector,
    SetDetectorConfig,
    about_queries,
    detr_block,
    encoded_map,
    outputs_of,
    start_of,
)


@dataclasses.dataclass(frozen=True)
class DETRConfig(SetDetectorConfig):
    """`SetDetectorConfig`, with nothing of its own."""


class DETR(SetDetector):
    """Images in, one vector for each object query out.

    Inputs: `images` (B, H, W, C), floating-point, and `pixel_mask` (B, H, W), True for a pixel of an image
    and False for padding, by default True. Outputs: `encoder_sequence_output` (B, N, D), the cells of the
    encoded map row by row, `decoder_sequence_output` (B, Q, D), and `decoder_outputs` (B, L, Q, D), what each
    decoder block gave, through the one last norm: the last one is `decoder_sequence_output`. `maps` are the
    backbone's.

    >>> model = keras_tfm.models.DETR.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["decoder_sequence_output"].shape
    TensorShape([1, 16, 128])
    """

    config_class = DETRConfig

    def __init__(self, config: DETRConfig, name: str = "detr", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        encoder = encoded_map(config, backbone, pixel_mask, trace)
        decoder = [detr_block(config, "decoder", i) for i in range(config.decoder_sizes[0])]
        queries = LearnedVectors(config.num_queries, name="decoder_queries")(encoder.context["context"])
        trace.run("decoder", decoder, ops.zeros_like(queries), **about_queries(queries, encoder.context))
        super().__init__(config, backbone, pixel_mask, outputs_of(trace), trace, name=name, **kwargs)
        self.context = encoder.context


# Carion et al. 2020, table 1: DETR, of 41 M parameters, and DETR-R101, of 60 M. tiny is this package's own,
# for images of some 96 x 96.
SIZES = {
    "tiny": DETRConfig(
        **TINY,
        dim=128,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        intermediate_dim=256,
        dropout=0.0,
    ),
    "50": DETRConfig(),
    "101": DETRConfig(backbone_config={"depths": (3, 4, 23, 3)}),
}


def sizes_with_300_queries(config_class):
    """`SIZES` as configurations of a kin of DETR, which has 300 queries; tiny keeps its own number."""
    return {
        name: config_class.from_json(
            dataclasses.asdict(size) | ({} if name == "tiny" else {"num_queries": 300})
        )
        for name, size in SIZES.items()
    }


# cell is Cell-DETR (Prangemeier et al. 2020, "Attention-Based Transformers for Instance Segmentation of Cells
# in Microstructures") with a `heads.PanopticDetector`: the Transformer and the queries of its authors' code,
# behind a ResNet of three stages which, like their network of four, ends at 8 x 8 cells. It lacks the
# deformable and pixel-adaptive convolutions and the learned activations of their variant B.
DETR.sizes = SIZES | {
    "cell": DETRConfig(
        image_size=128,
        num_channels=1,
        backbone_config={"dims": (64, 128, 256), "depths": (1, 1, 1), "block": "basic"},
        frozen_norms=False,
        num_queries=12,
        dim=128,
        num_layers=3,
        num_decoder_layers=2,
        num_heads=8,
        intermediate_dim=512,
        dropout=0.0,
    ),
}
