"""TimeSformer's checkpoints (Bertasius et al. 2021), of divided and of joint attention."""

from keras_tfm.configs import brief
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, class_head
from keras_tfm.convert.keymap import feedforward, linear, norm, weight
from keras_tfm.convert.vit import FIELDS, FIRST_OF_ONE, embedding_rows
from keras_tfm.models import TimeSformer
from keras_tfm.training.safetensors import CheckpointError

ATTENTIONS = {"divided_space_time": "divided", "joint_space_time": "joint"}


def attention_rows(ours, theirs):
    """The rows of an attention layer whose queries, keys and values are one product."""
    return [
        *linear(f"{ours}/projections/query_key_value", f"{theirs}.attention.qkv"),
        *linear(f"{ours}/output", f"{theirs}.output.dense"),
    ]


def rows(config):
    """The table for a configuration's kind of attention."""
    ours, theirs = "block_{}", "encoder.layer.{}"
    divided = "/attention" if config.attention == "divided" else ""
    temporal = f"{ours}/temporal_attention"
    return [
        *embedding_rows(config),
        *weight("time/embedding/embeddings", "embeddings.time_embeddings", FIRST_OF_ONE),
        *attention_rows(f"{temporal}/branch/attention/layer_0", f"{theirs}.temporal_attention"),
        *linear(f"{temporal}/branch/attention/layer_1", f"{theirs}.temporal_dense"),
        *norm(f"{temporal}/norm", f"{theirs}.temporal_layernorm"),
        *attention_rows(f"{ours}/attention/branch{divided}", f"{theirs}.attention"),
        *norm(f"{ours}/attention/norm", f"{theirs}.layernorm_before"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.intermediate.dense", f"{theirs}.output.dense"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.layernorm_after"),
        *norm("norm", "layernorm"),
    ]


def read_attention(value, _):
    """Our `attention` for their `attention_type`."""
    if value not in ATTENTIONS:
        raise CheckpointError(
            "config.json", "attention_type", f"one of {', '.join(ATTENTIONS)}", brief(value)
        )
    return ATTENTIONS[value]


def write_attention(config):
    """Their `attention_type`."""
    return next(theirs for theirs, ours in ATTENTIONS.items() if ours == config.attention)


def check(config):
    """Raises ValueError for what transformers does not compute, or in another way."""
    if config.attention == "space":
        raise ValueError(
            "TimesformerModel computes only `attention` 'divided' and 'joint'; it is 'space', for which it "
            "returns the states of each frame, where the authors classify the mean over the frames."
        )
    for name in ("image_size", "patch_size"):
        if not isinstance(size := getattr(config, name), int):
            raise ValueError(f"TimesformerModel reads squares, whose `{name}` is a number; it is {size}.")


FAMILY = Family(
    model_type="timesformer",
    backbone="TimesformerModel",
    model=TimeSformer,
    prefix="timesformer.",
    fields={
        **FIELDS,
        "num_frames": "num_frames",
        "attention": Entry("attention_type", read_attention, write_attention),
        "qkv_bias": "qkv_bias",
        # transformers takes a whole number alone for the rate, which must be below 1: so 0 is written.
        "stochastic_depth": Entry("drop_path_rate", lambda value, _: value, lambda config: 0),
    },
    derived_entries={"attention_probs_dropout_prob": lambda config: config.dropout},
    rows=rows,
    check=check,
    heads={
        "TimesformerForVideoClassification": class_head(),
    },
)
