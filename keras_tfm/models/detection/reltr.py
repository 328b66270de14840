"""RelTR of Cong et al. 2023, "RelTR: Relation Transformer for Scene Graph Generation": a DETR which also
finds triplets of a subject, a predicate and an object.

    entities -----> decoder block ----------------------------+--> ...
                                                              | keys and values
    subjects --+--> attention --+--> image --> entities --> feed-forward --> ...
    objects  --+    of both     +--> image --> entities --> feed-forward --> ...

A triplet is a pair of states, which share a position. Where both look in the image is an output: by these
maps and the states a `heads.RelationDetector` predicts the predicate. Neither stack ends with a norm.
Architecture only: there are no weights to read. Deviates from the authors' code in the first values of some
kernels, see `copy_contexts`.
"""

import dataclasses
from typing import Any

from keras import ops

from keras_tfm.layers.attention.multi_head import MultiHeadAttention
from keras_tfm.layers.attention.tap import recording
from keras_tfm.layers.base import WithoutMask
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.embeddings import LearnedVectors
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.positioned_block import PositionedAttention
from keras_tfm.models.detection.backbones import TINY
from keras_tfm.models.detection.base import (
    EPSILON,
    LearnedQueries,
    SetDetector,
    SetDetectorConfig,
    about_queries,
    copy_contexts,
    detr_block,
    encoded_map,
    start_of,
)


@dataclasses.dataclass(frozen=True)
class RelTRConfig(SetDetectorConfig):
    """`SetDetectorConfig`, whose `num_queries` are the entities', and the number of triplets."""

    num_triplets: LearnedQueries = 200


class RelTR(SetDetector):
    """Images in; one vector for each entity, and two for each triplet, out.

    Inputs as of `DETR`. Outputs: `encoder_sequence_output` (B, N, D); `decoder_sequence_output` (B, Q, D) and
    `decoder_outputs` (B, L, Q, D) of the Q entities, as of `DETR`; `triplet_outputs` (B, L, T, 2, D), the
    subject and the object of each triplet after each block, and `triplet_maps` (B, L, T, 2, rows, columns),
    the weights with which they looked at the encoded map, the mean over the heads.

    >>> model = keras_tfm.models.RelTR.from_size("tiny", image_size=32)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["triplet_maps"].shape
    TensorShape([1, 3, 16, 2, 4, 4])
    """

    config_class = RelTRConfig

    def __init__(self, config: RelTRConfig, name: str = "reltr", **kwargs: Any) -> None:
        backbone, pixel_mask, trace = start_of(config)
        encoder = encoded_map(config, backbone, pixel_mask, trace)
        context = encoder.context["context"]
        queries = LearnedVectors(config.num_queries, 2 * config.dim, name="decoder_queries")(context)
        entity_position, entities = ops.split(queries, 2, axis=-1)  # (B, Q, D)
        queries = LearnedVectors(config.num_triplets, 3 * config.dim, name="triplet_queries")(context)
        position, *sides = ops.split(queries, 3, axis=-1)  # (B, T, D)
        roles = LearnedVectors(2, name="triplet_roles")(context)  # (B, 2, D)
        tensors = {
            "position": position,
            "pair_position": ops.concatenate([position + roles[:, i : i + 1] for i in range(2)], axis=1),
            **encoder.context,
        }
        triplets = ops.concatenate(sides, axis=1)  # (B, 2 T, D)
        states = trace.hidden_states["triplet"] = [triplets]
        blocks, maps = trace.blocks.setdefault("triplet", []), []
        for i in range(config.decoder_sizes[0]):
            block = detr_block(config, "decoder", i)
            about = about_queries(entity_position, encoder.context)
            entities = trace.run("decoder", [block], entities, **about)
            blocks.append(triplet_block(config, i))
            triplets, looks = blocks[-1](triplets, entities=entities, **tensors)
            states.append(triplets)
            maps.append(looks)
        outputs = ops.stack(trace.hidden_states["decoder"][1:], axis=1)  # (B, L, Q, D)
        shape = (-1, len(maps), 2, config.num_triplets)
        triplets = ops.reshape(ops.stack(states[1:], axis=1), (*shape, config.dim))
        maps = ops.reshape(ops.stack(maps, axis=1), (*shape, *encoder.grid))
        outputs = {
            "encoder_sequence_output": context,
            "decoder_sequence_output": outputs[:, -1],
            "decoder_outputs": outputs,
            "triplet_outputs": ops.swapaxes(triplets, 2, 3),  # (B, L, T, 2, D)
            "triplet_maps": ops.swapaxes(maps, 2, 3),  # (B, L, T, 2, rows, columns)
        }
        super().__init__(config, backbone, pixel_mask, outputs, trace, name=name, **kwargs)
        for block in trace.blocks["decoder"]:
            copy_contexts(block)
        for block in blocks:
            copy_contexts(block.subject_block)
            copy_contexts(block.object_block)


