"""TNT's checkpoints in timm's format (Han et al. 2021)."""

from keras_tfm.convert.keymap import (
    TRANSPOSED,
    Row,
    Transform,
    convolution,
    linear,
    norm,
    weight,
)
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.convert.vit import FIRST_OF_ONE
from keras_tfm.models import TNT


def pixel_positions(side):
    """Theirs are (1, d, side, side), ours (side side, d)."""
    return Transform(
        lambda array: array[0].reshape(array.shape[1], -1).T,
        lambda array, _: [array.T.reshape(1, -1, side, side)],
    )


def rows(config):
    """The table of weights for a configuration, with the classifier's rows."""
    block, side = "blocks.{}", config.patch_size // config.pixel_size
    table = [
        *convolution("stem", "pixel_embed.proj"),
        *weight("pixel_position/embedding/embeddings", "pixel_pos", pixel_positions(side)),
        *_summary("summary", ""),
        *weight("class_token/embedding", "cls_token"),
        *weight("position/embedding/embeddings", "patch_pos", FIRST_OF_ONE),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
        *_parts("pixel_block_{}", block, "norm_in", "attn_in", "norm_mlp_in", "mlp_in"),
        *_parts("block_{}", block, "norm_out", "attn_out", "norm_mlp", "mlp"),
    ]
    if not config.legacy:
        return table + _summary("block_{}/summary", f"{block}.")
    return [
        *table,
        *norm("block_{}/summary/norm", f"{block}.norm1_proj"),
        *linear("block_{}/summary/layer", f"{block}.proj"),
    ]


def _summary(ours, theirs):
    return [
        *norm(f"{ours}/layer/layer_0", f"{theirs}norm1_proj"),
        *linear(f"{ours}/layer/layer_1", f"{theirs}proj"),
        *norm(f"{ours}/layer/layer_2", f"{theirs}norm2_proj"),
    ]


def _parts(ours, theirs, norm_1, attention, norm_2, feedforward):
    kernel = f"{ours}/attention/branch/projections/query_key_value/kernel"
    keys = tuple(f"{theirs}.{attention}.{part}.weight" for part in ("qk", "v"))
    return [
        *norm(f"{ours}/attention/norm", f"{theirs}.{norm_1}"),
        Row(kernel, keys, TRANSPOSED_PARTS),
        *linear(f"{ours}/attention/branch/output", f"{theirs}.{attention}.proj"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.{norm_2}"),
        *linear(f"{ours}/feedforward/branch/hidden", f"{theirs}.{feedforward}.fc1"),
        *linear(f"{ours}/feedforward/branch/output", f"{theirs}.{feedforward}.fc2"),
    ]


def _save_parts(array, _):
    """The queries' and keys' rows, and the values'."""
    width = array.shape[1] // 3
    return [array[:, : 2 * width].T, array[:, 2 * width :].T]


TRANSPOSED_PARTS = Transform(TRANSPOSED.load, _save_parts)


TIMM = TimmFamily(
    model=TNT,
    rows=rows,
    architectures={
        "tnt_s_patch16_224": "S",
        "tnt_s_legacy_patch16_224": "S-legacy",
        "tnt_b_patch16_224": "B",
    },
    fields={
        "image_size": "img_size",
        "patch_size": "patch_size",
        "pixel_size": "first_stride",
        "num_channels": "in_chans",
        "num_layers": "depth",
        "dim": "embed_dim",
        "num_heads": "num_heads_outer",
        "inner_dim": "inner_dim",
        "inner_heads": "num_heads_inner",
        "mlp_ratio": "mlp_ratio",
        "stochastic_depth": "drop_path_rate",
        "legacy": "legacy",
    },
    fixed_entries={"qkv_bias": False, "global_pool": "token"},
    fixed_fields={"epsilon": 1e-5, "dropout": 0.0},
)
