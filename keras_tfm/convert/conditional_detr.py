"""Conditional DETR's checkpoints by transformers' names (Meng et al. 2021), around a ResNet."""

from keras_tfm.convert import detr
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import linear, norm
from keras_tfm.heads import ReferencedDetector
from keras_tfm.models import ConditionalDETR

PROJECTIONS = {
    "query": "qcontent",
    "key": "kcontent",
    "value": "v",
    "query_position": "qpos",
    "key_position": "kpos",
    "query_place": "qpos_sine",
}


def rows(config):
    """The table of a configuration."""
    table = detr.map_rows(config) + detr.block_rows("encoder") + detr.feedforward_rows("decoder")
    table += linear("decoder_references/layer_{}", "decoder.ref_point_head.layers.{}")
    table += linear("decoder_place_scale/layer_{}", "decoder.query_scale.layers.{}")
    theirs = "decoder.layers.{}"
    for name, short, key in (("attention", "sa", "self_attn"), ("context_attention", "ca", "encoder_attn")):
        ours = f"decoder_block_{{}}/{name}"
        for part, their_part in PROJECTIONS.items():
            table += linear(f"{ours}/branch/projections/{part}", f"{theirs}.{short}_{their_part}_proj")
        table += linear(f"{ours}/branch/output", f"{theirs}.{key}.out_proj")
        table += norm(f"{ours}/norm", f"{theirs}.{key}_layer_norm")
    return table


FAMILY = Family(
    model_type="conditional_detr",
    backbone="ConditionalDetrModel",
    model=ConditionalDETR,
    prefix="model.",
    fields=detr.FAMILY.fields,
    default_entries=detr.FAMILY.default_entries,
    derived_entries=detr.FAMILY.derived_entries,
    fixed_entries=detr.FAMILY.fixed_entries,
    fixed_fields=detr.FAMILY.fixed_fields,
    shapes=detr.FAMILY.shapes,
    rows=rows,
    num_blocks=detr.FAMILY.num_blocks,
    heads={
        "ConditionalDetrForObjectDetection": Head(
            ReferencedDetector,
            detr.FAMILY.heads["DetrForObjectDetection"].rows,
            options={"num_classes": LABELS},
        )
    },
    renamed_keys=detr.TIMM,
    buffers=detr.FAMILY.buffers,
)
