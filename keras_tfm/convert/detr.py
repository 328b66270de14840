"""DETR's checkpoints by transformers' names (Carion et al. 2020), around a ResNet.

Their configuration has timm's name of the backbone, or a configuration of their own ResNet; we write the
latter, which does not need timm. With `auxiliary_loss` their model gives other outputs: it passes normalised
states to the next block of the decoder, whereas the paper, and our model, only normalise the outputs. Such
folders are refused.
"""

import dataclasses

from keras_tfm.convert import resnet
from keras_tfm.convert.bart import STACKS
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import (
    CONVOLVED,
    TRANSPOSED,
    Row,
    convolution,
    feedforward,
    linear,
    norm,
    weight,
)
from keras_tfm.heads import ObjectDetector, PanopticDetector
from keras_tfm.models import DETR
from keras_tfm.models.detection.backbones import OF_DETECTOR

BACKBONE = "backbone.conv_encoder.model."
ATTENTIONS = {
    "encoder": {"attention": "self_attn"},
    "decoder": {"attention": "self_attn", "context_attention": "encoder_attn"},
}
# {transformers' name of a part of a ResNet: timm's}; the parts of the stem come first.
TIMM = {
    f"{BACKBONE}conv1.": f"{BACKBONE}embedder.embedder.convolution.",
    f"{BACKBONE}bn1.": f"{BACKBONE}embedder.embedder.normalization.",
    **{f"{BACKBONE}layer{i + 1}.": f"{BACKBONE}encoder.stages.{i}.layers." for i in range(4)},
    ".downsample.0.": ".shortcut.convolution.",
    ".downsample.1.": ".shortcut.normalization.",
    **{f".conv{i + 1}.": f".layer.{i}.convolution." for i in range(3)},
    **{f".bn{i + 1}.": f".layer.{i}.normalization." for i in range(3)},
}

# What DETR's variants compute in one way alone
FIXED = {"is_encoder_decoder": True, "position_embedding_type": "sine", "dilation": False}


def rows(config):
    """The table of weights for a configuration."""
    return [*map_rows(config), *block_rows("encoder"), *block_rows("decoder")]


def map_rows(config):
    """The rows outside of blocks, also of DETR's variants: backbone, projection of its map, queries."""
    table = backbone_rows(config)
    table += weight("encoder_projection/convolution/kernel", "input_projection.weight", CONVOLVED)
    table += weight("encoder_projection/convolution/bias", "input_projection.bias")
    return table + weight("decoder_queries/table", "query_position_embeddings.weight")


def backbone_rows(config):
    """The rows of the backbone, a ResNet."""
    table = resnet.resnet_rows(config.of_backbone) if config.backbone == "ResNet" else ()
    return [dataclasses.replace(row, theirs=tuple(BACKBONE + key for key in row.theirs)) for row in table]


def block_rows(stack):
    """The rows of the blocks of the encoder, or of the decoder with the norm after it."""
    table = feedforward_rows(stack)
    for name, key in ATTENTIONS[stack].items():
        table += attention_rows(stack, name, key)
    return table


def attention_rows(stack, name, key):
    """The rows of the attention `name` in all blocks of a stack; `key` is their name of it."""
    ours, theirs = f"{stack}_block_{{}}/{name}", f"{stack}.layers.{{}}.{key}"
    table = norm(f"{ours}/norm", f"{theirs}_layer_norm")
    for part in ("query", "key", "value"):
        table += linear(f"{ours}/branch/attention/projections/{part}", f"{theirs}.{part[0]}_proj")
    return table + linear(f"{ours}/branch/attention/output", f"{theirs}.out_proj")


def feedforward_rows(stack):
    """The rows of a stack's feed-forward layers and, for a decoder, of the norm after it."""
    ours, theirs = f"{stack}_block_{{}}/feedforward", f"{stack}.layers.{{}}"
    table = norm("decoder_norm", "decoder.layernorm") if stack == "decoder" else []
    table += feedforward(ours, f"{theirs}.fc1", f"{theirs}.fc2")
    return table + norm(f"{ours}/norm", f"{theirs}.final_layer_norm")