class TripletBlock(WithoutMask):
    """One block of subjects and objects, (B, 2 T, D), all subjects first.

    `attention` is the part in which all attend to each other; the blocks of both sides have the parts
    `context_attention`, `entity_attention` and `feedforward`.
    """

    is_block = True  # read by `rematerialize`, and where learning rates or freezing depend on depth

    def __init__(self, attention, subject_block, object_block, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention
        self.subject_block = subject_block
        self.object_block = object_block

    def build(self, x_shape, entities_shape, context_shape):
        self.attention.build(x_shape)
        contexts = {"context_attention": context_shape, "entity_attention": entities_shape}
        for side in (self.subject_block, self.object_block):
            side.build(x_shape, {part: {"context": shape} for part, shape in contexts.items()})

    def call(self, x, entities, position, pair_position, context, context_position, mask=None, training=None):
        """(The states (B, 2 T, D), the weights with which they look at the `context` (B, N, D), the mean over
        the heads (B, 2 T, N)).

        `entities` are (B, Q, D), `position` (B, T, D) is a triplet's, `pair_position` (B, 2 T, D) the one in
        the attention of subjects and objects to each other.
        """
        x = self.attention(x, position=pair_position, training=training)
        image = {"context": context, "context_position": context_position, "mask": mask, "position": position}
        others = {"context": entities, "position": position}
        states, looks = [], []
        for side, half in zip((self.subject_block, self.object_block), ops.split(x, 2, axis=1), strict=True):
            weights: list = []
            with recording(lambda _, value, to=weights: to.append(value)):
                y = side(half, context_attention=image, entity_attention=others, training=training)
            states.append(y)
            looks.append(ops.mean(weights[0], axis=1))  # (B, T, N), of the side's first part
        return ops.concatenate(states, axis=1), ops.concatenate(looks, axis=1)


def triplet_block(config, index):
    """The `TripletBlock` of this number."""
    part = residuals(dropout=config.dropout, epsilon=EPSILON)
    _, num_heads, width = config.decoder_sizes

    def attention():
        return part(PositionedAttention(MultiHeadAttention(num_heads, dropout=config.attention_dropout)))

    def side():
        parts = {
            "context_attention": attention(),
            "entity_attention": attention(),
            "feedforward": part(FeedForward(width, config.activation, dropout=config.activation_dropout)),
        }
        return Block(parts)

    return TripletBlock(attention(), side(), side(), name=f"triplet_block_{index}")


# Cong et al. 2023, section 4.1, around the ResNet-50 of DETR. tiny is this package's own, for images of some
# 96 x 96; a cell of its map is 8 x 8 pixels.
RelTR.sizes = {
    "tiny": RelTRConfig(
        **{**TINY, "backbone_config": {**TINY["backbone_config"], "last_stride": 1}},
        num_triplets=16,
        dim=128,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        intermediate_dim=256,
        dropout=0.0,
    ),
    "50": RelTRConfig(),
}
