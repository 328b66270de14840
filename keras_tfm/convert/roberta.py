"""RoBERTa's checkpoints (Liu et al. 2019), with the heads of its pre-training and of fine-tuning.

XLM-RoBERTa (Conneau et al. 2020) is the same model under its own names, of another vocabulary.
"""

import dataclasses

from keras_tfm.convert.bert import CLASSIFIER, ROWS
from keras_tfm.convert.bert import FAMILY as BERT
from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, Head, rate
from keras_tfm.convert.keymap import linear, norm, weight
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, SpanFinder, TokenTagger
from keras_tfm.models import RoBERTa

MASKED_LM = [
    *linear("mlm/dense", "lm_head.dense"),
    *norm("mlm/norm", "lm_head.layer_norm"),
    *weight("mlm/vocabulary/bias", "lm_head.bias"),
]
TWO_LAYERS = [*linear("head/hidden", "classifier.dense"), *linear("head/output", "classifier.out_proj")]


# A single rate, used before each of the classifier's layers.
INPUT_DROPOUT = rate("classifier_dropout", "hidden_dropout_prob", written=False)


def length_of(num_positions, entries):
    """The length of the longest text; the first rows of the table are not positions."""
    return num_positions - entries["pad_token_id"] - 1


FAMILY = Family(
    model_type="roberta",
    backbone="RobertaModel",
    model=RoBERTa,
    prefix="roberta.",
    fields={
        "pad_id": "pad_token_id",
        **BERT.fields,
        "max_length": Entry("max_position_embeddings", length_of, lambda config: config.num_positions),
    },
    default_entries={
        "pad_token_id": 1,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    },
    fixed_entries=BERT.fixed_entries,
    parts=BERT.parts,
    rows=ROWS,
    heads={
        "RobertaForMaskedLM": Head(
            MaskedLM, MASKED_LM, {"next_sentence": False, "activation": "gelu"}, missing_parts=("pooler",)
        ),
        "RobertaForSequenceClassification": Head(
            Classifier,
            TWO_LAYERS,
            {"hidden_dim": lambda config: config.dim, "activation": "tanh"},
            {**CLASSIFIER["options"], "input_dropout": INPUT_DROPOUT},
            missing_parts=("pooler",),
            refused_parts=("pooler",),
        ),
        "RobertaForTokenClassification": Head(TokenTagger, **CLASSIFIER, missing_parts=("pooler",)),
        "RobertaForMultipleChoice": Head(
            MultipleChoice,
            CLASSIFIER["rows"],
            {"hidden_dim": None},
            {"dropout": rate("hidden_dropout_prob", written=False)},
        ),
        "RobertaForQuestionAnswering": Head(
            SpanFinder, linear("head/output", "qa_outputs"), missing_parts=("pooler",)
        ),
    },
    copies={
        "lm_head.decoder.weight": "{prefix}embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    buffers=BERT.buffers,
)
XLM_ROBERTA = dataclasses.replace(
    FAMILY,
    model_type="xlm-roberta",
    backbone=f"XLM{FAMILY.backbone}",
    heads={f"XLM{name}": head for name, head in FAMILY.heads.items()},
)
