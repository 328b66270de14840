"""TransTrack of Sun et al. 2020, "TransTrack: Multiple Object Tracking with Transformer": a Deformable DETR
with a second decoder, which finds again the objects of the frame before.

    previous frame --+                        object queries ---> decoder -------> objects of this frame
                     +--> joined ---> encoder --+
    this frame ------+                          |
                      states of the frame before ---> track decoder ---> where its objects are now

The state between frames is an argument and a result: what the decoder made of the frame before. Each block of
the first decoder corrects the boxes. The blocks of the second decoder look around the boxes that they are
given, and only its last states move them. As in the authors' code queries have no positions in either
decoder. `serving.tracks` associates what both find.
"""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_tfm.configs import Refusal, Size
from keras_tfm.layers.convolution import Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.models.detection.backbones import TINY, ModelAroundBackbone, on_images
from keras_tfm.models.detection.base import LearnedQueries, about_queries, last_maps, start_of
from keras_tfm.models.detection.deformable_detr import (
    GROUPS,
    DeformableDETRConfig,
    encoded_levels,
    levels_of,
    projections_of,
)
from keras_tfm.models.detection.refinement import box_heads, corrected, decoder_block, on_levels, refined


@dataclasses.dataclass(frozen=True)
class TransTrackConfig(DeformableDETRConfig):
    """`DeformableDETRConfig`, always of one that `refines`; `num_groups` of features at most are normalised
    together in the maps.
    """

    num_queries: LearnedQueries = 500
    refines: bool = True
    num_groups: Size = GROUPS

    def __post_init__(self):
        super().__post_init__()
        if not self.refines or self.proposes:
            raise Refusal("refines", "True, and `proposes` False", (self.refines, self.proposes))


class TransTrack(ModelAroundBackbone):
    """Two frames and the state of the first in, objects of the second and the next state out.

    Inputs: `images` and `previous_images` (B, H, W, C), floating-point, and `pixel_mask` (B, H, W), True for
    a pixel of either and False for padding, by default True; `track_states` (B, Q, D) and `track_boxes` (B,
    Q, 4), the last of `decoder_outputs` and of `decoder_boxes` of the frame before. For the first frame it is
    the previous one too, with any state.

    Outputs as of `DeformableDETR`: `encoder_sequence_output`, `decoder_sequence_output` (B, Q, D),
    `decoder_outputs` (B, L, Q, D), `decoder_boxes` (B, L, Q, 4), around centres as parts of the image; and
    `track_outputs` (B, L, Q, D) of the second decoder, with `expected_boxes` (B, Q, 4), where the objects of
    `track_boxes` are now.

    >>> model = keras_tfm.models.TransTrack.from_size("tiny", image_size=32)
    >>> images, states, boxes = np.zeros((1, 32, 32, 3)), np.zeros((1, 16, 64)), np.full((1, 16, 4), 0.5)
    >>> frames = {"images": images, "previous_images": images}
    >>> model(frames | {"track_states": states, "track_boxes": boxes})["expected_boxes"].shape
    TensorShape([1, 16, 4])
    """

    config_class = TransTrackConfig

    def __init__(self, config: TransTrackConfig, name: str = "transtrack", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        images = backbone.input["images"]
        inputs = {
            "images": images,
            "previous_images": keras.Input(images.shape[1:], name="previous_images"),
            "pixel_mask": pixel_mask,
            "track_states": keras.Input((config.num_queries, config.dim), name="track_states"),
            "track_boxes": keras.Input((config.num_queries, 4), name="track_boxes"),
        }
        previous, _ = on_images(backbone, inputs["previous_images"])
        maps, previous = (last_maps(x, config.num_maps) for x in (backbone.maps, previous))
        states, boxes = inputs["track_states"], inputs["track_boxes"]
        outputs = tracked(config, trace, maps, previous, pixel_mask, states, boxes)
        super().__init__(config, inputs, outputs, trace, name=name, **kwargs)
        self.maps = backbone.maps


def tracked(config, trace, maps, previous_maps, pixel_mask, track_states, track_boxes):
    """The outputs of a `TransTrack`, by their names, of the maps of two frames and a state."""
    projections = projections_of(config, config.num_groups)
    combine = Convolution(config.dim, 1, name="encoder_combination")
    levels = [
        combine(ops.concatenate(pair, axis=-1))
        for pair in zip(levels_of(projections, maps), levels_of(projections, previous_maps), strict=True)
    ]
    encoder = encoded_levels(config, levels, pixel_mask, trace)
    numbers = range(config.decoder_sizes[0])
    decoder = [decoder_block(config, encoder.grids, i) for i in numbers]
    table = LearnedVectors(config.num_queries, 2 * config.dim, name="decoder_queries")(encoder.x)
    places, x = ops.split(table, 2, axis=-1)  # where the queries look first, and what they begin with
    references, heads = ops.sigmoid(Dense(2, name="decoder_references")(places)), box_heads(config)
    states, boxes = refined(
        trace, decoder, heads, x, references, encoder.shares, lambda _: None, encoder.context
    )
    track = [decoder_block(config, encoder.grids, i, "track") for i in numbers]
    context = {**encoder.context, "references": on_levels(track_boxes, encoder.shares)}
    x = trace.run("track", track, track_states, **about_queries(None, context))
    return {
        "encoder_sequence_output": encoder.x,
        "decoder_sequence_output": trace.hidden_states["decoder"][-1],
        "decoder_outputs": states,
        "decoder_boxes": boxes,
        "track_outputs": ops.stack(trace.hidden_states["track"][1:], axis=1),
        "expected_boxes": corrected(track_boxes, heads[-1](x)),
    }


# Sun et al. 2020, section 4.1: 500 queries. tiny is this package's own.
TransTrack.sizes = {
    "tiny": TransTrackConfig(
        **TINY,
        dim=64,
        num_layers=1,
        num_decoder_layers=2,
        num_heads=4,
        intermediate_dim=128,
        dropout=0.0,
        num_maps=2,
        num_levels=2,
        num_points=2,
        num_decoder_points=2,
    ),
    "50": TransTrackConfig(),
}
