"""VideoMAE's checkpoints (Tong et al. 2022): the encoder alone, with a classifier, or with its decoder."""

from keras_tfm.configs import brief
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head, Option
from keras_tfm.convert.keymap import linear, norm, weight
from keras_tfm.convert.processors import IMAGENET
from keras_tfm.convert.vit import FIELDS, encoder_rows
from keras_tfm.convert.vit_mae import size
from keras_tfm.convert.vivit import tubelets
from keras_tfm.heads import Classifier, MaskedVideoAutoencoder
from keras_tfm.models import VideoMAE
from keras_tfm.training.safetensors import CheckpointError

POOLINGS = {True: "mean", False: "first"}  # by `use_mean_pooling`
MASK_RATIO = 0.9  # where a folder does not say: transformers' class is called with the mask


def block_rows(ours, theirs):
    """The rows of blocks whose queries and values alone have biases."""
    projections, attention = f"{ours}/attention/branch/projections", f"{theirs}.attention.attention"
    return [
        *encoder_rows(ours, theirs),
        *weight(f"{projections}/query_bias", f"{attention}.query.bias"),
        *weight(f"{projections}/value_bias", f"{attention}.value.bias"),
    ]


def rows(config):
    """The table for tubelets of the configuration's size."""
    return [
        *tubelets("tubelets", "embeddings.patch_embeddings.projection", config.tubelet_size),
        *block_rows("block_{}", "encoder.layer.{}"),
        *norm("norm", "layernorm"),
    ]


DECODER = [
    *linear("decoder_embedding", "encoder_to_decoder"),
    *weight("restoring/mask_token", "mask_token"),
    *block_rows("decoder_block_{}", "decoder.decoder_layers.{}"),
    *norm("decoder_norm", "decoder.norm"),
    *linear("pixels", "decoder.head"),
]


def read_pooling(value, _):
    """Our `pooling` for their `use_mean_pooling`."""
    if not isinstance(value, bool):
        raise CheckpointError("config.json", "use_mean_pooling", "true or false", brief(value))
    return POOLINGS[value]


def moments(name, plain):
    """The `mean` or `std` of the targets: transformers takes ImageNet's for videos of three channels."""
    return Option(lambda entries: tuple(IMAGENET[name]) if entries.get("num_channels", 3) == 3 else plain)


def entry(name, default):
    """An argument that their configuration calls `name`."""
    return Option(lambda entries: entries.get(name, default), lambda value: {name: value})


FAMILY = Family(
    model_type="videomae",
    backbone="VideoMAEModel",
    model=VideoMAE,
    prefix="videomae.",
    fields={
        **FIELDS,
        "num_frames": "num_frames",
        "tubelet_length": "tubelet_size",
        "qv_bias": ("qkv_bias", "qv_bias"),
        "pooling": Entry("use_mean_pooling", read_pooling, lambda config: config.pooling == "mean"),
    },
    default_entries={"layer_norm_eps": 1e-12},
    derived_entries={"attention_probs_dropout_prob": lambda config: config.dropout},
    rows=rows,
    renamed_keys={
        f"attention.attention.{x[0]}_bias": f"attention.attention.{x}.bias" for x in ("query", "value")
    },
    heads={
        "VideoMAEForVideoClassification": Head(
            Classifier,
            [*linear("head/output", "classifier"), *norm("head/norm", "fc_norm")],
            {"hidden_dim": None, "norm_epsilon": lambda config: 1e-5 if config.pooling == "mean" else None},
            {"num_classes": LABELS},
        ),
        "VideoMAEForPreTraining": Head(
            MaskedVideoAutoencoder,
            DECODER,
            options={
                "mask_ratio": entry("mask_ratio", MASK_RATIO),
                "num_layers": size("decoder_num_hidden_layers", 4),
                "dim": size("decoder_hidden_size", 384),
                "num_heads": size("decoder_num_attention_heads", 6),
                "intermediate_dim": size("decoder_intermediate_size", 1536),
                "normalize_pixels": entry("norm_pix_loss", True),
                "mean": moments("image_mean", (0.0,)),
                "std": moments("image_std", (1.0,)),
            },
        ),
    },
)
