"""SegFormer's checkpoints, encoder (MiT), classifier and segmenter, by transformers' names."""

from keras_tfm.configs import brief
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head, Option, class_head, rate
from keras_tfm.convert.keymap import (
    POINTWISE,
    batch_counts,
    batch_norm,
    convolution,
    depthwise_kernel,
    linear,
    norm,
    weight,
)
from keras_tfm.heads import SemanticSegmenter
from keras_tfm.models import MiT
from keras_tfm.training.safetensors import CheckpointError

PARTS = ("query", "key", "value")
MAX_DECODER_DIM = 4_096


def rows(config):
    """The table of weights for a configuration."""
    ours, theirs = "stage_{}_block_{}", "encoder.block.{}.{}"
    attention, their_attention = f"{ours}/attention/branch", f"{theirs}.attention.self"
    keys = [f"{their_attention}.{part}" for part in PARTS]
    projections = f"{attention}/attention/projections"
    return [
        *linear(f"{projections}/query_key_value", *keys),  # if the map is not reduced
        *linear(f"{projections}/query", keys[0]),
        *linear(f"{projections}/key_value", *keys[1:]),
        *linear(f"{attention}/attention/output", f"{theirs}.attention.output.dense"),
        *convolution(f"{attention}/reduction", f"{their_attention}.sr"),
        *norm(f"{attention}/reduction/norm", f"{their_attention}.layer_norm"),
        *norm(f"{ours}/attention/norm", f"{theirs}.layer_norm_1"),
        *linear(f"{ours}/feedforward/branch/layer_0", f"{theirs}.mlp.dense1"),
        *convolution(f"{ours}/feedforward/branch/layer_1", f"{theirs}.mlp.dwconv.dwconv", depthwise_kernel()),
        *linear(f"{ours}/feedforward/branch/layer_2", f"{theirs}.mlp.dense2"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.layer_norm_2"),
        *convolution("stage_{}_embedding", "encoder.patch_embeddings.{}.proj"),
        *norm("stage_{}_embedding/norm", "encoder.patch_embeddings.{}.layer_norm"),
        *norm("stage_{}_norm", "encoder.layer_norm.{}"),
    ]


def ratios(config):
    """Their ratios for ours; ValueError for one that is not a whole number, as theirs must be."""
    if any(ratio % 1 for ratio in config.mlp_ratios):
        raise ValueError(f"SegformerConfig takes whole `mlp_ratios`; they are {config.mlp_ratios}.")
    return [int(ratio) for ratio in config.mlp_ratios]


def decoder_dim(entries):
    """The width of the decoder; it is checked before anything of that size is made."""
    dim = entries.get("decoder_hidden_size", 256)
    if type(dim) is not int or not 0 < dim <= MAX_DECODER_DIM:
        raise CheckpointError("config.json", "decoder_hidden_size", f"1 to {MAX_DECODER_DIM}", brief(dim))
    return dim


SEGMENTER = Head(
    SemanticSegmenter,
    [
        *linear("decoder/projection_{}", "decode_head.linear_c.{}.proj"),
        *weight("decoder/fuse/kernel", "decode_head.linear_fuse.weight", POINTWISE),
        *batch_norm("decoder/norm", "decode_head.batch_norm"),
        *linear("classes", "decode_head.classifier", transform=POINTWISE),
    ],
    {"decoder": "mlp"},
    {
        "num_classes": LABELS,
        "dim": Option(decoder_dim, lambda dim: {"decoder_hidden_size": dim}),
        "dropout": rate("classifier_dropout_prob"),
    },
)

FAMILY = Family(
    model_type="segformer",
    backbone="SegformerModel",
    model=MiT,
    prefix="segformer.",
    fields={
        "image_size": "image_size",  # theirs ignores it
        "num_channels": "num_channels",
        "dims": "hidden_sizes",
        "depths": "depths",
        "num_heads": "num_attention_heads",
        "patch_sizes": "patch_sizes",
        "strides": "strides",
        "reductions": "sr_ratios",
        "mlp_ratios": Entry("mlp_ratios", lambda value, _: value, ratios),
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "stochastic_depth": "drop_path_rate",
        "activation": "hidden_act",
    },
    derived_entries={"num_encoder_blocks": lambda config: len(config.depths)},
    fixed_entries={"reshape_last_stage": True},
    rows=rows,
    heads={
        "SegformerForImageClassification": class_head(),
        "SegformerForSemanticSegmentation": SEGMENTER,
    },
    buffers=(r".*\.num_batches_tracked",),
    buffers_of=batch_counts,
)
