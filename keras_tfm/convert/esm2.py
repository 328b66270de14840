"""ESM-2's checkpoints (Lin et al. 2023), with the heads of its pre-training and of fine-tuning.

Their files also hold the frequencies of positions, which follow from the configuration.
"""

import numpy as np

from keras_tfm.convert.bert import LAYER
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head, rate
from keras_tfm.convert.keymap import attention, embedding, feedforward, linear, norm
from keras_tfm.convert.roberta import MASKED_LM, TWO_LAYERS
from keras_tfm.heads import Classifier, MaskedLM, TokenTagger
from keras_tfm.models import ESM2

ROWS = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *norm("embedding_norm", "embeddings.layer_norm"),
    *attention(
        "block_{}/attention",
        f"{LAYER}.attention.self.query",
        f"{LAYER}.attention.self.key",
        f"{LAYER}.attention.self.value",
        f"{LAYER}.attention.output.dense",
    ),
    *norm("block_{}/attention/norm", f"{LAYER}.attention.LayerNorm"),
    *feedforward("block_{}/feedforward", f"{LAYER}.intermediate.dense", f"{LAYER}.output.dense"),
    *norm("block_{}/feedforward/norm", f"{LAYER}.LayerNorm"),
    *norm("norm", "encoder.emb_layer_norm_after"),
    *linear("pooler", "pooler.dense"),
    *linear("contact_head", "contact_head.regression"),
]
DROPOUT = rate("hidden_dropout_prob", written=False)


def derived_tensors(config):
    """The positions' frequencies."""
    width = config.dim // config.num_heads
    frequencies = config.rotary_base ** (-np.arange(0, width, 2) / width)
    return {"rotary_embeddings.inv_freq": frequencies.astype("float32")}


FAMILY = Family(
    model_type="esm",
    backbone="EsmModel",
    model=ESM2,
    prefix="esm.",
    fields={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "dim": "hidden_size",
        "num_heads": "num_attention_heads",
        "intermediate_dim": "intermediate_size",
        "max_length": "max_position_embeddings",
        "pad_id": "pad_token_id",
        "mask_id": "mask_token_id",
        "token_dropout": "token_dropout",
        "embedding_norm": Entry(
            "emb_layer_norm_before", lambda value, _: bool(value), lambda config: config.embedding_norm
        ),
        "rotary_base": "rope_theta",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "epsilon": "layer_norm_eps",
    },
    default_entries={
        "layer_norm_eps": 1e-12,
        "token_dropout": False,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "position_embedding_type": "absolute",
    },
    fixed_entries={
        "position_embedding_type": "rotary",
        "is_decoder": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    fixed_fields={"activation": "gelu"},
    parts={"pooler": "pooler."},
    rows=ROWS,
    heads={
        "EsmForMaskedLM": Head(
            MaskedLM, MASKED_LM, {"next_sentence": False, "activation": "gelu"}, missing_parts=("pooler",)
        ),
        "EsmForSequenceClassification": Head(
            Classifier,
            TWO_LAYERS,
            {"hidden_dim": lambda config: config.dim, "activation": "tanh"},
            {"num_classes": LABELS, "dropout": DROPOUT, "input_dropout": DROPOUT},
            missing_parts=("pooler",),
            refused_parts=("pooler",),
        ),
        "EsmForTokenClassification": Head(
            TokenTagger,
            linear("head/output", "classifier"),
            options={"num_classes": LABELS, "dropout": DROPOUT},
            missing_parts=("pooler",),
        ),
    },
    copies={"lm_head.decoder.weight": "{prefix}embeddings.word_embeddings.weight"},
    buffers=(
        r"(encoder\.layer\.(\d+|\*)\.attention\.self\.)?rotary_embeddings\.inv_freq",  # one, or one a layer
        r"embeddings\.position_ids",
        r"embeddings\.position_embeddings\.weight",  # of files before they were left out
    ),
    derived_tensors=derived_tensors,
)
