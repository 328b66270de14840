"""DeBERTa's checkpoints, version 1 (He et al. 2021), 2 and 3 (He et al. 2023), with their heads.

transformers names the weights of the masked language model's head in two ways. Both are read; the names that
it calls "legacy" are written.
"""

import dataclasses

from keras_tfm.convert.bert import MASKED_LM, own_activation
from keras_tfm.convert.entries import Entry, our_activation, their_activation
from keras_tfm.convert.family import LABELS, Family, Head, Option, rate
from keras_tfm.convert.keymap import TRANSPOSED, Transform, embedding, feedforward, linear, norm, weight
from keras_tfm.heads import Classifier, MaskedLM, MultipleChoice, SpanFinder, TokenTagger
from keras_tfm.models import DeBERTa

BLOCK, LAYER = "block_{}", "encoder.layer.{}"
ATTENTION, SELF = f"{BLOCK}/attention/branch", f"{LAYER}.attention.self"
SHARED = [
    *embedding("embedding/token", "embeddings.word_embeddings"),
    *embedding("embedding/position/embedding", "embeddings.position_embeddings"),
    *embedding("embedding/segment", "embeddings.token_type_embeddings"),
    *weight("embedding_projection/kernel", "embeddings.embed_proj.weight", TRANSPOSED),
    *norm("embedding_norm", "embeddings.LayerNorm"),
    *weight("distances/embeddings", "encoder.rel_embeddings.weight"),
    *linear(f"{ATTENTION}/output", f"{LAYER}.attention.output.dense"),
    *norm(f"{BLOCK}/attention/norm", f"{LAYER}.attention.output.LayerNorm"),
    *feedforward(f"{BLOCK}/feedforward", f"{LAYER}.intermediate.dense", f"{LAYER}.output.dense"),
    *norm(f"{BLOCK}/feedforward/norm", f"{LAYER}.output.LayerNorm"),
]
QUERY_KEY_VALUE = [f"{SELF}.{part}_proj" for part in ("query", "key", "value")]
# torch.nn.Conv1d keeps (out, in, width), Keras (width, in, out).
CONVOLUTION = Transform(lambda array: array.transpose(2, 1, 0), lambda array, _: [array.transpose(2, 1, 0)])
VERSION_2 = [
    *SHARED,
    *linear(f"{ATTENTION}/projections/query_key_value", *QUERY_KEY_VALUE),
    *linear(f"{ATTENTION}/position_key", f"{SELF}.pos_key_proj"),
    *linear(f"{ATTENTION}/position_query", f"{SELF}.pos_query_proj"),
    *norm("distances/norm", "encoder.LayerNorm"),
    *weight("convolution/convolution/kernel", "encoder.conv.conv.weight", CONVOLUTION),
    *weight("convolution/convolution/bias", "encoder.conv.conv.bias"),
    *norm("convolution/norm", "encoder.conv.LayerNorm"),
]


def version_1(config):
    """The table of version 1, which packs each head's query, key and value side by side."""
    heads = config.num_heads

    def load(array):
        """(H 3 K, D) to (D, 3 H K)."""
        parts = array.reshape(heads, 3, -1, array.shape[1])  # (H, 3, K, D)
        return parts.transpose(3, 1, 0, 2).reshape(array.shape[1], -1)

    def save(array, _):
        parts = array.reshape(array.shape[0], 3, heads, -1)  # (D, 3, H, K)
        return [parts.transpose(2, 1, 3, 0).reshape(-1, array.shape[0])]

    return [
        *SHARED,
        *weight(
            f"{ATTENTION}/projections/query_key_value/kernel", f"{SELF}.in_proj.weight", Transform(load, save)
        ),
        *weight(f"{ATTENTION}/projections/query_bias", f"{SELF}.q_bias"),
        *weight(f"{ATTENTION}/projections/value_bias", f"{SELF}.v_bias"),
        *weight(f"{ATTENTION}/position_key/kernel", f"{SELF}.pos_proj.weight", TRANSPOSED),
        *linear(f"{ATTENTION}/position_query", f"{SELF}.pos_q_proj"),
    ]


# The rows of classifiers and of multiple choice, whose hidden layer transformers calls a pooler.
HIDDEN_OPTIONS = {
    "dropout": rate("cls_dropout", "hidden_dropout_prob"),
    "activation": Option(
        lambda entries: our_activation("pooler_hidden_act", entries.get("pooler_hidden_act", "gelu")),
        lambda name: {"pooler_hidden_act": their_activation(name)},
    ),
    "input_dropout": rate("pooler_dropout", default=0.0),
}
DROPOUT_OF_STATES = rate("hidden_dropout_prob", written=False)


