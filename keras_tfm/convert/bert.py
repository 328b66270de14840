"""BERT's checkpoints (Devlin et al. 2019), with the heads of its pre-training and of fine-tuning."""

from keras_tfm.convert.family import LABELS, Family, Head, rate
from keras_tfm.convert.keymap import attention, embedding, feedforward, linear, norm, weight
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, NextSentence, SpanFinder, TokenTagger
from keras_tfm.models import BERT

LAYER = "encoder.layer.{}"
ROWS = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *embedding("embedding/position/embedding", "embeddings.position_embeddings"),
    *embedding("embedding/segment", "embeddings.token_type_embeddings"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *attention(
        "block_{}/attention",
        f"{LAYER}.attention.self.query",
        f"{LAYER}.attention.self.key",
        f"{LAYER}.attention.self.value",
        f"{LAYER}.attention.output.dense",
    ),
    *norm("block_{}/attention/norm", f"{LAYER}.attention.output.LayerNorm"),
    *feedforward("block_{}/feedforward", f"{LAYER}.intermediate.dense", f"{LAYER}.output.dense"),
    *norm("block_{}/feedforward/norm", f"{LAYER}.output.LayerNorm"),
    *linear("pooler", "pooler.dense"),
]
MASKED_LM = [
    *linear("mlm/dense", "cls.predictions.transform.dense"),
    *norm("mlm/norm", "cls.predictions.transform.LayerNorm"),
    *weight("mlm/vocabulary/bias", "cls.predictions.bias"),
]
NEXT_SENTENCE = linear("nsp/output", "cls.seq_relationship")


DROPOUT = rate("classifier_dropout", "hidden_dropout_prob")
CLASSIFIER = {
    "rows": linear("head/output", "classifier"),
    "options": {"num_classes": LABELS, "dropout": DROPOUT},
}


def own_activation(config):
    """The activation of the backbone."""
    return config.activation


FAMILY = Family(
    model_type="bert",
    backbone="BertModel",
    model=BERT,
    prefix="bert.",
    fields={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_hidden_layers",
        "dim": "hidden_size",
        "num_heads": "num_attention_heads",
        "intermediate_dim": "intermediate_size",
        "max_length": "max_position_embeddings",
        "num_segments": "type_vocab_size",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "activation": "hidden_act",
        "epsilon": "layer_norm_eps",
    },
    fixed_entries={
        "is_decoder": False,
        "add_cross_attention": False,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
    },
    shapes={
        "embeddings.word_embeddings.weight": ("vocabulary_size", "dim"),
        "embeddings.position_embeddings.weight": ("max_length", "dim"),
        "embeddings.token_type_embeddings.weight": ("num_segments", "dim"),
        "encoder.layer.0.intermediate.dense.weight": ("intermediate_dim", "dim"),
    },
    parts={"pooler": "pooler."},
    rows=ROWS,
    heads={
        "BertForPreTraining": Head(
            MaskedLM, MASKED_LM + NEXT_SENTENCE, {"next_sentence": True, "activation": own_activation}
        ),
        "BertForMaskedLM": Head(
            MaskedLM,
            MASKED_LM,
            {"next_sentence": False, "activation": own_activation},
            missing_parts=("pooler",),
        ),
        "BertForNextSentencePrediction": Head(NextSentence, NEXT_SENTENCE),
        "BertForSequenceClassification": Head(Classifier, **CLASSIFIER, arguments={"hidden_dim": None}),
        "BertForTokenClassification": Head(TokenTagger, **CLASSIFIER, missing_parts=("pooler",)),
        "BertForMultipleChoice": Head(
            MultipleChoice, CLASSIFIER["rows"], {"hidden_dim": None}, {"dropout": DROPOUT}
        ),
        "BertForQuestionAnswering": Head(
            SpanFinder, linear("head/output", "qa_outputs"), missing_parts=("pooler",)
        ),
    },
    copies={
        "cls.predictions.decoder.weight": "{prefix}embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    buffers=(r"embeddings\.position_ids",),
)
