"""DeiT's checkpoints (Touvron et al. 2021): distilled ones, with one head, or with a second for the teacher.

The pooling layer of `DeiTModel` is not read, since no classifier uses it.
"""

import numpy as np

from keras_tfm.convert.family import LABELS, Family, Head, class_head
from keras_tfm.convert.keymap import Row, Transform, linear, norm, patches, weight
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.convert.vit import (
    FIELDS,
    FIRST_OF_ONE,
    TIMM_FIELDS,
    encoder_rows,
    timm_encoder_rows,
)
from keras_tfm.convert.vit import TIMM as VIT
from keras_tfm.heads import DistilledClassifier
from keras_tfm.models import DeiT

ONE_BY_ONE = Transform(
    lambda *arrays: np.concatenate(arrays, axis=1), lambda array, count: np.split(array, count, axis=1)
)
CLASS_HEAD = linear("head/output", "cls_classifier")
DISTILLED_HEAD = linear("distilled_head/output", "distillation_classifier")


def rows(config):
    """The table for patches of the configuration's size."""
    return [
        *patches("patch_embedding", "embeddings.patch_embeddings.projection", config.patch_size),
        Row("tokens/embedding", ("embeddings.cls_token", "embeddings.distillation_token"), ONE_BY_ONE),
        *weight("position/embedding/embeddings", "embeddings.position_embeddings", FIRST_OF_ONE),
        *encoder_rows("block_{}", "encoder.layer.{}"),
        *norm("norm", "layernorm"),
    ]


def timm_rows(config):
    """The table with timm's names, with both classifiers."""
    return [
        *patches("patch_embedding", "patch_embed.proj", config.patch_size),
        Row("tokens/embedding", ("cls_token", "dist_token"), ONE_BY_ONE),
        *weight("position/embedding/embeddings", "pos_embed", FIRST_OF_ONE),
        *timm_encoder_rows("block_{}", "blocks.{}"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
        *linear("distilled_head/output", "head_dist"),
    ]


TIMM = TimmFamily(
    model=DeiT,
    rows=timm_rows,
    architectures={
        "deit_tiny_distilled_patch16_224": "Ti",
        "deit_small_distilled_patch16_224": "S",
        "deit_base_distilled_patch16_224": "B",
        "deit_base_distilled_patch16_384": "B",
    },
    fields=TIMM_FIELDS,
    fixed_entries={**VIT.fixed_entries, "global_pool": "token", "class_token": True},
    fixed_fields={"activation": "gelu", "epsilon": 1e-6},
)
FAMILY = Family(
    model_type="deit",
    backbone="DeiTModel",
    model=DeiT,
    prefix="deit.",
    fields={**FIELDS, "qkv_bias": "qkv_bias"},
    default_entries={"layer_norm_eps": 1e-12},
    derived_entries={"attention_probs_dropout_prob": lambda config: config.dropout},
    rows=rows,
    heads={
        "DeiTForImageClassificationWithTeacher": Head(
            DistilledClassifier, CLASS_HEAD + DISTILLED_HEAD, options={"num_classes": LABELS}
        ),
        "DeiTForImageClassification": class_head(),
    },
    buffers=(r"pooler\.dense\.(weight|bias)",),
)
