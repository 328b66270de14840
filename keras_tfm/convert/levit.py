"""LeViT's checkpoints (Graham et al. 2021), with the names of transformers and of timm.

The norms of the mean belong to the classifiers in transformers, and to the backbone here. A `LevitModel` is
therefore read with a norm that changes nothing, and ignores the one that is written.
"""

import re
from typing import NamedTuple

import numpy as np

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head, class_head
from keras_tfm.convert.keymap import (
    TRANSPOSED,
    batch_counts,
    batch_norm,
    convolution,
    linear,
    parts_first,
    reordered,
    weight,
)
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.heads import DistilledClassifier
from keras_tfm.models import LeViT


class Names(NamedTuple):
    """How one library names the weights of a block's layers."""

    norm: str
    query_key_value: str
    query: str
    key_value: str
    output: str
    hidden: str
    feedforward_output: str

    def dense(self, ours, theirs, order=None):
        """The rows of a `NormalizedDense`, its outputs in another `order` if given."""
        transform = TRANSPOSED if order is None else reordered(TRANSPOSED, order)
        return [
            *weight(f"{ours}/dense/kernel", f"{theirs}.linear.weight", transform),
            *batch_norm(f"{ours}/norm", f"{theirs}.{self.norm}", order),
        ]

    def block(self, config, stage, number, attention, feedforward):
        """The rows of a block with their keys of its two parts."""
        ours, key_dim = f"stage_{stage}_block_{number}", config.key_dim
        order = parts_first(config.num_heads[stage], key_dim, key_dim, 2 * key_dim)
        layer = f"{ours}/attention/branch"
        return [
            *self.dense(f"{layer}/projections/query_key_value", f"{attention}.{self.query_key_value}", order),
            *self._ends(layer, attention, ours, feedforward),
        ]

    def shrinking(self, config, stage, attention, feedforward):
        """The same for the shrinking block before a stage."""
        ours, key_dim = f"stage_{stage}_shrinking", config.key_dim
        order = parts_first(config.dims[stage - 1] // key_dim, key_dim, 4 * key_dim)
        layer = f"{ours}/attention"
        return [
            *self.dense(f"{layer}/projections/query", f"{attention}.{self.query}"),
            *self.dense(f"{layer}/projections/key_value", f"{attention}.{self.key_value}", order),
            *self._ends(layer, attention, ours, feedforward),
        ]

    def _ends(self, layer, attention, ours, feedforward):
        branch = f"{ours}/feedforward/branch"
        return [
            *self.dense(f"{layer}/output_layer/layer_1", f"{attention}.{self.output}"),
            *weight(f"{layer}/position/table", f"{attention}.attention_biases", TRANSPOSED),
            *self.dense(f"{branch}/layer_0", f"{feedforward}.{self.hidden}"),
            *self.dense(f"{branch}/layer_1", f"{feedforward}.{self.feedforward_output}"),
        ]


def rows(config):
    """The table with transformers' names; a shrinking block belongs to the stage before it."""
    names = Names(
        "batch_norm",
        "queries_keys_values",
        "queries",
        "keys_values",
        "projection",
        "linear_up",
        "linear_down",
    )
    table = [
        *batch_norm("norm", "classifier.batch_norm"),
        *batch_norm("distilled_norm", "classifier_distill.batch_norm"),
    ]
    for i in range(4):
        theirs = f"patch_embeddings.embedding_layer_{i + 1}"
        table += convolution(f"stem/layer_{i}", f"{theirs}.convolution")
        table += batch_norm(f"stem/layer_{i}/norm", f"{theirs}.batch_norm")
    for i, depth in enumerate(config.num_layers):
        layers = f"encoder.stages.{i}.layers"
        for j in range(depth):
            table += names.block(config, i, j, f"{layers}.{2 * j}.module", f"{layers}.{2 * j + 1}.module")
        if i + 1 < len(config.num_layers):
            parts = f"{layers}.{2 * depth}", f"{layers}.{2 * depth + 1}.module"
            table += names.shrinking(config, i + 1, *parts)
    return table


def timm_rows(config):
    """The table with timm's names and the classifiers."""
    names, table = Names("bn", "qkv", "q.ln", "kv", "proj.ln", "ln1", "ln2"), []
    for i in range(4):
        table += convolution(f"stem/layer_{i}", f"stem.conv{i + 1}.linear")
        table += batch_norm(f"stem/layer_{i}/norm", f"stem.conv{i + 1}.bn")
    for i, depth in enumerate(config.num_layers):
        if i:
            theirs = f"stages.{i}.downsample"
            table += names.shrinking(config, i, f"{theirs}.attn_downsample", f"{theirs}.mlp")
        for j in range(depth):
            theirs = f"stages.{i}.blocks.{j}"
            table += names.block(config, i, j, f"{theirs}.attn", f"{theirs}.mlp")
    for ours, theirs in (("", "head"), ("distilled_", "head_dist")):
        table += batch_norm(f"{ours}norm", f"{theirs}.bn")
        table += linear(f"{ours}head/output", f"{theirs}.linear")
    return table


def side_of(config):
    """The side of an image; ValueError for images that they do not take."""
    sides = set(np.broadcast_to(config.image_size, 2).tolist())
    if len(sides) > 1 or any(side % 16 for side in sides):
        size = config.image_size
        raise ValueError(f"LevitModel takes only squares of a multiple of 16 pixels; `image_size` is {size}.")
    return sides.pop()


def check(config):
    """ValueError for a configuration that they compute in another way."""
    side_of(config)
    if len(config.dims) != 3:
        raise ValueError(f"LevitModel has three stages; `dims` are {config.dims}.")


def read_key_dim(value, _):
    """The width of a head's queries, the same in all stages; ValueError otherwise."""
    (width,) = set(value)
    return width


def unit_norm(tensors):
    """A norm that changes nothing, as wide as the last of the `tensors`' feed-forward layers."""
    outputs = [key for key in tensors if key.endswith("linear_down.linear.weight")]
    last = max(outputs, key=lambda key: [int(number) for number in re.findall(r"\d+", key)], default=None)
    if last is None:
        return {}
    values = {"weight": np.ones, "bias": np.zeros, "running_mean": np.zeros, "running_var": np.ones}
    return {
        f"classifier.batch_norm.{name}": make(len(tensors[last]), "float32") for name, make in values.items()
    }


CLASSIFIER, OF_TEACHER = linear("head/output", "classifier.linear"), "classifier_distill"
FAMILY = Family(
    model_type="levit",
    backbone="LevitModel",
    model=LeViT,
    prefix="levit.",
    outer_keys=("classifier.", f"{OF_TEACHER}."),
    fields={
        "image_size": Entry("image_size", lambda value, _: value, side_of),
        "num_channels": "num_channels",
        "dims": "hidden_sizes",
        "num_layers": "depths",
        "num_heads": "num_attention_heads",
        "key_dim": Entry("key_dim", read_key_dim, lambda config: [config.key_dim] * len(config.dims)),
        # Theirs takes a whole number alone. The rate changes training only, so it is left out.
        "stochastic_depth": Entry("drop_path_rate", lambda value, _: value, lambda _: 0),
    },
    default_entries={"drop_path_rate": 0},
    fixed_entries={
        "patch_size": 16,
        "kernel_size": 3,
        "stride": 2,
        "padding": 1,
        "attention_ratio": [2, 2, 2],
        "mlp_ratio": [2, 2, 2],
    },
    check=check,
    rows=rows,
    heads={
        "LevitForImageClassificationWithTeacher": Head(
            DistilledClassifier,
            CLASSIFIER + linear("distilled_head/output", f"{OF_TEACHER}.linear"),
            options={"num_classes": LABELS},
        ),
        "LevitForImageClassification": class_head("classifier.linear", missing_parts=("distilled",)),
    },
    parts={"distilled": f"{OF_TEACHER}."},
    default_tensors=unit_norm,
    buffers=(r".*\.num_batches_tracked",),
    buffers_of=batch_counts,
)
TIMM = TimmFamily(
    model=LeViT,
    rows=timm_rows,
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
