"""ViT's checkpoints (Dosovitskiy et al. 2021), with the names of transformers and of timm.

Those of transformers have the pooling layer of `ViTModel`, or a classifier. timm's DeiT without distillation
is a ViT too.
"""

import dataclasses

from keras_tfm.configs import brief
from keras_tfm.convert.arguments import Arguments
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import Transform, attention, feedforward, linear, norm, patches, weight
from keras_tfm.heads import Classifier
from keras_tfm.models import ViT
from keras_tfm.training.safetensors import CheckpointError

FIRST_OF_ONE = Transform(lambda array: array[0], lambda array, _: [array[None]])  # an axis for the batch


def attention_rows(ours, theirs):
    """The rows of a block's attention."""
    parts = ("attention.query", "attention.key", "attention.value", "output.dense")
    return attention(f"{ours}/attention", *(f"{theirs}.attention.{part}" for part in parts))


def encoder_rows(ours, theirs):
    """The rows of blocks with transformers' names, for ViT and its variants."""
    return [
        *attention_rows(ours, theirs),
        *norm(f"{ours}/attention/norm", f"{theirs}.layernorm_before"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.intermediate.dense", f"{theirs}.output.dense"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.layernorm_after"),
    ]


def embedding_rows(config):
    """The rows of the `PatchEncoder`, for patches of the configuration's size."""
    encoder = "patch_encoder"
    return [
        *patches(f"{encoder}/patches", "embeddings.patch_embeddings.projection", config.patch_size),
        *weight(f"{encoder}/class_token/embedding", "embeddings.cls_token"),
        *weight(f"{encoder}/position/embedding/embeddings", "embeddings.position_embeddings", FIRST_OF_ONE),
    ]


def rows(config):
    """The table of weights for a configuration."""
    return [
        *embedding_rows(config),
        *encoder_rows("block_{}", "encoder.layer.{}"),
        *norm("norm", "layernorm"),
        *linear("pooler", "pooler.dense"),
    ]


def timm_encoder_rows(ours, theirs):
    """The rows of blocks with timm's names."""
    return [
        *linear(f"{ours}/attention/branch/projections/query_key_value", f"{theirs}.attn.qkv"),
        *linear(f"{ours}/attention/branch/output", f"{theirs}.attn.proj"),
        *norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.mlp.fc1", f"{theirs}.mlp.fc2"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2"),
    ]


def timm_rows(config):
    """The table with timm's names and the classifier."""
    encoder = "patch_encoder"
    return [
        *patches(f"{encoder}/patches", "patch_embed.proj", config.patch_size),
        *weight(f"{encoder}/class_token/embedding", "cls_token"),
        *weight(f"{encoder}/position/embedding/embeddings", "pos_embed", FIRST_OF_ONE),
        *timm_encoder_rows("block_{}", "blocks.{}"),
        *norm("norm", "norm"),
        *weight("pooling/query", "attn_pool.latent"),
        *linear("pooling/attention/projections/query", "attn_pool.q"),
        *linear("pooling/attention/projections/key_value", "attn_pool.kv"),
        *linear("pooling/attention/output", "attn_pool.proj"),
        *norm("pooling/feedforward/norm", "attn_pool.norm"),
        *feedforward("pooling/feedforward", "attn_pool.mlp.fc1", "attn_pool.mlp.fc2"),
        *linear("head/output", "head"),
    ]


def config_of(arguments):
    """The configuration for timm's arguments; CheckpointError for those of another model."""
    own = {name: x for name, x in arguments.items() if name not in POOLING_ARGUMENTS}
    pooling = tuple(arguments.get(name, x) for name, x in POOLING_ARGUMENTS.items())
    if pooling not in POOLINGS.values():
        known = " or ".join(map(str, POOLINGS.values()))
        raise CheckpointError("timm", ", ".join(POOLING_ARGUMENTS), known, brief(pooling))
    config = ARGUMENTS.config_of(own)
    return dataclasses.replace(config, pooling=next(x for x in POOLINGS if POOLINGS[x] == pooling))


