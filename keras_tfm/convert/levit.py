"""LeViT's checkpoints in timm's format (Graham et al. 2021)."""

from keras_tfm.convert.keymap import (
    TRANSPOSED,
    batch_norm,
    convolution,
    linear,
    parts_first,
    reordered,
    weight,
)
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import LeViT


def rows(config):
    """The table of weights for a configuration."""
    table = []
    for i in range(4):
        table += convolution(f"stem/layer_{i}", f"stem.conv{i + 1}.linear")
        table += batch_norm(f"stem/layer_{i}/norm", f"stem.conv{i + 1}.bn")
    for i, (num_layers, num_heads) in enumerate(zip(config.num_layers, config.num_heads, strict=True)):
        if i:
            ours, theirs = f"stage_{i}_shrinking", f"stages.{i}.downsample"
            attention = f"{theirs}.attn_downsample"
            order = parts_first(config.dims[i - 1] // config.key_dim, config.key_dim, 4 * config.key_dim)
            table += _dense(f"{ours}/attention/projections/query", f"{attention}.q.ln")
            table += _dense(f"{ours}/attention/projections/key_value", f"{attention}.kv", order)
            table += _output(f"{ours}/attention", attention) + _feedforward(ours, f"{theirs}.mlp")
        for j in range(num_layers):
            ours, theirs = f"stage_{i}_block_{j}", f"stages.{i}.blocks.{j}"
            attention = f"{ours}/attention/branch"
            order = parts_first(num_heads, config.key_dim, config.key_dim, 2 * config.key_dim)
            table += _dense(f"{attention}/projections/query_key_value", f"{theirs}.attn.qkv", order)
            table += _output(attention, f"{theirs}.attn") + _feedforward(ours, f"{theirs}.mlp")
    for ours, theirs in (("", "head"), ("distilled_", "head_dist")):
        table += batch_norm(f"{ours}norm", f"{theirs}.bn")
        table += linear(f"{ours}head/output", f"{theirs}.linear")
    return table


def _dense(ours, theirs, order=None):
    transform = TRANSPOSED if order is None else reordered(TRANSPOSED, order)
    return [
        *weight(f"{ours}/dense/kernel", f"{theirs}.linear.weight", transform),
        *batch_norm(f"{ours}/norm", f"{theirs}.bn", order),
    ]


def _output(ours, theirs):
    return [
        *_dense(f"{ours}/output_layer/layer_1", f"{theirs}.proj.ln"),
        *weight(f"{ours}/position/table", f"{theirs}.attention_biases", TRANSPOSED),
    ]


def _feedforward(ours, theirs):
    dense = (_dense(f"{ours}/feedforward/branch/layer_{i}", f"{theirs}.ln{i + 1}") for i in range(2))
    return [row for part in dense for row in part]


TIMM = TimmFamily(
    model=LeViT,
    rows=rows,
    architectures={f"levit_{size.lower()}": size for size in LeViT.sizes},
    fields={
        "image_size": "img_size",
        "num_channels": "in_chans",
        "dims": "embed_dim",
        "num_layers": "depth",
        "num_heads": "num_heads",
        "key_dim": "key_dim",
        "stochastic_depth": "drop_path_rate",
        "distilled": "distilled",
    },
    fixed_entries={
        "attn_ratio": 2.0,
        "mlp_ratio": 2.0,
        "stem_type": "s16",
        "down_op": "subsample",
        "act_layer": "hard_swish",
        "use_conv": False,
        "global_pool": "avg",
    },
)
