"""Deformable DETR's checkpoints by transformers' names (Zhu et al. 2021), around a ResNet.

Their two-stage variant computes something else than ours and is refused. If their blocks share one head of
classes, as in a new model of theirs, ours gets several heads with the same values.
"""

import re

from keras_tfm.convert import detr
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import Row, Transform, convolution, linear, norm, weight
from keras_tfm.heads import ReferencedDetector
from keras_tfm.models import DeformableDETR

SAMPLED = {  # the parts of deformable attention
    "offsets": "sampling_offsets",
    "point_weights": "attention_weights",
    "values": "value_proj",
    "output": "output_proj",
}
ROW = Transform(lambda array: array[0], lambda array, _: [array[None]])


def rows(config):
    """The table of a configuration."""
    table = detr.backbone_rows(config)
    table += convolution("encoder_projection_{}", "input_proj.{}.0")
    table += norm("encoder_projection_{}/norm", "input_proj.{}.1")
    for level in range(config.num_levels):
        place = (level, level + 1, config.num_levels)
        table.append(Row(f"encoder_position_{level}/level", ("level_embed",), ROW, place))
    table += weight("decoder_queries/table", "query_position_embeddings.weight")
    table += linear("decoder_references", "reference_points")
    table += linear("decoder_box_head_{}/layer_{}", "decoder.bbox_embed.{}.layers.{}")
    table += sampling_rows("encoder", "attention", "self_attn") + detr.feedforward_rows("encoder")
    table += sampling_rows("decoder", "context_attention", "encoder_attn") + detr.feedforward_rows("decoder")
    return table + detr.attention_rows("decoder", "attention", "self_attn")


def sampling_rows(stack, name, key):
    """The rows of the deformable attention `name` in all blocks of a stack; `key` is their name of it."""
    ours, theirs = f"{stack}_block_{{}}", f"{stack}.layers.{{}}"
    table = norm(f"{ours}/{name}/norm", f"{theirs}.{key}_layer_norm")
    for part, their_part in SAMPLED.items():
        table += linear(f"{ours}/{name}/branch/{part}", f"{theirs}.{key}.{their_part}")
    return table


def stages_of(value, entries):
    """The number of stages whose maps are read; ValueError unless they are the last stages."""
    theirs = value or {}
    if theirs.get("model_type", "timm_backbone") == "timm_backbone":
        count = 4
        several = entries.get("num_feature_levels", 4) > 1
        stages = theirs.get("out_indices") or ([2, 3, 4] if several else [4])
    else:
        count = len(theirs["depths"])
        names = theirs.get("out_features") or [f"stage{count}"]
        stages = [int(name.removeprefix("stage")) for name in names]
    if list(stages) != [*range(count + 1 - len(stages), count + 1)] or not stages:
        raise ValueError
    return len(stages)


def write_backbone(config):
    """Their entries for our ResNet and for the maps that are read."""
    count = len(config.of_backbone.depths)
    stages = range(count + 1 - config.num_maps, count + 1)
    return {**detr.write_backbone(config), "out_features": [f"stage{stage}" for stage in stages]}


def copies(config):
    """Tensors that a file may contain twice: heads that all blocks share, and heads of corrected boxes."""
    count = config.decoder_sizes[0]
    boxes = [f"layers.{i}.{name}" for i in range(3) for name in ("weight", "bias")]
    if config.refines:
        ours = "{{prefix}}decoder.bbox_embed.{}.{}"
        return {f"bbox_embed.{i}.{x}": ours.format(i, x) for i in range(count) for x in boxes}
    parts = [("class_embed", x) for x in ("weight", "bias")] + [("bbox_embed", x) for x in boxes]
    return {f"{head}.{i}.{x}": f"{head}.0.{x}" for i in range(1, count) for head, x in parts}


def shared_classes(tensors):
    """The heads of classes that a file omits: their blocks share one, even if each has a head of boxes."""
    found = [re.fullmatch(r"model\.decoder\.bbox_embed\.(\d+)\.layers\.0\.bias", key) for key in tensors]
    first = {x: tensors[f"class_embed.0.{x}"] for x in ("weight", "bias") if f"class_embed.0.{x}" in tensors}
    return {f"class_embed.{match[1]}.{x}": value for match in found if match for x, value in first.items()}


FAMILY = Family(
    model_type="deformable_detr",
    backbone="DeformableDetrModel",
    model=DeformableDETR,
    prefix="model.",
    fields={
        **detr.FAMILY.fields,
        "backbone_config": Entry("backbone_config", detr.read_backbone, write_backbone),
        "num_maps": Entry("backbone_config", stages_of, write_backbone),
        "num_levels": "num_feature_levels",
        "num_points": "encoder_n_points",
        "num_decoder_points": "decoder_n_points",
        "refines": "with_box_refine",
    },
    default_entries={**detr.FAMILY.default_entries, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024},
    derived_entries=detr.FAMILY.derived_entries,
    fixed_entries={**detr.FIXED, "two_stage": False},
    fixed_fields={**detr.FAMILY.fixed_fields, "proposes": False},
    rows=rows,
    heads={
        "DeformableDetrForObjectDetection": Head(
            ReferencedDetector,
            [
                *linear("class_head", "class_embed.0"),
                *linear("class_head_{}", "class_embed.{}"),
                *linear("box_head/layer_{}", "bbox_embed.0.layers.{}"),
            ],
            options={"num_classes": LABELS},
        )
    },
    copies=copies,
    renamed_keys=detr.TIMM,
    default_tensors=shared_classes,
    buffers=detr.FAMILY.buffers,
)
