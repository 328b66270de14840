"""DistilBERT's checkpoints (Sanh et al. 2019), with the heads of its pre-training and of fine-tuning."""

from keras_tfm.convert.family import Family, Head, labels_of, number_of_labels
from keras_tfm.convert.keymap import embedding, linear, norm, weight
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, SpanFinder, TokenTagger
from keras_tfm.models import DistilBERT

BLOCK, LAYER = "encoder/block_{}", "transformer.layer.{}"
ROWS = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *embedding("embedding/position/embedding", "embeddings.position_embeddings"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *linear(
        f"{BLOCK}/attention/query_key_value",
        f"{LAYER}.attention.q_lin",
        f"{LAYER}.attention.k_lin",
        f"{LAYER}.attention.v_lin",
    ),
    *linear(f"{BLOCK}/attention/output", f"{LAYER}.attention.out_lin"),
    *norm(f"{BLOCK}/attention_norm", f"{LAYER}.sa_layer_norm"),
    *linear(f"{BLOCK}/feedforward/hidden", f"{LAYER}.ffn.lin1"),
    *linear(f"{BLOCK}/feedforward/output", f"{LAYER}.ffn.lin2"),
    *norm(f"{BLOCK}/feedforward_norm", f"{LAYER}.output_layer_norm"),
]
MASKED_LM = [
    *linear("mlm/dense", "vocab_transform"),
    *norm("mlm/norm", "vocab_layer_norm"),
    *weight("mlm/vocabulary/bias", "vocab_projector.bias"),
]
TWO_LAYERS = [*linear("head/hidden", "pre_classifier"), *linear("head/output", "classifier")]
HIDDEN_LAYER = {"hidden_dim": lambda config: config.dim, "activation": "relu"}


def dropout_of(entries):
    return {"dropout": entries.get("seq_classif_dropout", 0.2)}


def dropout_entries(model):
    return {"seq_classif_dropout": model.dropout}


def classifier_options(entries):
    return {"num_classes": number_of_labels(entries), **dropout_of(entries)}


def classifier_entries(model):
    return {**dropout_entries(model), **labels_of(model.num_classes)}


def tagger_options(entries):
    """A tagger's, whose dropout is that of the hidden states."""
    return {"num_classes": number_of_labels(entries), "dropout": entries.get("dropout", 0.1)}


def tagger_entries(model):
    return labels_of(model.num_classes)


def span_options(entries):
    return {"dropout": entries.get("qa_dropout", 0.1)}


def span_entries(model):
    return {"qa_dropout": model.dropout}


FAMILY = Family(
    model_type="distilbert",
    backbone="DistilBertModel",
    model=DistilBERT,
    prefix="distilbert.",
    fields={
        "vocabulary_size": "vocab_size",
        "num_layers": "n_layers",
        "dim": "dim",
        "num_heads": "n_heads",
        "hidden_dim": "hidden_dim",
        "max_length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation": "activation",
    },
    fixed={"tie_word_embeddings": True},
    only={"epsilon": 1e-12},
    shapes={
        "embeddings.word_embeddings.weight": ("vocabulary_size", "dim"),
        "embeddings.position_embeddings.weight": ("max_length", "dim"),
        "transformer.layer.0.ffn.lin1.weight": ("hidden_dim", "dim"),
    },
    rows=ROWS,
    heads={
        "DistilBertForMaskedLM": Head(
            MaskedLM, MASKED_LM, {"next_sentence": False, "activation": lambda config: config.activation}
        ),
        "DistilBertForSequenceClassification": Head(
            Classifier,
            TWO_LAYERS,
            HIDDEN_LAYER,
            classifier_options,
            classifier_entries,
        ),
        "DistilBertForMultipleChoice": Head(
            MultipleChoice, TWO_LAYERS, HIDDEN_LAYER, dropout_of, dropout_entries
        ),
        "DistilBertForTokenClassification": Head(
            TokenTagger, linear("head/output", "classifier"), {}, tagger_options, tagger_entries
        ),
        "DistilBertForQuestionAnswering": Head(
            SpanFinder, linear("head/output", "qa_outputs"), {}, span_options, span_entries
        ),
    },
    copies={"vocab_projector.weight": "{prefix}embeddings.word_embeddings.weight"},
    ignored=(r"embeddings\.position_ids",),
)
