"""CvT's checkpoints (Wu et al. 2021).

The last norm belongs to the classifier in transformers, and to the backbone here. A `CvtModel` is therefore
read with a norm that neither scales nor shifts, and ignores the one that is written. transformers has no
entry for an image size; an additional entry stores our configuration's.
"""

import numpy as np

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, class_head
from keras_tfm.convert.keymap import (
    batch_counts,
    batch_norm,
    convolution,
    depthwise_kernel,
    linear,
    norm,
    weight,
)
from keras_tfm.models import CvT

STAGE, LAYER = "encoder.stages.{}", "encoder.stages.{}.layers.{}"
BLOCK = "stage_{}_block_{}"
ROWS = [
    *convolution("stage_{}_embedding", f"{STAGE}.embedding.convolution_embeddings.projection"),
    *norm("stage_{}_embedding/norm", f"{STAGE}.embedding.convolution_embeddings.normalization"),
    *weight("class_token/embedding", "encoder.stages.2.cls_token"),
    *linear(f"{BLOCK}/attention/branch/output", f"{LAYER}.attention.output.dense"),
    *norm(f"{BLOCK}/attention/norm", f"{LAYER}.layernorm_before"),
    *linear(f"{BLOCK}/feedforward/branch/hidden", f"{LAYER}.intermediate.dense"),
    *linear(f"{BLOCK}/feedforward/branch/output", f"{LAYER}.output.dense"),
    *norm(f"{BLOCK}/feedforward/norm", f"{LAYER}.layernorm_after"),
    *norm("norm", "layernorm"),
]
for part in ("query", "key", "value"):
    ours, theirs = f"{BLOCK}/attention/branch/projections/{part}", f"{LAYER}.attention.attention"
    convolved = f"{theirs}.convolution_projection_{part}.convolution_projection"
    ROWS += convolution(f"{ours}_convolution", f"{convolved}.convolution", depthwise_kernel())
    ROWS += batch_norm(f"{ours}_convolution/norm", f"{convolved}.normalization")
    ROWS += linear(ours, f"{theirs}.projection_{part}")


def depths(config):
    """Their depths for ours.

    ValueError where `CvtModel` would fail: it takes the number of a stage as an index into the rates of that
    stage's blocks.
    """
    if any(depth <= stage for stage, depth in enumerate(config.depths)):
        raise ValueError(f"CvtModel needs `depths` of at least 1, 2 and 3; they are {config.depths}.")
    return config.depths


def unit_norm(tensors):
    """A norm that neither scales nor shifts, as wide as the last stage's among `tensors`."""
    like = next((x for key, x in tensors.items() if key.endswith("encoder.stages.2.cls_token")), None)
    if like is None:
        return {}
    width = like.shape[-1:]
    return {"layernorm.weight": np.ones(width, "float32"), "layernorm.bias": np.zeros(width, "float32")}


FAMILY = Family(
    model_type="cvt",
    backbone="CvtModel",
    model=CvT,
    prefix="cvt.",
    outer_keys=("layernorm.",),
    fields={
        "image_size": "image_size",
        "num_channels": "num_channels",
        "dims": "embed_dim",
        "depths": Entry("depth", lambda value, _: value, depths),
        "num_heads": "num_heads",
        "mlp_ratio": "mlp_ratio",
        "dropout": "drop_rate",
        "attention_dropout": "attention_drop_rate",
        "stochastic_depth": "drop_path_rate",
    },
    fixed_entries={
        "patch_sizes": [7, 3, 3],
        "patch_stride": [4, 2, 2],
        "patch_padding": [2, 1, 1],
        "cls_token": [False, False, True],
        "qkv_bias": [True, True, True],
        "qkv_projection_method": ["dw_bn", "dw_bn", "dw_bn"],
        "kernel_qkv": [3, 3, 3],
        "padding_kv": [1, 1, 1],
        "stride_kv": [2, 2, 2],
        "padding_q": [1, 1, 1],
        "stride_q": [1, 1, 1],
    },
    rows=ROWS,
    heads={
        "CvtForImageClassification": class_head(),
    },
    default_tensors=unit_norm,
    buffers=(r".*\.num_batches_tracked",),
    buffers_of=batch_counts,
)
