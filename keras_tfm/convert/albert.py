"""ALBERT's checkpoints (Lan et al. 2020), with the heads of its pre-training and of fine-tuning."""

from keras_tfm.convert.bert import FAMILY as BERT
from keras_tfm.convert.bert import own_activation
from keras_tfm.convert.family import LABELS, Family, Head, rate
from keras_tfm.convert.keymap import attention, embedding, feedforward, linear, norm, weight
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, SpanFinder, TokenTagger
from keras_tfm.models import ALBERT

BACKBONE = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *embedding("embedding/position/embedding", "embeddings.position_embeddings"),
    *embedding("embedding/segment", "embeddings.token_type_embeddings"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *linear("projection", "encoder.embedding_hidden_mapping_in"),
    *linear("pooler", "pooler"),
]


def rows(config):
    """The table of weights. Their blocks have two numbers: the group's, and the block's within the group."""
    table = list(BACKBONE)
    for number in range(config.num_groups * config.group_size):
        group, index = divmod(number, config.group_size)
        block, layer = f"block_{number}", f"encoder.albert_layer_groups.{group}.albert_layers.{index}"
        table += [
            *attention(
                f"{block}/attention",
                *(f"{layer}.attention.{part}" for part in ("query", "key", "value", "dense")),
            ),
            *norm(f"{block}/attention/norm", f"{layer}.attention.LayerNorm"),
            *feedforward(f"{block}/feedforward", f"{layer}.ffn", f"{layer}.ffn_output"),
            *norm(f"{block}/feedforward/norm", f"{layer}.full_layer_layer_norm"),
        ]
    return table


MASKED_LM = [
    *linear("mlm/dense", "predictions.dense"),
    *norm("mlm/norm", "predictions.LayerNorm"),
    *weight("mlm/vocabulary/bias", "predictions.bias"),
]
DROPOUT = rate("classifier_dropout_prob")
CLASSIFIER = {
    "rows": linear("head/output", "classifier"),
    "options": {"num_classes": LABELS, "dropout": DROPOUT},
}

FAMILY = Family(
    model_type="albert",
    backbone="AlbertModel",
    model=ALBERT,
    prefix="albert.",
    fields={
        **BERT.fields,
        "embedding_dim": "embedding_size",
        "num_groups": "num_hidden_groups",
        "group_size": "inner_group_num",
    },
    default_entries={
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16_384,
        "hidden_act": "gelu_new",
    },
    fixed_entries={"tie_word_embeddings": True, "position_embedding_type": "absolute"},
    parts={"pooler": "pooler."},
    rows=rows,
    heads={
        "AlbertForPreTraining": Head(
            MaskedLM,
            [*MASKED_LM, *linear("nsp/output", "sop_classifier.classifier")],
            {"next_sentence": True, "activation": own_activation},
            {"dropout": DROPOUT},
        ),
        "AlbertForMaskedLM": Head(
            MaskedLM,
            MASKED_LM,
            {"next_sentence": False, "activation": own_activation},
            missing_parts=("pooler",),
        ),
        "AlbertForSequenceClassification": Head(Classifier, **CLASSIFIER, arguments={"hidden_dim": None}),
        "AlbertForTokenClassification": Head(TokenTagger, **CLASSIFIER, missing_parts=("pooler",)),
        "AlbertForMultipleChoice": Head(
            MultipleChoice, CLASSIFIER["rows"], {"hidden_dim": None}, {"dropout": DROPOUT}
        ),
        "AlbertForQuestionAnswering": Head(
            SpanFinder, linear("head/output", "qa_outputs"), missing_parts=("pooler",)
        ),
    },
    copies={
        "predictions.decoder.weight": "{prefix}embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    buffers=(r"embeddings\.position_ids",),
)
