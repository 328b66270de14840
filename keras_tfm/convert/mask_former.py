"""MaskFormer's checkpoints by transformers' names (Cheng et al. 2021), around a Swin or a ResNet.

Their Swin has a norm after the last stage that has no effect: it is not read, and written with its initial
values. Their configuration has no image size for a ResNet: an additional entry stores ours.
"""

import dataclasses
import math

import numpy as np

from keras_tfm.convert import resnet, swin
from keras_tfm.convert.detr import block_rows
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import CONVOLVED, batch_counts, convolution, linear, norm, renamed, weight
from keras_tfm.heads import MaskClassifier
from keras_tfm.models import MaskFormer
from keras_tfm.models.detection.backbones import OF_DETECTOR
from keras_tfm.training.safetensors import CheckpointError

ENCODER, PYRAMID = "pixel_level_module.encoder.", "pixel_level_module.decoder."
LAST_NORM = f"{ENCODER}model.layernorm."
SWIN = dataclasses.replace(
    swin.FAMILY,
    fields={**swin.FAMILY.fields, "window": "window_size"},  # the maps may have any size
    fixed_fields={"fixed_windows": True},
)
# {our backbone: its family}, and {our backbone: what stands before its keys}
BACKBONES = {"Swin": SWIN, "ResNet": resnet.FAMILY}
PREFIXES = {"Swin": f"{ENCODER}model.", "ResNet": ENCODER}
KINDS = {"swin": "Swin", "maskformer-swin": "Swin", "resnet": "ResNet"}
NUM_STAGES = 4  # theirs reads the maps of this number of stages of a Swin


def family_of(config):
    """The family of the configuration's backbone; ValueError for another one."""
    if config.backbone not in BACKBONES:
        names = ", ".join(BACKBONES)
        raise ValueError(f"{_model(config)} has only `backbone` {names}; it is {config.backbone!r}.")
    return BACKBONES[config.backbone]


def _model(config):
    """The name of their model for our configuration."""
    return f"{type(config).__name__.removesuffix('Config')}Model"


def read_backbone(entries):
    """(The name of our backbone, its configuration) of their entry; CheckpointError for another."""
    theirs = entries.get("backbone_config")
    kind = theirs.get("model_type") if isinstance(theirs, dict) else None
    if kind not in KINDS:
        names = ", ".join(KINDS)
        raise CheckpointError("config.json", "backbone_config.model_type", f"one of {names}", repr(kind))
    name = KINDS[kind]
    if name == "ResNet":
        theirs = {"image_size": entries.get("image_size", MaskFormer.config_class.image_size), **theirs}
    config = BACKBONES[name].read_config(theirs, "config.json")
    stages = [f"stage{i + 1}" for i in range(len(config.depths))]
    given = theirs.get("out_features") or (stages if name == "Swin" else stages[-1:])
    if given != stages or (name == "Swin" and len(stages) != NUM_STAGES):
        raise CheckpointError("config.json", "backbone_config.out_features", f"{stages}", f"{given}"[:80])
    return name, config


def write_backbone(config):
    """Their entry for our backbone; ValueError if they have none for it."""
    family = family_of(config)
    stages = [f"stage{i + 1}" for i in range(len(config.of_backbone.depths))]
    if config.backbone == "Swin" and len(stages) != NUM_STAGES:
        raise ValueError(f"{_model(config)} takes a Swin of {NUM_STAGES} stages; it has {len(stages)}.")
    entries = family.write_config(config.of_backbone)
    if config.backbone == "ResNet":
        entries.pop("image_size")  # an entry of the detector stores it
    return {**entries, "out_features": stages}


def read_own(name):
    """A function that reads the field `name` of our backbone's configuration."""

    def read(_, entries):
        value = getattr(read_backbone(entries)[1], name)
        return list(value) if isinstance(value, tuple) else value  # JSON has lists

    return read


def read_fields(_, entries):
    """The fields of our backbone's configuration without the fields of the detector's."""
    fields = dataclasses.asdict(read_backbone(entries)[1])
    return {name: value for name, value in fields.items() if name not in OF_DETECTOR}


def of_backbone(read):
    """The entry of the backbone, read by the function `read`."""
    return Entry("backbone_config", read, write_backbone)


BACKBONE_FIELDS = {
    "backbone": of_backbone(lambda _, entries: read_backbone(entries)[0]),
    "backbone_config": of_backbone(read_fields),
    "image_size": of_backbone(read_own("image_size")),
    "num_channels": of_backbone(read_own("num_channels")),
}


