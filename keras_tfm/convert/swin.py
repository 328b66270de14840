"""Swin's checkpoints (Liu et al. 2021), with the names of transformers and of timm."""

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, class_head
from keras_tfm.convert.keymap import TRANSPOSED, linear, norm, patches, weight
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import Swin


def check_windows(config):
    """ValueError if timm's windows differ: it shifts each axis on its own, and before padding."""
    for stage, (grid, depth) in enumerate(zip(config.grids, config.depths, strict=True)):
        is_longer = [side > config.window for side in grid]
        is_same = len({min(side, config.window) for side in grid}) == 1
        is_same &= grid == tuple(side // 2**stage for side in config.grids[0])
        if depth > 1 and any(is_longer):
            is_same &= all(is_longer) and not any(side % config.window for side in grid)
        if not is_same:
            raise ValueError(f"timm has other windows than `window` {config.window} in a map of {grid}.")


BLOCK = "stage_{}_block_{}"
ATTENTION = f"{BLOCK}/attention/branch/attention"
PARTS = ("query", "key", "value")
THEIR_BLOCK, TIMM_BLOCK = "encoder.layers.{}.blocks.{}", "layers.{}.blocks.{}"


def rows(config):
    """The table with transformers' names."""
    theirs = f"{THEIR_BLOCK}.attention.self"
    return [
        *common_rows(config),
        *linear(f"{ATTENTION}/projections/query_key_value", *(f"{theirs}.{x}" for x in PARTS)),
        *weight(f"{ATTENTION}/position/table", f"{theirs}.relative_position_bias_table"),
    ]


def common_rows(config):
    """The rows that Swin V2 has too, with transformers' names; a merging belongs to the stage before it."""
    block = THEIR_BLOCK
    table = [
        *patches("patch_embedding", "embeddings.patch_embeddings.projection", config.patch_size),
        *norm("embedding_norm", "embeddings.norm"),
        *linear(f"{ATTENTION}/output", f"{block}.attention.output.dense"),
        *norm(f"{BLOCK}/attention/norm", f"{block}.layernorm_before"),
        *linear(f"{BLOCK}/feedforward/branch/hidden", f"{block}.intermediate.dense"),
        *linear(f"{BLOCK}/feedforward/branch/output", f"{block}.output.dense"),
        *norm(f"{BLOCK}/feedforward/norm", f"{block}.layernorm_after"),
        *norm("norm", "layernorm"),
    ]
    for stage in range(1, len(config.depths)):
        table += merging(f"stage_{stage}_merging", f"encoder.layers.{stage - 1}.downsample")
    return table


def timm_rows(config):
    """The table with timm's names and the classifier."""
    return [
        *common_timm_rows(config),
        *linear(f"{ATTENTION}/projections/query_key_value", f"{TIMM_BLOCK}.attn.qkv"),
        *weight(f"{ATTENTION}/position/table", f"{TIMM_BLOCK}.attn.relative_position_bias_table"),
    ]


def common_timm_rows(config):
    """The rows that Swin V2 has too, with timm's names; a merging belongs to the stage after it, as here."""
    block = TIMM_BLOCK
    return [
        *patches("patch_embedding", "patch_embed.proj", config.patch_size),
        *norm("embedding_norm", "patch_embed.norm"),
        *linear(f"{ATTENTION}/output", f"{block}.attn.proj"),
        *norm(f"{BLOCK}/attention/norm", f"{block}.norm1"),
        *linear(f"{BLOCK}/feedforward/branch/hidden", f"{block}.mlp.fc1"),
        *linear(f"{BLOCK}/feedforward/branch/output", f"{block}.mlp.fc2"),
        *norm(f"{BLOCK}/feedforward/norm", f"{block}.norm2"),
        *merging("stage_{}_merging", "layers.{}.downsample"),
        *norm("norm", "norm"),
        *linear("head/output", "head.fc"),
    ]


def merging(ours, theirs):
    """The rows of a `PatchMerging`; transformers and timm name its weights alike."""
    kernel = weight(f"{ours}/projection/kernel", f"{theirs}.reduction.weight", TRANSPOSED)
    return [*norm(f"{ours}/norm", f"{theirs}.norm"), *kernel]


def window(config):
    """Their window size for ours; ValueError for a smaller map: theirs does not shrink its table then."""
    if min(config.grids[-1]) < config.window:
        raise ValueError(
            f"SwinModel needs maps of at least `window` {config.window}; the last is {config.grids[-1]}."
        )
    return config.window


FAMILY = Family(
    model_type="swin",
    backbone="SwinModel",
    model=Swin,
    prefix="swin.",
    fields={
        "image_size": "image_size",
        "patch_size": "patch_size",
        "num_channels": "num_channels",
        "depths": "depths",
        "dim": "embed_dim",
        "num_heads": "num_heads",
        "window": Entry("window_size", lambda value, _: value, window),
        "mlp_ratio": "mlp_ratio",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "stochastic_depth": "drop_path_rate",
        "activation": "hidden_act",
        "epsilon": "layer_norm_eps",
    },
    fixed_entries={"use_absolute_embeddings": False, "qkv_bias": True},
    fixed_fields={"fixed_windows": False},
    rows=rows,
    heads={
        "SwinForImageClassification": class_head(),
    },
    buffers=(r".*\.relative_position_index",),
)


TIMM = TimmFamily(
    model=Swin,
    rows=timm_rows,
    architectures={
        f"swin_{name}_patch4_window7_224": size
        for name, size in {"tiny": "T", "small": "S", "base": "B", "large": "L"}.items()
    },
    fields={
        "image_size": "img_size",
        "patch_size": "patch_size",
        "num_channels": "in_chans",
        "dim": "embed_dim",
        "depths": "depths",
        "num_heads": "num_heads",
        "window": "window_size",
        "mlp_ratio": "mlp_ratio",
        "dropout": "proj_drop_rate",
        "attention_dropout": "attn_drop_rate",
        "stochastic_depth": "drop_path_rate",
    },
    fixed_entries={"qkv_bias": True, "global_pool": "avg"},
    fixed_fields={"activation": "gelu", "epsilon": 1e-5, "fixed_windows": False},
    default_entries={"drop_path_rate": 0.1},
    check=check_windows,
)