def terms_of(value, entries):
    """("c2p", "p2c") for a list or for "c2p|p2c"; () without relative attention."""
    terms = value.lower().split("|") if isinstance(value, str) else value or []
    terms = tuple(term.strip() for term in terms)
    if bool(terms) != (entries.get("relative_attention", False) is True):
        raise ValueError
    return terms


def at_least_0(value, _):
    """Read a number; a negative one counts as 0."""
    return max(value, 0)


FIELDS: dict[str, str | Entry] = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "dim": "hidden_size",
    "num_heads": "num_attention_heads",
    "intermediate_dim": "intermediate_size",
    "max_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "embedding_dim": Entry(
        "embedding_size",
        lambda size, entries: None if size == entries.get("hidden_size") else size,
        lambda config: config.embedding_width,
    ),
    "absolute_positions": "position_biased_input",
    "position_terms": Entry("pos_att_type", terms_of, lambda config: list(config.position_terms)),
    "max_distance": Entry(
        "max_relative_positions", lambda x, _: x if x > 0 else None, lambda config: config.max_distance or -1
    ),
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "activation": "hidden_act",
    "epsilon": "layer_norm_eps",
}
ABSENT = {
    "type_vocab_size": 0,
    "position_biased_input": True,
    "relative_attention": False,
    "pos_att_type": None,
    "max_relative_positions": -1,
}
DERIVED = {
    "relative_attention": lambda config: bool(config.position_terms),
    "pooler_hidden_size": lambda config: config.dim,
    "legacy": lambda config: True,
}


TWO_LAYERS = [*linear("head/hidden", "pooler.dense"), *linear("head/output", "classifier")]
HIDDEN_LAYER = {"hidden_dim": lambda config: config.dim}


def heads(prefix):
    """The heads of the architectures whose names begin with `prefix`."""
    return {
        f"{prefix}ForMaskedLM": Head(
            MaskedLM, MASKED_LM, {"next_sentence": False, "activation": own_activation}
        ),
        f"{prefix}ForSequenceClassification": Head(
            Classifier,
            TWO_LAYERS,
            HIDDEN_LAYER,
            {"num_classes": LABELS, **HIDDEN_OPTIONS},
        ),
        f"{prefix}ForTokenClassification": Head(
            TokenTagger,
            linear("head/output", "classifier"),
            options={"num_classes": LABELS, "dropout": DROPOUT_OF_STATES},
        ),
        f"{prefix}ForQuestionAnswering": Head(SpanFinder, linear("head/output", "qa_outputs")),
    }


V2 = Family(
    model_type="deberta-v2",
    backbone="DebertaV2Model",
    model=DeBERTa,
    prefix="deberta.",
    fields={
        **FIELDS,
        "num_buckets": Entry("position_buckets", at_least_0, lambda config: config.num_buckets or -1),
        "normalize_distances": Entry(
            "norm_rel_ebd",
            lambda value, _: {"layer_norm": True, "none": False}[value.lower().strip()],
            lambda config: "layer_norm" if config.normalize_distances else "none",
        ),
        "share_projections": "share_att_key",
        "convolution": "conv_kernel_size",
        "convolution_activation": Entry(
            "conv_act",
            lambda value, _: our_activation("conv_act", value),
            lambda config: their_activation(config.convolution_activation),
        ),
    },
    default_entries={
        **ABSENT,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "share_att_key": False,
        "conv_kernel_size": 0,
        "conv_act": "tanh",
    },
    derived_entries=DERIVED,
    fixed_entries={"tie_word_embeddings": True, "conv_groups": 1},
    fixed_fields={"key_bias": True},
    rows=VERSION_2,
    heads={
        **heads("DebertaV2"),
        "DebertaV2ForMultipleChoice": Head(MultipleChoice, TWO_LAYERS, HIDDEN_LAYER, HIDDEN_OPTIONS),
    },
    renamed_keys={
        "lm_predictions.lm_head.dense.": "cls.predictions.transform.dense.",
        "lm_predictions.lm_head.LayerNorm.": "cls.predictions.transform.LayerNorm.",
        "lm_predictions.lm_head.bias": "cls.predictions.bias",
    },
    copies={
        "cls.predictions.decoder.weight": "{prefix}embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    # The enhanced mask decoder and the head of replaced-token detection, which transformers does not read.
    buffers=(r"embeddings\.position_(ids|embeddings\.weight)", r"mask_predictions\..*"),
)
V1 = dataclasses.replace(
    V2,
    model_type="deberta",
    backbone="DebertaModel",
    fields=FIELDS,
    default_entries={**ABSENT, "vocab_size": 50_265},
    fixed_entries={"tie_word_embeddings": True, "talking_head": False},
    fixed_fields={
        "key_bias": False,
        "num_buckets": 0,
        "normalize_distances": False,
        "share_projections": False,
        "convolution": 0,
    },
    rows=version_1,
    heads=heads("Deberta"),
)