def backbone_rows(config, prefixes):
    """The rows of the backbone, before whose keys stand `prefixes`, {our backbone: the prefix}."""
    return renamed(family_of(config).of(config.of_backbone).rows, "", prefixes[config.backbone])


def rows(config):
    """The table of a configuration."""
    table = backbone_rows(config, PREFIXES)
    table += norm("map_norm_{}", f"{ENCODER}hidden_states_norms.{{}}")
    table += normalized("pyramid_stem", f"{PYRAMID}fpn.stem")
    sides = len(config.of_backbone.depths) - 1
    for i in range(sides):  # theirs counts the maps from the smallest one
        theirs = f"{PYRAMID}fpn.layers.{sides - 1 - i}"
        table += normalized(f"pyramid_side_{i}", f"{theirs}.proj")
        table += normalized(f"pyramid_block_{i}", f"{theirs}.block")
    table += convolution("mask_features", f"{PYRAMID}mask_projection")
    table += weight(
        "decoder_projection/convolution/kernel", "transformer_module.input_projection.weight", CONVOLVED
    )
    table += weight("decoder_projection/convolution/bias", "transformer_module.input_projection.bias")
    table += weight("decoder_queries/table", "transformer_module.queries_embedder.weight")
    return table + renamed(block_rows("decoder"), "", "transformer_module.")


def normalized(ours, theirs):
    """The rows of a convolution and its norm."""
    return [*convolution(ours, f"{theirs}.0"), *norm(f"{ours}/norm", f"{theirs}.1")]


def buffers_of(tensors):
    """The tensors that theirs has in addition to ours, also indices of positions."""
    found = without_effect(tensors, LAST_NORM)
    for key, table in tensors.items():
        if key.endswith("relative_position_bias_table"):
            side = (math.isqrt(len(table)) + 1) // 2
            found[key.replace("bias_table", "index")] = places_in_table(side)
    return found


def without_effect(tensors, last_norm):
    """What theirs has in addition to ours: counts of batches, a Swin's `last_norm`, weights of a loss."""
    found = batch_counts(tensors)
    last = [key for key in tensors if "hidden_states_norms" in key]
    if last:
        key, width = max(last), len(tensors[max(last)])
        before = key.partition(ENCODER)[0] + last_norm
        found |= {f"{before}weight": np.ones(width, "float32"), f"{before}bias": np.zeros(width, "float32")}
    if "class_predictor.bias" in tensors:
        weights = np.ones_like(tensors["class_predictor.bias"])
        weights[-1] = 0.1
        found["criterion.empty_weight"] = weights
    return found


def places_in_table(side):
    """Where a table of (2 side - 1)^2 distances has each pair of a window's cells: (T, T)."""
    cells = np.stack(np.divmod(np.arange(side**2), side))  # (2, T)
    rows_apart, columns_apart = cells[:, :, None] - cells[:, None] + side - 1
    return (2 * side - 1) * rows_apart + columns_apart


FAMILY = Family(
    model_type="maskformer",
    backbone="MaskFormerModel",
    model=MaskFormer,
    prefix="model.",
    fields={
        **BACKBONE_FIELDS,
        "num_queries": "decoder_config.num_queries",
        "dim": "decoder_config.d_model",
        "num_layers": "decoder_config.decoder_layers",
        "num_heads": "decoder_config.decoder_attention_heads",
        "intermediate_dim": "decoder_config.decoder_ffn_dim",
        "dropout": "decoder_config.dropout",
        "attention_dropout": "decoder_config.attention_dropout",
        "activation_dropout": "decoder_config.activation_dropout",
        "activation": "decoder_config.activation_function",
        "pyramid_dim": "fpn_feature_size",
        "mask_dim": "mask_feature_size",
    },
    nested_entries=("decoder_config",),
    derived_entries={
        "image_size": lambda config: config.image_size,
        "decoder_config.model_type": lambda _: "detr",
    },
    fixed_entries={"decoder_config.auxiliary_loss": False},  # with it their blocks get normalised states
    rows=rows,
    heads={
        "MaskFormerForInstanceSegmentation": Head(
            MaskClassifier,
            [*linear("class_head", "class_predictor"), *linear("mask_head/layer_{}", "mask_embedder.{}.0")],
            options={"num_classes": LABELS},
        )
    },
    buffers=(
        r"pixel_level_module\.encoder\.model\.layernorm\.(weight|bias)",
        r".*\.(num_batches_tracked|relative_position_index)",
        r"criterion\.empty_weight",
    ),
    buffers_of=buffers_of,
)