def joint_attention_rows(ours, theirs):
    """An attention and a `torch.nn.MultiheadAttention`, whose projections are one matrix."""
    table = linear(f"{ours}/output", f"{theirs}.out_proj")
    for i, part in enumerate(("query", "key", "value")):
        path, third = f"{ours}/projections/{part}", (i, i + 1, 3)
        table.append(Row(f"{path}/kernel", (f"{theirs}.in_proj_weight",), TRANSPOSED, third))
        table.append(Row(f"{path}/bias", (f"{theirs}.in_proj_bias",), part=third))
    return table


def read_backbone(value, entries):
    """The fields of our ResNet for their configuration or timm's name; ValueError for another backbone."""
    theirs = value or {}
    if theirs.get("model_type", "timm_backbone") == "timm_backbone":
        architecture = theirs.get("backbone", entries.get("backbone"))
        stages = theirs.get("out_indices") or (entries.get("backbone_kwargs") or {}).get("out_indices") or [4]
        if (
            architecture not in resnet.TIMM.architectures
            or max(stages) != 4
            or (theirs.get("output_stride") or 32) != 32
        ):
            raise ValueError
        config = resnet.TIMM.size_of(architecture)
    else:
        config = resnet.FAMILY.read_config(theirs, "config.json")
        last = f"stage{len(config.depths)}"
        if theirs["model_type"] != "resnet" or last not in (theirs.get("out_features") or [last]):
            raise ValueError
    fields = dataclasses.asdict(config)
    return {name: value for name, value in fields.items() if name not in OF_DETECTOR}


def write_backbone(config):
    """Their configuration for our ResNet."""
    entries = resnet.FAMILY.write_config(config.of_backbone)
    entries.pop("image_size")  # an entry of the detector stores it
    # DetrForSegmentation needs the maps of all stages; the others take the last one.
    return {**entries, "out_features": [f"stage{i + 1}" for i in range(len(config.of_backbone.depths))]}


def read_channels(value, entries):
    """The channels of the backbone; transformers ignores the detector's own entry."""
    backbone = entries.get("backbone_config")
    return backbone.get("num_channels", value) if isinstance(backbone, dict) else value


def head_rows(prefix=""):
    """The rows of the heads for classes and boxes; `prefix` stands before their keys."""
    table = linear("class_head", f"{prefix}class_labels_classifier")
    return table + linear("box_head/layer_{}", f"{prefix}bbox_predictor.layers.{{}}")


def mask_rows():
    """The rows of the head for masks, by the names that transformers writes."""
    table = linear("mask_query", "bbox_attention.q_linear") + linear("mask_key", "bbox_attention.k_linear")
    blocks = ["mask_block_0", "mask_block_1", *(f"mask_stage_{i}" for i in range(3))]
    for i, name in enumerate(blocks, start=1):
        table += convolution(name, f"mask_head.lay{i}") + norm(f"{name}/norm", f"mask_head.gn{i}")
    for i in range(3):
        table += convolution(f"mask_side_{i}", f"mask_head.adapter{i + 1}")
    return table + convolution("mask_output", "mask_head.out_lay")


FAMILY = Family(
    model_type="detr",
    backbone="DetrModel",
    model=DETR,
    prefix="model.",
    fields={
        "image_size": "image_size",  # theirs ignores it
        "num_channels": Entry("num_channels", read_channels, lambda config: config.num_channels),
        "backbone_config": Entry("backbone_config", read_backbone, write_backbone),
        "num_queries": "num_queries",
        **STACKS,
    },
    default_entries={
        "num_channels": 3,
        "backbone": "resnet50",
        "backbone_config": None,
        "encoder_layers": 6,
        "decoder_layers": 6,
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
    },
    derived_entries={"use_timm_backbone": lambda _: False, "backbone": lambda _: None},
    fixed_entries={**FIXED, "auxiliary_loss": False},
    fixed_fields={"backbone": "ResNet"},
    rows=rows,
    heads={
        "DetrForObjectDetection": Head(
            ObjectDetector,
            head_rows(),
            options={"num_classes": LABELS},
        ),
        "DetrForSegmentation": Head(
            PanopticDetector,
            head_rows("detr.") + mask_rows(),
            arguments={"num_maps": 4},
            options={"num_classes": LABELS},
            prefix="detr.model.",
        ),
    },
    renamed_keys=TIMM,
    buffers=(r".*\.num_batches_tracked",),
)
