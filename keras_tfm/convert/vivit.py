"""ViViT's checkpoints (Arnab et al. 2021), of model 1: with its pooling layer or a classifier."""

from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import Transform, linear, norm, weight
from keras_tfm.convert.vit import FIELDS, FIRST_OF_ONE, encoder_rows, sides
from keras_tfm.heads import Classifier
from keras_tfm.models import ViViT


def tubelets(ours, theirs, tubelet_size):
    """A `TubeletEmbedding` and the `torch.nn.Conv3d`, whose kernel is (D, C, frames, height, width)."""
    length, height, width = tubelet_size

    def load(kernel):
        return kernel.transpose(3, 4, 2, 1, 0).reshape(-1, len(kernel))  # (height width frames C, D)

    def save(kernel, _):
        kernel = kernel.reshape(height, width, length, -1, kernel.shape[1])
        return [kernel.transpose(4, 3, 2, 0, 1)]

    return [
        *weight(f"{ours}/patches/projection/kernel", f"{theirs}.weight", Transform(load, save)),
        *weight(f"{ours}/patches/projection/bias", f"{theirs}.bias"),
    ]


def rows(config):
    """The table for tubelets of the configuration's size."""
    return [
        *tubelets("tubelets", "embeddings.patch_embeddings.projection", config.tubelet_size),
        *weight("class_token/embedding", "embeddings.cls_token"),
        *weight("position/embedding/embeddings", "embeddings.position_embeddings", FIRST_OF_ONE),
        *encoder_rows("block_{}", "encoder.layer.{}"),
        *norm("norm", "layernorm"),
        *linear("pooler", "pooler.dense"),
    ]


def side(axis):
    """A tubelet's frames, height or width in a configuration."""
    return lambda config: config.tubelet_size[axis]


def num_tokens(config):
    """The number of whole tubelets, and one for the class token."""
    height, width = sides(config.image_size)
    frames, *patch = config.tubelet_size
    return (config.num_frames // frames) * (height // patch[0]) * (width // patch[1]) + 1


FAMILY = Family(
    model_type="vivit",
    backbone="VivitModel",
    model=ViViT,
    prefix="vivit.",
    fields={
        **{ours: theirs for ours, theirs in FIELDS.items() if ours != "patch_size"},
        "num_frames": "num_frames",
        "tubelet_size": "tubelet_size",
    },
    derived_entries={"attention_probs_dropout_prob": lambda config: config.dropout},
    fixed_entries={"qkv_bias": True, "pooler_act": "tanh"},
    fixed_fields={"num_temporal_layers": None},
    shapes={
        "embeddings.patch_embeddings.projection.weight": ("dim", "num_channels", side(0), side(1), side(2)),
        "embeddings.position_embeddings": (lambda _: 1, num_tokens, "dim"),
        "encoder.layer.0.intermediate.dense.bias": ("intermediate_dim",),
    },
    parts={"pooler": "pooler."},
    rows=rows,
    heads={
        "VivitForVideoClassification": Head(
            Classifier,
            linear("head/output", "classifier"),
            {"hidden_dim": None},
            {"num_classes": LABELS},
            missing_parts=("pooler",),
            refused_parts=("pooler",),
        ),
    },
)
