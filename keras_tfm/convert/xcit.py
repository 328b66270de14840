"""XCiT's checkpoints in timm's format (El-Nouby et al. 2021)."""

from keras_tfm.convert.entries import ratios
from keras_tfm.convert.keymap import (
    POINTWISE,
    batch_norm,
    convolution,
    depthwise_kernel,
    linear,
    norm,
    weight,
)
from keras_tfm.convert.timm import PATCHED_FIELDS, TimmFamily
from keras_tfm.models import XCiT

_NAMES = {"N": "nano", "T": "tiny", "S": "small", "M": "medium", "L": "large"}

BLOCK, CLASS_BLOCK = "blocks.{}", "cls_attn_blocks.{}"
ATTENTION, NEIGHBOURS = "block_{}/attention/branch", "block_{}/neighbours/branch/layer"
CLASS_ATTENTION = "class_block_{}/attention/branch/attention"
ROWS = [
    *weight("class_token/embedding", "cls_token"),
    *[
        row
        for i in range(4)
        for row in convolution(f"stem/layer_{i}", f"patch_embed.proj.{2 * i}.0")
        + batch_norm(f"stem/layer_{i}/norm", f"patch_embed.proj.{2 * i}.1")
    ],
    *linear("position/projection", "pos_embed.token_projection", transform=POINTWISE),
    *linear(f"{ATTENTION}/projections/query_key_value", f"{BLOCK}.attn.qkv"),
    *linear(f"{ATTENTION}/output", f"{BLOCK}.attn.proj"),
    *weight(f"{ATTENTION}/temperature", f"{BLOCK}.attn.temperature"),
    *convolution(f"{NEIGHBOURS}/layer_0", f"{BLOCK}.local_mp.conv1", depthwise_kernel()),
    *batch_norm(f"{NEIGHBOURS}/layer_1", f"{BLOCK}.local_mp.bn"),
    *convolution(f"{NEIGHBOURS}/layer_2", f"{BLOCK}.local_mp.conv2", depthwise_kernel()),
    *linear("block_{}/feedforward/branch/hidden", f"{BLOCK}.mlp.fc1"),
    *linear("block_{}/feedforward/branch/output", f"{BLOCK}.mlp.fc2"),
    *linear(f"{CLASS_ATTENTION}/projections/query", f"{CLASS_BLOCK}.attn.q"),
    *linear(f"{CLASS_ATTENTION}/projections/key_value", f"{CLASS_BLOCK}.attn.k", f"{CLASS_BLOCK}.attn.v"),
    *linear(f"{CLASS_ATTENTION}/output", f"{CLASS_BLOCK}.attn.proj"),
    *norm("class_block_{}/attention/norm", f"{CLASS_BLOCK}.norm1"),
    *weight("class_block_{}/attention/scale", f"{CLASS_BLOCK}.gamma1"),
    *norm("class_block_{}/norm", f"{CLASS_BLOCK}.norm2"),
    *linear("class_block_{}/feedforward/branch/hidden", f"{CLASS_BLOCK}.mlp.fc1"),
    *linear("class_block_{}/feedforward/branch/output", f"{CLASS_BLOCK}.mlp.fc2"),
    *weight("class_block_{}/feedforward/scale", f"{CLASS_BLOCK}.gamma2"),
    *norm("norm", "norm"),
    *linear("head/output", "head"),
]
# Theirs numbers the parts of a block in the order of the paper's text; part 3 is computed second.
for part, number in (("attention", 1), ("neighbours", 3), ("feedforward", 2)):
    ROWS += norm(f"block_{{}}/{part}/norm", f"{BLOCK}.norm{number}")
    ROWS += weight(f"block_{{}}/{part}/scale", f"{BLOCK}.gamma{number}")


def rows(_):
    """The table, the same for every configuration."""
    return ROWS


TIMM = TimmFamily(
    model=XCiT,
    rows=rows,
    architectures={
        f"xcit_{_NAMES[size[0]]}_{size[1:3]}_p16_{side}": size for size in XCiT.sizes for side in (224, 384)
    },
    fields={
        **PATCHED_FIELDS,
        "num_class_layers": "cls_attn_layers",
        "layer_scale": "eta",
        "normalize_patches": "tokens_norm",
        "stochastic_depth": "drop_path_rate",
        **ratios("mlp_ratio", ["intermediate_dim"], "dim", "embed_dim"),
    },
    fixed_entries={"qkv_bias": True, "use_pos_embed": True, "global_pool": "token"},
    fixed_fields={"epsilon": 1e-6},
)
