"""Mask2Former's checkpoints by transformers' names (Cheng et al. 2022), around a Swin or a ResNet.

What their configuration says of the backbone is read as MaskFormer's. Their training may skip blocks of the
decoder, at the rate of the dropout; ours does not. Their weights of the loss are not read.
"""

from keras_tfm.convert.deformable_detr import ROW, sampling_rows
from keras_tfm.convert.detr import attention_rows, feedforward_rows, joint_attention_rows
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import Row, convolution, linear, norm, renamed, weight
from keras_tfm.convert.mask_former import (
    BACKBONE_FIELDS,
    ENCODER,
    PYRAMID,
    backbone_rows,
    normalized,
    without_effect,
    write_backbone,
)
from keras_tfm.heads import PointMaskClassifier
from keras_tfm.models import Mask2Former

PREFIXES = {"Swin": ENCODER, "ResNet": ENCODER}
LAST_NORM = f"{ENCODER}swin.layernorm."  # of a Swin; it has no effect
TRANSFORMER = "transformer_module."
NUM_LEVELS = 3  # that their encoder has
STRIDES = [4, 8, 16, 32]  # of the maps of their backbones: the first one is in their pyramid alone


def write_whole_backbone(config):
    """Their entry for our backbone; ValueError if they have none for it."""
    entries = write_backbone(config)
    if (count := len(config.of_backbone.depths)) != len(STRIDES):
        raise ValueError(f"Mask2FormerModel takes a backbone of {len(STRIDES)} stages; it has {count}.")
    return entries


def rows(config):
    """The table of a configuration."""
    table = backbone_rows(config, PREFIXES)
    for i in range(len(STRIDES)):
        table += norm(f"map_norm_{i}", f"{ENCODER}hidden_states_norms.stage{i + 1}")
    table += pixel_decoder_rows()
    table += weight("decoder_queries/table", f"{TRANSFORMER}queries_features.weight")
    table += weight("decoder_positions/table", f"{TRANSFORMER}queries_embedder.weight")
    table += convolution("decoder_projection_{}", f"{TRANSFORMER}input_projections.{{}}")
    table += level_rows("decoder_level_{}", f"{TRANSFORMER}level_embed.weight")
    return table + renamed(decoder_rows(), "", TRANSFORMER)


def level_rows(ours, theirs):
    """The rows of vectors of our levels, which are one matrix of theirs."""
    places = [(level, level + 1, NUM_LEVELS) for level in range(NUM_LEVELS)]
    return [Row(f"{ours.format(place[0])}/level", (theirs,), ROW, place) for place in places]


def pixel_decoder_rows():
    """The rows of the encoder of levels and of the features of pixels."""
    table = normalized("encoder_projection_{}", "input_projections.{}")
    table += level_rows("encoder_position_{}", "level_embed")
    table += sampling_rows("encoder", "attention", "self_attn") + feedforward_rows("encoder")
    table += normalized("pyramid_side_0", "adapter_1") + normalized("pyramid_block_0", "layer_1")
    return renamed(table + convolution("mask_features", "mask_projection"), "", PYRAMID)


def decoder_rows():
    """The rows of the decoder with its norm and the head of masks."""
    ours, theirs = "decoder_block_{}/context_attention", "decoder.layers.{}.cross_attn"
    table = joint_attention_rows(f"{ours}/branch/attention", theirs)
    table += norm(f"{ours}/norm", f"{theirs}_layer_norm")
    table += attention_rows("decoder", "attention", "self_attn") + feedforward_rows("decoder")
    return table + linear("mask_head/layer_{}", "decoder.mask_predictor.mask_embedder.{}.0")


FAMILY = Family(
    model_type="mask2former",
    backbone="Mask2FormerModel",
    model=Mask2Former,
    prefix="model.",
    fields={
        **{
            name: Entry(entry.name, entry.read, write_whole_backbone)
            for name, entry in BACKBONE_FIELDS.items()
        },
        "num_queries": "num_queries",
        "dim": "hidden_dim",
        # The first of their layers is the prediction before the first block.
        "num_layers": Entry(
            "decoder_layers", lambda value, _: value - 1, lambda config: config.num_layers + 1
        ),
        "num_heads": "num_attention_heads",
        "intermediate_dim": "dim_feedforward",
        "pyramid_dim": "feature_size",
        "num_encoder_layers": "encoder_layers",
        "encoder_intermediate_dim": "encoder_feedforward_dim",
        "mask_dim": "mask_feature_size",
        "dropout": "dropout",
        "activation": "activation_function",
    },
    derived_entries={"image_size": lambda config: config.image_size},
    fixed_entries={
        "pre_norm": False,
        "enforce_input_projection": False,
        "common_stride": STRIDES[0],
        "feature_strides": STRIDES,
    },
    fixed_fields={"num_levels": NUM_LEVELS},
    rows=rows,
    heads={
        "Mask2FormerForUniversalSegmentation": Head(
            PointMaskClassifier, linear("class_head", "class_predictor"), options={"num_classes": LABELS}
        )
    },
    renamed_keys={f"{ENCODER}swin.{part}.": f"{ENCODER}{part}." for part in ("embeddings", "encoder")},
    buffers=(
        r"pixel_level_module\.encoder\.swin\.layernorm\.(weight|bias)",
        r".*\.(num_batches_tracked|relative_position_index)",
        r"criterion\.empty_weight",
    ),
    buffers_of=lambda tensors: without_effect(tensors, LAST_NORM),
)
