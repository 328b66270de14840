"""ALBERT's checkpoints (Lan et al. 2020), with the heads of its pre-training and of fine-tuning."""

from keras_tfm.convert.bert import FAMILY as BERT
from keras_tfm.convert.bert import own_activation
from keras_tfm.convert.family import LABELS, Family, Head, rate
from keras_tfm.convert.keymap import embedding, linear, norm, weight
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, SpanFinder, TokenTagger
from keras_tfm.models import ALBERT

BLOCK, LAYER = "encoder/group_{}/block_{}", "encoder.albert_layer_groups.{}.albert_layers.{}"
ROWS = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *embedding("embedding/position/embedding", "embeddings.position_embeddings"),
    *embedding("embedding/segment", "embeddings.token_type_embeddings"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *linear("encoder/projection", "encoder.embedding_hidden_mapping_in"),
    *linear(
        f"{BLOCK}/attention/query_key_value",
        f"{LAYER}.attention.query",
        f"{LAYER}.attention.key",
        f"{LAYER}.attention.value",
    ),
    *linear(f"{BLOCK}/attention/output", f"{LAYER}.attention.dense"),
    *norm(f"{BLOCK}/attention_norm", f"{LAYER}.attention.LayerNorm"),
    *linear(f"{BLOCK}/feedforward/hidden", f"{LAYER}.ffn"),
    *linear(f"{BLOCK}/feedforward/output", f"{LAYER}.ffn_output"),
    *norm(f"{BLOCK}/feedforward_norm", f"{LAYER}.full_layer_layer_norm"),
    *linear("pooler", "pooler"),
]
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
    absent={
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16_384,
        "hidden_act": "gelu_new",
    },
    fixed={"tie_word_embeddings": True, "position_embedding_type": "absolute"},
    shapes={
        "embeddings.word_embeddings.weight": ("vocabulary_size", "embedding_dim"),
        "embeddings.position_embeddings.weight": ("max_length", "embedding_dim"),
        "embeddings.token_type_embeddings.weight": ("num_segments", "embedding_dim"),
        "encoder.albert_layer_groups.0.albert_layers.0.ffn.weight": ("intermediate_dim", "dim"),
    },
    parts={"pooler": "pooler."},
    rows=ROWS,
    num_blocks=lambda config: config.num_groups * config.group_size,
    heads={
        "AlbertForPreTraining": Head(
            MaskedLM,
            [*MASKED_LM, *linear("nsp/output", "sop_classifier.classifier")],
            {"next_sentence": True, "activation": own_activation},
            {"dropout": DROPOUT},
        ),
        "AlbertForMaskedLM": Head(
            MaskedLM, MASKED_LM, {"next_sentence": False, "activation": own_activation}, lacks=("pooler",)
        ),
        "AlbertForSequenceClassification": Head(Classifier, **CLASSIFIER, arguments={"hidden_dim": None}),
        "AlbertForTokenClassification": Head(TokenTagger, **CLASSIFIER, lacks=("pooler",)),
        "AlbertForMultipleChoice": Head(
            MultipleChoice, CLASSIFIER["rows"], {"hidden_dim": None}, {"dropout": DROPOUT}
        ),
        "AlbertForQuestionAnswering": Head(
            SpanFinder, linear("head/output", "qa_outputs"), lacks=("pooler",)
        ),
    },
    copies={
        "predictions.decoder.weight": "{prefix}embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    ignored=(r"embeddings\.position_ids",),
)
