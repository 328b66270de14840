"""DeiT's checkpoints (Touvron et al. 2021): distilled ones, with one head or with the teacher's too.

The pooling layer that `DeiTModel` alone has, and no classifier reads, is left behind.
"""

import numpy as np

from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import Row, Transform, linear, norm, patches, weight
from keras_tfm.heads import Classifier, DistilledClassifier
from keras_tfm.models import DeiT

FIRST_OF_ONE = Transform(lambda array: array[0], lambda array, _: [array[None]])  # an axis for the batch
ONE_BY_ONE = Transform(
    lambda *arrays: np.concatenate(arrays, axis=1), lambda array, count: np.split(array, count, axis=1)
)
CLASS_HEAD = linear("head/output", "cls_classifier")
DISTILLED_HEAD = linear("distilled_head/output", "distillation_classifier")


def rows(config):
    """The table for patches of the configuration's size."""
    layer = "encoder.layer.{}"
    attention = f"{layer}.attention.attention"
    return [
        *patches("patch_embedding", "embeddings.patch_embeddings.projection", config.patch_size),
        Row("tokens/embedding", ("embeddings.cls_token", "embeddings.distillation_token"), ONE_BY_ONE),
        *weight("position/embedding/embeddings", "embeddings.position_embeddings", FIRST_OF_ONE),
        *linear(
            "block_{}/attention/branch/projections/query_key_value",
            *(f"{attention}.{part}" for part in ("query", "key", "value")),
        ),
        *linear("block_{}/attention/branch/output", f"{layer}.attention.output.dense"),
        *norm("block_{}/attention/norm", f"{layer}.layernorm_before"),
        *linear("block_{}/feedforward/branch/hidden", f"{layer}.intermediate.dense"),
        *linear("block_{}/feedforward/branch/output", f"{layer}.output.dense"),
        *norm("block_{}/feedforward/norm", f"{layer}.layernorm_after"),
        *norm("norm", "layernorm"),
    ]


def sides(size):
    """The (height, width) of a field."""
    return size if isinstance(size, tuple) else (size, size)


def side(axis):
    """A patch's height (axis 0) or width (axis 1) in a configuration."""
    return lambda config: sides(config.patch_size)[axis]


def num_tokens(config):
    """Patches, as many as are whole, and the two tokens."""
    rows, columns = (size // side(axis)(config) for axis, size in enumerate(sides(config.image_size)))
    return rows * columns + 2


FAMILY = Family(
    model_type="deit",
    backbone="DeiTModel",
    model=DeiT,
    prefix="deit.",
    fields={
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
    },
    absent={"layer_norm_eps": 1e-12},
    written={"attention_probs_dropout_prob": lambda config: config.dropout},
    fixed={"qkv_bias": True},
    shapes={
        "embeddings.patch_embeddings.projection.weight": ("dim", "num_channels", side(0), side(1)),
        "embeddings.position_embeddings": (lambda _: 1, num_tokens, "dim"),
        "encoder.layer.0.intermediate.dense.bias": ("intermediate_dim",),
    },
    rows=rows,
    heads={
        "DeiTForImageClassificationWithTeacher": Head(
            DistilledClassifier, CLASS_HEAD + DISTILLED_HEAD, options={"num_classes": LABELS}
        ),
        "DeiTForImageClassification": Head(
            Classifier, linear("head/output", "classifier"), {"hidden_dim": None}, {"num_classes": LABELS}
        ),
    },
    ignored=(r"pooler\.dense\.(weight|bias)",),
)
