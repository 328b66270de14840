"""VisTR of Wang et al. 2021, "End-to-End Video Instance Segmentation with Transformers": DETR for clips.

    frames ---> backbone ---> tokens of all frames ---> encoder ---> decoder ---> n vectors for each frame
                (each alone)  (3-D positions)

The tokens of all frames attend to each other. Object queries stand frame by frame, n in each: the query i of
each frame follows one object, so that the answers of a clip are n tracks. `heads.ClipDetector` predicts
classes and boxes, `heads.ClipSegmenter` masks too. Deviates from the authors' code in the first values of
queries, see `begin_as_tracks`, and of some other weights, see `begin_with_a_state` and `copy_contexts`.
"""

import dataclasses
from typing import Annotated, Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import Between, Multiple
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models.detection.backbones import TINY, ModelAroundBackbone, on_images
from keras_tfm.models.detection.base import (
    LearnedQueries,
    SetDetectorConfig,
    SineWidth,
    about_queries,
    begin_with_a_state,
    copy_contexts,
    detr_block,
    encoded_cells,
    outputs_of,
)
from keras_tfm.models.vision.images import video_input
from keras_tfm.private.keras import change_value


@dataclasses.dataclass(frozen=True)
class VisTRConfig(SetDetectorConfig):
    """`SetDetectorConfig`, whose `num_queries` counts the queries of all `num_frames` frames of a clip."""

    num_frames: Annotated[int, Between(1, 2**10)] = 36
    num_queries: LearnedQueries = 360
    dim: Annotated[SineWidth, Multiple(12)] = 384  # of three coordinates


class VisTR(ModelAroundBackbone):
    """Clips in, one vector for each object query out.

    Inputs: `videos` (B, F, H, W, C), floating-point, and `video_mask` (B, F, H, W), True for a pixel of a
    frame and False for padding, by default True. Outputs as of `DETR`: `encoder_sequence_output` (B, F N, D),
    the cells of the maps frame by frame and row by row, `decoder_sequence_output` (B, Q, D), the queries
    frame by frame, and `decoder_outputs` (B, L, Q, D). `maps` are the backbone's, of (B F) images.

    >>> model = keras_tfm.models.VisTR.from_size("tiny", image_size=32)
    >>> model({"videos": np.zeros((1, 4, 32, 32, 3))})["decoder_sequence_output"].shape
    TensorShape([1, 24, 96])
    """

    config_class = VisTRConfig

    def __init__(self, config: VisTRConfig, name: str = "vistr", **kwargs: Any) -> None:
        videos = video_input(config)
        video_mask = keras.Input(videos.shape[1:4], dtype="bool", name="video_mask")
        frames = ops.reshape(videos, (-1, *videos.shape[2:]))  # (B F, H, W, C)
        maps, trace = on_images(config.new_backbone(), frames)
        x = Convolution(config.dim, 1, name="encoder_projection")(maps[-1])
        cells = resize_nearest(ops.reshape(video_mask, (-1, *video_mask.shape[2:])), x.shape[1:3])
        x, cells = (ops.reshape(y, (-1, config.num_frames, *y.shape[1:])) for y in (x, cells))
        encoder = encoded_cells(config, x, cells, trace)  # (B, F N, D)
        decoder = [detr_block(config, "decoder", i) for i in range(config.decoder_sizes[0])]
        vectors = LearnedVectors(config.num_queries, name="decoder_queries")
        queries = vectors(encoder.context["context"])
        trace.run("decoder", decoder, ops.zeros_like(queries), **about_queries(queries, encoder.context))
        inputs = {"videos": videos, "video_mask": video_mask}
        super().__init__(config, inputs, outputs_of(trace), trace, name=name, **kwargs)
        self.maps = maps
        self.context = encoder.context
        begin_as_tracks(vectors.table, config.num_frames)
        begin_with_a_state(decoder[0])
        for block in decoder:
            copy_contexts(block)


def begin_as_tracks(table, num_frames):
    """Let the queries of one track begin alike, in a `table` (F n, D) of queries frame by frame.

    They differ in the first third of the features, where the positions of cells have the sines of their
    frame. Each object's queries then look for the same thing in all frames from the first step on.
    """
    num_queries, dim = table.shape
    if num_queries % num_frames:
        return  # no head for tracks takes them
    frame, count = np.divmod(np.arange(num_queries), num_queries // num_frames)
    is_of_frame = np.arange(dim) < dim // 3

    def alike(value):
        first = ops.take(value, count, axis=0)
        return ops.where(is_of_frame, ops.take(value, frame * (num_queries // num_frames), axis=0), first)

    change_value(table, alike)


# Maps of 1/2, 1/4 and 1/8 of the frame's side: what moves in small frames is a few pixels wide.
THREE_STAGES = {"stem_dim": 16, "dims": (16, 32, 64), "depths": (1, 1, 1), "block": "basic", "stem_stride": 2}
# Wang et al. 2021, section 4.2: clips of 36 frames of 540 x 300 pixels, 10 objects. tiny is this package's
# own.
VisTR.sizes = {
    "tiny": VisTRConfig(
        **TINY | {"image_size": 64, "num_queries": 24, "backbone_config": THREE_STAGES},
        num_frames=4,
        dim=96,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=8,
        intermediate_dim=192,
        dropout=0.0,
    ),
    "50": VisTRConfig(image_size=(300, 540)),
    "101": VisTRConfig(image_size=(300, 540), backbone_config={"depths": (3, 4, 23, 3)}),
}
