"""ViViT's checkpoints (Arnab et al. 2021), of model 1: with its pooling layer or a classifier."""

from keras_tfm.convert.family import Family, class_head
from keras_tfm.convert.keymap import Transform, linear, norm, weight
from keras_tfm.convert.vit import FIELDS, FIRST_OF_ONE, encoder_rows
from keras_tfm.models import ViViT


def tubelets(ours, theirs, tubelet_size):
    """A `TubeletEmbedding` and the `torch.nn.Conv3d`, whose kernel is (D, C, frames, height, width)."""

    def load(kernel):
        return kernel.transpose(2, 3, 4, 1, 0).reshape(-1, len(kernel))  # (frames height width C, D)

    def save(kernel, _):
        return [kernel.reshape(*tubelet_size, -1, kernel.shape[1]).transpose(4, 3, 0, 1, 2)]

    return [
        *weight(f"{ours}/projection/kernel", f"{theirs}.weight", Transform(load, save)),
        *weight(f"{ours}/projection/bias", f"{theirs}.bias"),
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
    fixed_fields={"num_temporal_layers": None, "attention": "joint", "stem": ()},
    parts={"pooler": "pooler."},
    rows=rows,
    heads={
        "VivitForVideoClassification": class_head(missing_parts=("pooler",), refused_parts=("pooler",)),
    },
)