def arguments_of(config):
    """timm's arguments for a configuration; ValueError for one that timm does not have."""
    if config.pooling not in POOLINGS:
        known = ", ".join(POOLINGS)
        raise ValueError(f"timm's class computes only `pooling` {known}; it is {config.pooling!r}.")
    pooling = zip(POOLING_ARGUMENTS, POOLINGS[config.pooling], strict=True)
    return {**ARGUMENTS.arguments_of(config), **dict(pooling)}


def sides(size):
    """The (height, width) of a field."""
    return size if isinstance(size, tuple) else (size, size)


def side(axis):
    """A patch's height (axis 0) or width (axis 1) in a configuration."""
    return lambda config: sides(config.patch_size)[axis]


def num_patches(config):
    """The number of whole patches."""
    rows, columns = (size // side(axis)(config) for axis, size in enumerate(sides(config.image_size)))
    return rows * columns


MODEL = ViT
ARCHITECTURES = {
    f"vit_{name}_patch{size.partition('/')[2]}_{side}": size
    for name, sizes in {
        "tiny": ["Ti/16"],
        "small": ["S/32", "S/16"],
        "base": ["B/32", "B/16"],
        "large": ["L/32", "L/16"],
    }.items()
    for size in sizes
    for side in (224, 384)
}
ARCHITECTURES |= {
    "vit_huge_patch14_224": "H/14",
    "vit_giant_patch14_224": "g/14",
    "vit_gigantic_patch14_224": "G/14",
    "deit_tiny_patch16_224": "Ti/16",
    "deit_small_patch16_224": "S/16",
    "deit_base_patch16_224": "B/16",
    "deit_base_patch16_384": "B/16",
}
TIMM_FIELDS = {
    "img_size": "image_size",
    "patch_size": "patch_size",
    "in_chans": "num_channels",
    "embed_dim": "dim",
    "depth": "num_layers",
    "num_heads": "num_heads",
    "proj_drop_rate": "dropout",
    "attn_drop_rate": "dropout",
    "pos_drop_rate": "dropout",
    "drop_path_rate": "stochastic_depth",
}
ARGUMENTS = Arguments(
    ViT,
    fields=TIMM_FIELDS,
    ratios={"mlp_ratio": ("intermediate_dim", "dim")},
    fixed_entries={
        "qkv_bias": True,
        "qk_norm": False,
        "pos_embed": "learn",
        "no_embed_class": False,
        "reg_tokens": 0,
        "pre_norm": False,
        "final_norm": True,
        "dynamic_img_size": False,
    },
    fixed_fields={"activation": "gelu", "epsilon": 1e-6, "pooler": False},
)
# How a token or the patches are pooled: timm's arguments, and their values by our `pooling`.
POOLING_ARGUMENTS = {"global_pool": "token", "class_token": True, "fc_norm": None}
POOLINGS = {
    "class": ("token", True, None),
    "mean": ("avg", False, False),
    "attention": ("map", False, None),
}

FIELDS = {
    "image_size": "image_size",
    "patch_size": "patch_size",
    "num_channels": "num_channels",
    "num_layers": "num_hidden_layers",
    "dim": "hidden_size",
    "num_heads": "num_attention_heads",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "activation": "hidden_act",
    "epsilon": "layer_norm_eps",
}
SHAPES = {
    "embeddings.patch_embeddings.projection.weight": ("dim", "num_channels", side(0), side(1)),
    "embeddings.position_embeddings": (lambda _: 1, lambda config: num_patches(config) + 1, "dim"),
    "encoder.layer.0.intermediate.dense.bias": ("intermediate_dim",),
}

FAMILY = Family(
    model_type="vit",
    backbone="ViTModel",
    model=ViT,
    prefix="vit.",
    fields=FIELDS,
    default_entries={"layer_norm_eps": 1e-12},
    derived_entries={"attention_probs_dropout_prob": lambda config: config.dropout},
    fixed_entries={"qkv_bias": True, "pooler_act": "tanh"},
    fixed_fields={"pooling": "class"},
    shapes=SHAPES,
    parts={"pooler": "pooler."},
    rows=rows,
    heads={
        "ViTForImageClassification": Head(
            Classifier,
            linear("head/output", "classifier"),
            {"hidden_dim": None},
            {"num_classes": LABELS},
            missing_parts=("pooler",),
            refused_parts=("pooler",),
        ),
    },
)
