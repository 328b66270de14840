"""FNet's checkpoints (Lee-Thorp et al. 2022), with the heads of its pre-training and of fine-tuning."""

from keras_tfm.convert.bert import FAMILY as BERT
from keras_tfm.convert.bert import MASKED_LM, NEXT_SENTENCE, own_activation
from keras_tfm.convert.family import LABELS, Family, Head, rate
from keras_tfm.convert.keymap import embedding, feedforward, linear, norm
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, NextSentence, SpanFinder, TokenTagger
from keras_tfm.models import FNet

LAYER = "encoder.layer.{}"
ROWS = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *embedding("embedding/position/embedding", "embeddings.position_embeddings"),
    *embedding("embedding/segment", "embeddings.token_type_embeddings"),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *linear("projection", "embeddings.projection"),
    *norm("block_{}/attention/norm", f"{LAYER}.fourier.output.LayerNorm"),
    *feedforward("block_{}/feedforward", f"{LAYER}.intermediate.dense", f"{LAYER}.output.dense"),
    *norm("block_{}/feedforward/norm", f"{LAYER}.output.LayerNorm"),
    *linear("pooler", "pooler.dense"),
]
DROPOUT = rate("hidden_dropout_prob", written=False)  # the backbone writes it
CLASSIFIER = {
    "rows": linear("head/output", "classifier"),
    "options": {"num_classes": LABELS, "dropout": DROPOUT},
}
WITHOUT_HEADS = ("num_heads", "attention_dropout")

FAMILY = Family(
    model_type="fnet",
    backbone="FNetModel",
    model=FNet,
    prefix="fnet.",
    fields={ours: theirs for ours, theirs in BERT.fields.items() if ours not in WITHOUT_HEADS},
    default_entries={"vocab_size": 32_000, "type_vocab_size": 4, "hidden_act": "gelu_new"},
    fixed_entries={"tie_word_embeddings": True},
    shapes=BERT.shapes,
    parts={"pooler": "pooler."},
    rows=ROWS,
    heads={
        "FNetForPreTraining": Head(
            MaskedLM, MASKED_LM + NEXT_SENTENCE, {"next_sentence": True, "activation": own_activation}
        ),
        "FNetForMaskedLM": Head(MaskedLM, MASKED_LM, {"next_sentence": False, "activation": own_activation}),
        "FNetForNextSentencePrediction": Head(NextSentence, NEXT_SENTENCE),
        "FNetForSequenceClassification": Head(Classifier, **CLASSIFIER, arguments={"hidden_dim": None}),
        "FNetForTokenClassification": Head(TokenTagger, **CLASSIFIER),
        "FNetForMultipleChoice": Head(
            MultipleChoice, CLASSIFIER["rows"], {"hidden_dim": None}, {"dropout": DROPOUT}
        ),
        "FNetForQuestionAnswering": Head(SpanFinder, linear("head/output", "qa_outputs")),
    },
    copies=BERT.copies,
    buffers=(r"embeddings\.(position_ids|token_type_ids)",),
)
