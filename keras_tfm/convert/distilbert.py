"""DistilBERT's checkpoints (Sanh et al. 2019), with the heads of its pre-training and of fine-tuning."""

from keras_tfm.convert.family import LABELS, Family, Head, rate
from keras_tfm.convert.keymap import attention, embedding, feedforward, linear, norm, weight
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, SpanFinder, TokenTagger
from keras_tfm.models import DistilBERT

LAYER = "transformer.layer.{}"
ROWS = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *embedding("embedding/position/embedding", "embeddings.position_embeddings"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *attention("block_{}/attention", *(f"{LAYER}.attention.{x}_lin" for x in ("q", "k", "v", "out"))),
    *norm("block_{}/attention/norm", f"{LAYER}.sa_layer_norm"),
    *feedforward("block_{}/feedforward", f"{LAYER}.ffn.lin1", f"{LAYER}.ffn.lin2"),
    *norm("block_{}/feedforward/norm", f"{LAYER}.output_layer_norm"),
]
MASKED_LM = [
    *linear("mlm/dense", "vocab_transform"),
    *norm("mlm/norm", "vocab_layer_norm"),
    *weight("mlm/vocabulary/bias", "vocab_projector.bias"),
]
TWO_LAYERS = [*linear("head/hidden", "pre_classifier"), *linear("head/output", "classifier")]
HIDDEN_LAYER = {"hidden_dim": lambda config: config.dim, "activation": "relu"}
DROPOUT = rate("seq_classif_dropout", default=0.2)
DROPOUT_OF_STATES = rate("dropout", written=False)

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
        "intermediate_dim": "hidden_dim",
        "max_length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "activation": "activation",
    },
    fixed_entries={"tie_word_embeddings": True},
    fixed_fields={"epsilon": 1e-12},
    shapes={
        "embeddings.word_embeddings.weight": ("vocabulary_size", "dim"),
        "embeddings.position_embeddings.weight": ("max_length", "dim"),
        "transformer.layer.0.ffn.lin1.weight": ("intermediate_dim", "dim"),
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
            {"num_classes": LABELS, "dropout": DROPOUT},
        ),
        "DistilBertForMultipleChoice": Head(MultipleChoice, TWO_LAYERS, HIDDEN_LAYER, {"dropout": DROPOUT}),
        "DistilBertForTokenClassification": Head(
            TokenTagger,
            linear("head/output", "classifier"),
            options={"num_classes": LABELS, "dropout": DROPOUT_OF_STATES},
        ),
        "DistilBertForQuestionAnswering": Head(
            SpanFinder, linear("head/output", "qa_outputs"), options={"dropout": rate("qa_dropout")}
        ),
    },
    copies={"vocab_projector.weight": "{prefix}embeddings.word_embeddings.weight"},
    buffers=(r"embeddings\.position_ids",),
)
