"""ViT's checkpoints (Dosovitskiy et al. 2021), with the names of transformers and of timm.

The checkpoints of transformers have the pooling layer of `ViTModel`, or a classifier. timm's DeiT without
distillation is a ViT too.
"""

from keras_tfm.configs import brief
from keras_tfm.convert.entries import Entry, ratios
from keras_tfm.convert.family import Family, class_head
from keras_tfm.convert.keymap import Transform, attention, feedforward, linear, norm, patches, weight
from keras_tfm.convert.timm import PATCHED_FIELDS, TimmFamily
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


def read_pooling(value, _):
    """Our `pooling` for timm's `global_pool`."""
    pooling = next((name for name, values in POOLINGS.items() if values["global_pool"] == value), None)
    if pooling is None:
        expected = ", ".join(str(values["global_pool"]) for values in POOLINGS.values())
        raise CheckpointError("config.json", "global_pool", f"one of {expected}", brief(value))
    return pooling


def write_pooling(name):
    """A function of our configuration: timm's argument `name` for its `pooling`; ValueError for another."""

    def write(config):
        if config.pooling not in POOLINGS:
            known = ", ".join(POOLINGS)
            raise ValueError(f"timm's class computes only `pooling` {known}; it is {config.pooling!r}.")
        return POOLINGS[config.pooling][name]

    return write


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
    **PATCHED_FIELDS,
    "dropout": ("proj_drop_rate", "attn_drop_rate", "pos_drop_rate"),
    "stochastic_depth": "drop_path_rate",
    "qkv_bias": "qkv_bias",
    **ratios("mlp_ratio", ["intermediate_dim"], "dim", "embed_dim"),
}
TIMM_FIXED = {
    "qk_norm": False,
    "pos_embed": "learn",
    "pre_norm": False,
    "final_norm": True,
    "dynamic_img_size": False,
}
# How a token or the patches are pooled: timm's arguments by our `pooling`.
POOLINGS = {
    "class": {"global_pool": "token", "class_token": True, "fc_norm": None},
    "mean": {"global_pool": "avg", "class_token": False, "fc_norm": False},
    "attention": {"global_pool": "map", "class_token": False, "fc_norm": None},
}
TIMM = TimmFamily(
    model=ViT,
    rows=timm_rows,
    architectures=ARCHITECTURES,
    fields={**TIMM_FIELDS, "pooling": Entry("global_pool", read_pooling, write_pooling("global_pool"))},
    derived_entries={name: write_pooling(name) for name in ("class_token", "fc_norm")},
    fixed_entries={**TIMM_FIXED, "no_embed_class": False, "reg_tokens": 0},
    fixed_fields={"activation": "gelu", "epsilon": 1e-6, "pooler": False},
)

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

FAMILY = Family(
    model_type="vit",
    backbone="ViTModel",
    model=ViT,
    prefix="vit.",
    fields={**FIELDS, "qkv_bias": "qkv_bias"},
    default_entries={"layer_norm_eps": 1e-12},
    derived_entries={"attention_probs_dropout_prob": lambda config: config.dropout},
    fixed_entries={"pooler_act": "tanh"},
    fixed_fields={"pooling": "class"},
    parts={"pooler": "pooler."},
    rows=rows,
    heads={
        "ViTForImageClassification": class_head(missing_parts=("pooler",), refused_parts=("pooler",)),
    },
)
