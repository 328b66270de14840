"""RT-DETR's checkpoints by transformers' names (Zhao et al. 2023), around a ResNet-vd.

Their `RTDetrModel` alone does not correct boxes and so has no heads for them; only folders of
`RTDetrForObjectDetection` have all weights of ours.
"""

import dataclasses
import itertools

from keras_tfm.convert import detr, resnet
from keras_tfm.convert.bart import STACKS
from keras_tfm.convert.deformable_detr import sampling_rows
from keras_tfm.convert.entries import Entry, our_activation, their_activation
from keras_tfm.convert.family import LABELS, Family, Head, labels_of, number_of_labels
from keras_tfm.convert.keymap import batch_counts, batch_norm, convolution, linear, norm, renamed, weight
from keras_tfm.heads import VarifocalDetector
from keras_tfm.models import RTDETR, ResNetVD
from keras_tfm.models.detection.backbones import OF_DETECTOR
from keras_tfm.models.detection.rt_detr import NUM_REPEATED

BACKBONE = "backbone.model."


def backbone_rows(config):
    """The rows of a ResNet-vd."""
    parts = {"stem_{}": "embedder.embedder.{}"}
    block, theirs = resnet.BLOCK, resnet.THEIRS
    parts[f"{block}/shortcut"] = f"{theirs}.shortcut"
    parts[f"{block}/shortcut/layer_1"] = f"{theirs}.shortcut.1"  # after a mean
    for i in range(2 if config.block == "basic" else 3):
        parts[f"{block}/branch/layer_{i}"] = f"{theirs}.layer.{i}"
    table = []
    for ours, key in parts.items():
        table += convolution(ours, f"{key}.convolution") + batch_norm(f"{ours}/norm", f"{key}.normalization")
    return renamed(table, theirs=BACKBONE)


def rows(config):
    """The table of a configuration."""
    table = backbone_rows(config.of_backbone) if config.backbone == "ResNetVD" else []
    for stack, key in (("encoder", "encoder_input_proj"), ("decoder", "decoder_input_proj")):
        table += normalized(f"{stack}_projection_{{}}", f"{key}.{{}}.0", f"{key}.{{}}.1")
    for row in detr.block_rows("encoder"):
        keys = (key.replace("encoder.", "encoder.encoder.0.", 1) for key in row.theirs)
        table.append(dataclasses.replace(row, theirs=tuple(keys)))
    for ours, key in (("lateral_{}", "lateral_convs.{}"), ("downsampling_{}", "downsample_convs.{}")):
        table += joined(ours, f"encoder.{key}")
    for ours, key in (("fusion_down_{}", "fpn_blocks.{}"), ("fusion_up_{}", "pan_blocks.{}")):
        table += fusion_rows(ours, f"encoder.{key}")
    table += linear("proposal_projection", "enc_output.0") + norm("proposal_norm", "enc_output.1")
    table += linear("proposal_class_head", "enc_score_head")
    table += linear("proposal_box_head/layer_{}", "enc_bbox_head.layers.{}")
    table += weight("decoder_queries/table", "weight_embedding.weight")
    table += weight("decoder_denoising/table", "denoising_class_embed.weight")
    table += linear("decoder_position/layer_{}", "decoder.query_pos_head.layers.{}")
    table += linear("decoder_box_head_{}/layer_{}", "decoder.bbox_embed.{}.layers.{}")
    table += detr.attention_rows("decoder", "attention", "self_attn")
    table += sampling_rows("decoder", "context_attention", "encoder_attn")
    return table + detr.feedforward_rows("decoder")


def fusion_rows(ours, theirs):
    """The rows of a fusion, whose blocks we count from 1 and they from 0."""
    both = f"{ours}/layer_0"
    table = joined(f"{both}/branch/layer_0", f"{theirs}.conv1")
    table += joined(f"{both}/shortcut", f"{theirs}.conv2")
    for i in range(NUM_REPEATED):
        block, their_block = f"{both}/branch/layer_{i + 1}", f"{theirs}.bottlenecks.{i}"
        table += joined(f"{block}/branch", f"{their_block}.conv1")
        table += joined(f"{block}/shortcut", f"{their_block}.conv2")
    return table + joined(f"{ours}/layer_1", f"{theirs}.conv3")


def joined(ours, theirs):
    """The rows of a convolution and its norm, which one layer of theirs holds."""
    return normalized(ours, f"{theirs}.conv", f"{theirs}.norm")


def normalized(ours, theirs, their_norm):
    """The rows of a convolution and its norm."""
    return convolution(ours, theirs) + batch_norm(f"{ours}/norm", their_norm)


OWN = dataclasses.replace(resnet.FAMILY, model_type="rt_detr_resnet", model=ResNetVD)


def read_backbone(value, entries):
    """The fields of our ResNet-vd for their configuration; ValueError for another backbone."""
    theirs = value or {"out_indices": [2, 3, 4]}
    config = OWN.read_config(theirs, "config.json")
    count = len(config.depths)
    names = theirs.get("out_features") or [f"stage{i}" for i in theirs.get("out_indices") or [count]]
    first = count - encoded(entries["encode_proj_layers"])
    is_last = list(names) == [f"stage{i + 1}" for i in range(first, count)]
    if theirs.get("model_type", OWN.model_type) != OWN.model_type or not is_last:
        raise ValueError
    check_widths(config)
    fields = dataclasses.asdict(config)
    return {name: value for name, value in fields.items() if name not in OF_DETECTOR}


