"""ImageGPT's checkpoints (Chen et al. 2020), with heads that predict colours and classes, and the palette."""

import numpy as np

from keras_tfm.configs import brief
from keras_tfm.convert.family import LABELS, Family, Head
from keras_tfm.convert.folder import find_folder, inside
from keras_tfm.convert.gpt2 import ENTRIES, FIELDS, conv1d
from keras_tfm.convert.keymap import TRANSPOSED, embedding, weight
from keras_tfm.convert.preprocessing import NAME
from keras_tfm.heads import Classifier, LanguageModel
from keras_tfm.models import ImageGPT, Palette
from keras_tfm.training.folder import Path
from keras_tfm.training.safetensors import CheckpointError, read_json

FAMILY = Family(
    model_type="imagegpt",
    backbone="ImageGPTModel",
    model=ImageGPT,
    prefix="transformer.",
    fields=FIELDS,
    fixed_entries={**ENTRIES, "tie_word_embeddings": False},
    rows=[
        *embedding("embedding/token", "wte"),
        *embedding("embedding/position/embedding", "wpe"),
        *weight("block_{}/attention/norm/gamma", "h.{}.ln_1.weight"),
        *conv1d("block_{}/attention/branch/projections/query_key_value", "h.{}.attn.c_attn"),
        *conv1d("block_{}/attention/branch/output", "h.{}.attn.c_proj"),
        *weight("block_{}/feedforward/norm/gamma", "h.{}.ln_2.weight"),
        *conv1d("block_{}/feedforward/branch/hidden", "h.{}.mlp.c_fc"),
        *conv1d("block_{}/feedforward/branch/output", "h.{}.mlp.c_proj"),
        *weight("norm/gamma", "ln_f.weight"),
    ],
    heads={
        "ImageGPTForCausalImageModeling": Head(
            LanguageModel, weight("head/dense/kernel", "lm_head.weight", TRANSPOSED), {"tied": False}
        ),
        "ImageGPTForImageClassification": Head(
            Classifier,
            weight("head/output/kernel", "score.weight", TRANSPOSED),
            {"hidden_dim": None, "pooling": "mean", "use_bias": False},
            {"num_classes": LABELS},
        ),
    },
    buffers=(r"h\.\d+\.attn\.(masked_)?bias",),
)


def palette_of(name: Path) -> Palette:
    """The `Palette` in the preprocessor_config.json of an ImageGPT's folder, or of a hub id.

    Raises CheckpointError if it has no `clusters`, three numbers from -1 to 1 for each colour.

    >>> import json, pathlib
    >>> pathlib.Path("imagegpt").mkdir()
    >>> entries = json.dumps({"clusters": [[-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]]})
    >>> size = pathlib.Path("imagegpt/preprocessor_config.json").write_text(entries)
    >>> keras_tfm.convert.palette_of("imagegpt").colors.shape
    (2, 3)
    """
    path = inside(find_folder(name), NAME)
    clusters = read_json(path).get("clusters")
    try:
        colors = np.asarray(clusters, "float64")
        if colors.ndim != 2 or colors.shape[1] != 3 or not (np.abs(colors) <= 1).all():
            raise ValueError
    except (TypeError, ValueError):
        raise CheckpointError(
            path, "clusters", "rows of three numbers from -1 to 1", brief(clusters)
        ) from None
    return Palette(colors)
