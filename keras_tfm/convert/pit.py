"""PiT's checkpoints in timm's format (Heo et al. 2021)."""

from keras_tfm.convert.entries import ratios
from keras_tfm.convert.keymap import Transform, convolution, depthwise_kernel, linear, norm, patches, weight
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.convert.variant import attention_rows, feedforward_rows
from keras_tfm.models import PiT

# Theirs is (1, D, rows, columns), ours (rows, columns, D).
OF_GRID = Transform(lambda x: x[0].transpose(1, 2, 0), lambda x, _: [x.transpose(2, 0, 1)[None]])


def rows(config):
    """The table of weights for a configuration."""
    ours, theirs = "stage_{}_block_{}", "transformers.{}.blocks.{}"
    table = [
        *patches("patch_embedding", "patch_embed.conv", config.patch_size),
        *weight("position/table", "pos_embed", OF_GRID),
        *weight("tokens/embedding", "cls_token"),
        *attention_rows(f"{ours}/attention", theirs=theirs),
        *feedforward_rows(f"{ours}/feedforward", theirs=theirs),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
        *linear("distilled_head/output", "head_dist"),
    ]
    for i, (before, dim) in enumerate(zip(config.dims, config.dims[1:], strict=False), start=1):
        pooling, pool = f"stage_{i}_pooling", f"transformers.{i}.pool"
        table += convolution(f"{pooling}/convolution", f"{pool}.conv", depthwise_kernel(dim // before))
        table += linear(f"{pooling}/dense", f"{pool}.fc")
    return table


TIMM = TimmFamily(
    model=PiT,
    rows=rows,
    architectures={
        "pit_ti_224": "Ti",
        "pit_xs_224": "XS",
        "pit_s_224": "S",
        "pit_b_224": "B",
        "pit_ti_distilled_224": "Ti-distilled",
        "pit_xs_distilled_224": "XS-distilled",
        "pit_s_distilled_224": "S-distilled",
        "pit_b_distilled_224": "B-distilled",
    },
    fields={
        "image_size": "img_size",
        "patch_size": "patch_size",
        "stride": "stride",
        "num_channels": "in_chans",
        "depths": "depth",
        "num_heads": "heads",
        "mlp_ratio": "mlp_ratio",
        "distilled": "distilled",
        "dropout": ("pos_drop_rate", "proj_drop_rate", "attn_drop_rate"),
        "stochastic_depth": "drop_path_rate",
        **ratios("base_dims", ["dims"], "num_heads", "heads"),
    },
    fixed_entries={"stem_type": "overlap", "global_pool": "token"},
    fixed_fields={"activation": "gelu", "epsilon": 1e-6},
)
