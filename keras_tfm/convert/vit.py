"""ViT's checkpoints (Dosovitskiy et al. 2021), with the pooling layer of `ViTModel` or with a classifier."""

from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.keymap import Transform, attention, feedforward, linear, norm, patches, weight
from keras_tfm.heads import Classifier
from keras_tfm.models import ViT

FIRST_OF_ONE = Transform(lambda array: array[0], lambda array, _: [array[None]])  # an axis for the batch


def attention_rows(ours, theirs):
    """The attention of a block."""
    parts = ("attention.query", "attention.key", "attention.value", "output.dense")
    return attention(f"{ours}/attention", *(f"{theirs}.attention.{part}" for part in parts))


def encoder_rows(ours, theirs):
    """The blocks of ViT and its kin, as transformers names them."""
    return [
        *attention_rows(ours, theirs),
        *norm(f"{ours}/attention/norm", f"{theirs}.layernorm_before"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.intermediate.dense", f"{theirs}.output.dense"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.layernorm_after"),
    ]


def embedding_rows(config):
    """The `PatchEncoder`, for patches of the configuration's size."""
    encoder = "patch_encoder"
    return [
        *patches(f"{encoder}/patches", "embeddings.patch_embeddings.projection", config.patch_size),
        *weight(f"{encoder}/class_token/embedding", "embeddings.cls_token"),
        *weight(f"{encoder}/position/embedding/embeddings", "embeddings.position_embeddings", FIRST_OF_ONE),
    ]


def rows(config):
    """The table of a configuration."""
    return [
        *embedding_rows(config),
        *encoder_rows("block_{}", "encoder.layer.{}"),
        *norm("norm", "layernorm"),
        *linear("pooler", "pooler.dense"),
    ]


def sides(size):
    """The (height, width) of a field."""
    return size if isinstance(size, tuple) else (size, size)


def side(axis):
    """A patch's height (axis 0) or width (axis 1) in a configuration."""
    return lambda config: sides(config.patch_size)[axis]


def num_patches(config):
    """How many patches there are, those counted that are whole."""
    rows, columns = (size // side(axis)(config) for axis, size in enumerate(sides(config.image_size)))
    return rows * columns


FIELDS = {
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
}
SHAPES = {
    "embeddings.patch_embeddings.projection.weight": ("dim", "num_channels", side(0), side(1)),
    "embeddings.position_embeddings": (lambda _: 1, lambda config: num_patches(config) + 1, "dim"),
    "encoder.layer.0.intermediate.dense.bias": ("intermediate_dim",),
}

FAMILY = Family(
    model_type="vit",
    backbone="ViTModel",
    model=ViT,
    prefix="vit.",
    fields=FIELDS,
    absent={"layer_norm_eps": 1e-12},
    written={"attention_probs_dropout_prob": lambda config: config.dropout},
    fixed={"qkv_bias": True, "pooler_act": "tanh"},
    only={"pooling": "class"},
    shapes=SHAPES,
    parts={"pooler": "pooler."},
    rows=rows,
    heads={
        "ViTForImageClassification": Head(
            Classifier,
            linear("head/output", "classifier"),
            {"hidden_dim": None},
            {"num_classes": LABELS},
            lacks=("pooler",),
            excludes=("pooler",),
        ),
    },
)
