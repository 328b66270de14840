"""RelTR (Cong et al. 2023) by its authors' names, of the features that a backbone gives. Their mask is True
for padding.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.detr import joint_attention_rows
from keras_tfm.convert.keymap import (
    CONVOLVED,
    TRANSPOSED,
    Transform,
    batch_norm,
    convolution,
    feedforward,
    linear,
    norm,
    read_state,
    weight,
)
from keras_tfm.heads import RelationDetector
from keras_tfm.models import RelTR, RelTRConfig
from keras_tfm.training.model import Model
from tests.parity.references.detr import TRANSFORMER_FIELDS
from tests.parity.references.state import check_arguments, fields_of, rows_before_channels

OTHERS = {"num_rel_classes", "backbone_channels", "mask_conv", "mask_fc"}
FIELDS = {**TRANSFORMER_FIELDS, "num_entities": "num_queries", "num_triplets": "num_triplets"}
STRIDE = 4  # of the smallest backbone, which stands in for the one that theirs has elsewhere
CELLS = 8  # a side of the maps that their dense layers read
NAMES = {"": "pred_", "subject_": "sub_", "object_": "obj_", "predicate_": "rel_"}
# {our part: (their attention, their norm)}
ENTITY = {
    "attention": ("self_attn_entity", "norm2_entity"),
    "context_attention": ("cross_attn_entity", "norm1_entity"),
}


def rows(channels):
    """The whole table, of a head for maps with this number of channels at last."""
    encoder = "transformer.encoder.layers.{}"
    table = joint_attention_rows("encoder_block_{}/attention/branch/attention", f"{encoder}.self_attn")
    table += norm("encoder_block_{}/attention/norm", f"{encoder}.norm1")
    table += feedforward("encoder_block_{}/feedforward", f"{encoder}.linear1", f"{encoder}.linear2")
    table += norm("encoder_block_{}/feedforward/norm", f"{encoder}.norm2")
    table += block_rows("decoder_block_{}", "entity", ENTITY)
    table += part_rows("triplet_block_{}/attention", "self_attn_so", "norm2_so")
    for side, short in (("subject", "sub"), ("object", "obj")):
        parts = {
            "context_attention": (f"cross_attn_{short}", f"norm1_{short}"),
            "entity_attention": (f"cross_{short}_entity", f"norm2_{short}"),
        }
        table += block_rows(f"triplet_block_{{}}/{side}_block", short, parts)
    for prefix, short in (("", "entity"), ("subject_", "sub"), ("object_", "obj")):
        table += linear(f"{prefix}class_head", f"{short}_class_embed")
        table += linear(f"{prefix}box_head/layer_{{}}", f"{short}_bbox_embed.layers.{{}}")
    for i, place in ((0, 1), (3, 5)):
        table += convolution(f"map_head/layer_{i}", f"so_mask_conv.{place}")
        table += batch_norm(f"map_head/layer_{i + 1}", f"so_mask_conv.{place + 2}")
    order = rows_before_channels(channels, CELLS)
    back = np.argsort(order)
    reordered = Transform(lambda x: x[:, order].T, lambda x, _: [x.T[:, back]])
    return [
        *table,
        *weight("encoder_projection/convolution/kernel", "input_proj.weight", CONVOLVED),
        *weight("encoder_projection/convolution/bias", "input_proj.bias"),
        *weight("decoder_queries/table", "entity_embed.weight"),
        *weight("triplet_queries/table", "triplet_embed.weight"),
        *weight("triplet_roles/table", "so_embed.weight"),
        *weight("map_head/layer_6/kernel", "so_mask_fc.0.weight", reordered),
        *weight("map_head/layer_6/bias", "so_mask_fc.0.bias"),
        *weight("map_head/layer_7/kernel", "so_mask_fc.2.weight", TRANSPOSED),
        *weight("map_head/layer_7/bias", "so_mask_fc.2.bias"),
        *linear("predicate_head/layer_{}", "rel_class_embed.layers.{}"),
    ]


def block_rows(ours, theirs, parts):
    """The rows of a block with these `parts` and a feed-forward layer, which end with `theirs`."""
    layer = "transformer.decoder.layers.{}"
    table = feedforward(f"{ours}/feedforward", f"{layer}.linear1_{theirs}", f"{layer}.linear2_{theirs}")
    table += norm(f"{ours}/feedforward/norm", f"{layer}.norm3_{theirs}")
    return table + [row for part, keys in parts.items() for row in part_rows(f"{ours}/{part}", *keys)]


def part_rows(ours, attention, their_norm):
    """The rows of one attention with its norm."""
    layer = "transformer.decoder.layers.{}"
    table = joint_attention_rows(f"{ours}/branch/attention", f"{layer}.{attention}")
    return table + norm(f"{ours}/norm", f"{layer}.{their_norm}")


def read(arguments, weights, shapes):
    """The model for their arguments and weights and inputs of these `shapes`, and its outputs by their
    names.
    """
    check_arguments(arguments, {*FIELDS, *OTHERS, "num_classes"}, "RelTR")
    _, rows_, columns, channels = shapes["features_in"]
    config = RelTRConfig(
        image_size=(STRIDE * rows_, STRIDE * columns),
        backbone_config={"stem_dim": 4, "dims": (channels,), "depths": (1,), "block": "basic"},
        **fields_of({name: x for name, x in arguments.items() if name in FIELDS}, FIELDS),
    )
    backbone = RelTR(config)
    filters, widths = arguments["mask_conv"], arguments["mask_fc"]
    detector = RelationDetector(
        backbone, arguments["num_classes"], arguments["num_rel_classes"], filters, widths
    )
    position = backbone.get_layer("encoder_position").output
    given = [backbone.maps[-1], position, detector.input["pixel_mask"]]
    parts = {"predictions": detector.predictions, "maps": detector.map_features, "all": backbone.output}
    inner = Model(given, parts)
    read_state(inner, weights, rows(filters[-1]))

    kinds = {"features_in": "float32", "mask": "bool", "position": "float32"}
    inputs = {name: keras.Input(shapes[name][1:], dtype=kind, name=name) for name, kind in kinds.items()}
    shown = ops.repeat(ops.repeat(ops.logical_not(inputs["mask"]), STRIDE, axis=1), STRIDE, axis=2)
    found = inner([inputs["features_in"], inputs["position"], shown])
    features = found["all"]
    triplets = features["triplet_outputs"]
    both = ops.reshape(triplets, (-1, *triplets.shape[1:3], 2 * config.dim))  # (B, L, T, 2 D)
    outputs = {
        "features/memory": ops.reshape(features["encoder_sequence_output"], (-1, rows_, columns, config.dim)),
        "features/entities": ops.swapaxes(features["decoder_outputs"], 0, 1),
        "features/triplets": ops.swapaxes(both, 0, 1),
        "features/attention_maps": ops.swapaxes(features["triplet_maps"], 0, 1),
        "features/mask_features": ops.swapaxes(found["maps"], 0, 1),
    }
    for name, x in found["predictions"].items():
        prefix = name.removesuffix("logits").removesuffix("boxes")
        theirs = NAMES[prefix] + name.removeprefix(prefix)
        outputs |= {f"features/aux_{i}_{theirs}": x[:, i] for i in range(x.shape[1] - 1)}
        outputs[theirs] = x[:, -1]
    return Model(inputs, outputs), outputs