def write_backbone(config):
    """Their configuration for our ResNet-vd and the maps that are read."""
    check_widths(config.of_backbone)
    entries = OWN.write_config(config.of_backbone)
    entries.pop("image_size")  # an entry of the detector stores it
    count = len(config.of_backbone.depths)
    return {**entries, "out_features": [f"stage{i + 1}" for i in range(count - config.num_maps, count)]}


def check_widths(config):
    """ValueError for widths of basic blocks with which theirs computes something else, or nothing."""
    widths = config.dims
    grows = all(a != b for a, b in itertools.pairwise(widths))
    if config.block == "basic" and (config.stem_dim != widths[0] or not grows):
        raise ValueError(
            "RTDetrResNetBackbone of basic blocks begins with the width of its stem, and each stage has "
            f"another one; `stem_dim` is {config.stem_dim} and `dims` are {widths}."
        )


def encoded(value, _=None):
    """The number of maps. Their model encodes the maps that `value` lists; ValueError unless it lists the
    last one alone.
    """
    (place,) = value
    return place + 1


def activation_entry(name, field):
    """Their entry for one of several activations."""
    return Entry(
        name,
        lambda value, _: our_activation(name, value),
        lambda config: their_activation(getattr(config, field)),
    )


def labels_entry(name):
    """Their entry for the names of the classes."""
    return Entry(
        name, lambda _, entries: number_of_labels(entries), lambda config: labels_of(config.num_classes)[name]
    )


def copies(config):
    """Tensors that a file may contain twice: heads, which their decoder and their detector share."""
    count = config.decoder_sizes[0]
    parts = [("class_embed", x) for x in ("weight", "bias")]
    parts += [("bbox_embed", f"layers.{i}.{x}") for i in range(3) for x in ("weight", "bias")]
    keys = [f"{head}.{i}.{x}" for i in range(count) for head, x in parts]
    return {key: f"model.decoder.{key}" for key in keys}


def shared_heads(tensors):
    """The heads of a file that has them by the detector's names alone."""
    names = ("class_embed.", "bbox_embed.")
    return {f"model.decoder.{key}": x for key, x in tensors.items() if key.startswith(names)}


def counts(tensors):
    """The counts of batches of all norms but the backbone's, which are frozen."""
    return {key: x for key, x in batch_counts(tensors).items() if BACKBONE not in key}


FAMILY = Family(
    model_type="rt_detr",
    backbone="RTDetrModel",
    model=RTDETR,
    prefix="model.",
    fields={
        "image_size": "image_size",  # theirs ignores it
        "num_maps": Entry("encode_proj_layers", encoded, lambda config: [config.num_maps - 1]),
        "num_channels": Entry(
            "backbone_config", lambda value, _: (value or {}).get("num_channels", 3), write_backbone
        ),
        "backbone_config": Entry("backbone_config", read_backbone, write_backbone),
        "num_classes": labels_entry("id2label"),
        "num_queries": "num_queries",
        **STACKS,
        "num_decoder_layers": Entry(
            "decoder_layers", lambda value, _: value, lambda config: config.decoder_sizes[0]
        ),
        "activation": "decoder_activation_function",
        "encoder_dim": Entry(
            "encoder_hidden_dim",
            lambda value, entries: None if value == entries["d_model"] else value,
            lambda config: config.encoder_width,
        ),
        "expansion": "hidden_expansion",
        "num_decoder_points": "decoder_n_points",
        "learns_queries": "learn_initial_query",
        "num_denoising": "num_denoising",
        "label_noise": "label_noise_ratio",
        "box_noise": "box_noise_scale",
        "encoder_activation": activation_entry("encoder_activation_function", "encoder_activation"),
        "fusion_activation": activation_entry("activation_function", "fusion_activation"),
    },
    default_entries={
        "backbone_config": None,
        "id2label": None,
        "d_model": 256,
        "encoder_hidden_dim": 256,
        "encode_proj_layers": [2],
        "encoder_attention_heads": 8,
        "decoder_attention_heads": 8,
        "encoder_ffn_dim": 1024,
        "decoder_ffn_dim": 1024,
    },
    derived_entries={
        "label2id": lambda config: labels_of(config.num_classes)["label2id"],
        "encoder_in_channels": lambda config: list(config.of_backbone.dims[-config.num_maps :]),
        "decoder_in_channels": lambda config: [config.encoder_width] * config.num_maps,
        "num_feature_levels": lambda config: config.num_maps,
        "feat_strides": lambda config: [
            2 ** (2 + i) for i in range(len(config.of_backbone.depths))[-config.num_maps :]
        ],
        "freeze_backbone_batch_norms": lambda _: True,
    },
    fixed_entries={
        "is_encoder_decoder": True,
        "with_box_refine": True,
        "normalize_before": False,
        "layer_norm_eps": 1e-5,
        "batch_norm_eps": 1e-5,
        "positional_encoding_temperature": 10_000,
        "eval_size": None,
        "anchor_image_size": None,
    },
    fixed_fields={"backbone": "ResNetVD"},
    rows=rows,
    heads={
        "RTDetrForObjectDetection": Head(
            VarifocalDetector,
            linear("class_head_{}", "model.decoder.class_embed.{}"),
            options={"num_classes": LABELS},
        )
    },
    copies=copies,
    renamed_keys={  # from the names that transformers 5 has within its models
        ".o_proj.": ".out_proj.",
        ".mlp.fc1.": ".fc1.",
        ".mlp.fc2.": ".fc2.",
        "encoder.aifi.": "encoder.encoder.",
    },
    default_tensors=shared_heads,
    buffers=detr.FAMILY.buffers,
    buffers_of=counts,
)
