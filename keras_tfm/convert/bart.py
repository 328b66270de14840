"""BART's checkpoints (Lewis et al. 2020) and mBART's (Liu et al. 2020), with their heads."""

import dataclasses

import numpy as np

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import LABELS, Family, Head, first_of, rate
from keras_tfm.convert.keymap import (
    Transform,
    attention,
    context_attention,
    embedding,
    feedforward,
    linear,
    norm,
    weight,
)
from keras_tfm.heads import Classifier, LanguageModel, SpanFinder
from keras_tfm.models import BART

ROW_VECTOR = Transform(lambda array: array.reshape(-1), lambda array, count: [array[None]])


def projections(theirs):
    """Their keys for the queries', keys', values' and output projections of an attention layer."""
    return [f"{theirs}.{part}_proj" for part in ("q", "k", "v", "out")]


def stack(name):
    """The rows that encoder and decoder have in common."""
    block, layer = f"{name}_block_{{}}", f"{name}.layers.{{}}"
    return [
        *embedding(f"{name}_position/embedding", f"{name}.embed_positions"),
        *norm(f"{name}_embedding_norm", f"{name}.layernorm_embedding"),
        *attention(f"{block}/attention", *projections(f"{layer}.self_attn")),
        *norm(f"{block}/attention/norm", f"{layer}.self_attn_layer_norm"),
        *feedforward(f"{block}/feedforward", f"{layer}.fc1", f"{layer}.fc2"),
        *norm(f"{block}/feedforward/norm", f"{layer}.final_layer_norm"),
        *norm(f"{name}_norm", f"{name}.layer_norm"),  # only mBART has it
    ]


CONTEXT, CROSS = "decoder_block_{}/context_attention", "decoder.layers.{}.encoder_attn"
ROWS = [
    *embedding("embedding/token", "shared"),
    *stack("encoder"),
    *stack("decoder"),
    *context_attention(CONTEXT, *projections(CROSS)),
    *norm(f"{CONTEXT}/norm", f"{CROSS}_layer_norm"),
]


def decoders(name, index):
    """The entry of the decoder's size `index`; our field is None where it equals the encoder's."""

    def read(value, entries):
        return None if value == entries.get(f"encoder_{name}") else value

    return Entry(f"decoder_{name}", read, lambda config: config.decoder_sizes[index])


# What BART, and DETR and RT-DETR after it, call the fields of an encoder and a decoder.
STACKS = {
    "dim": "d_model",
    "num_layers": "encoder_layers",
    "num_decoder_layers": decoders("layers", 0),
    "num_heads": "encoder_attention_heads",
    "num_decoder_heads": decoders("attention_heads", 1),
    "intermediate_dim": "encoder_ffn_dim",
    "decoder_intermediate_dim": decoders("ffn_dim", 2),
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "activation": "activation_function",
}


def default_tensors(tensors):
    """What a file may omit: the other names of the shared embedding table, and the logits' bias, 0."""
    filled = {}
    for prefix in ("", "model."):
        names = [
            f"{prefix}{name}.weight" for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
        ]
        table = next((tensors[name] for name in names if name in tensors), None)
        if table is not None:
            filled = {names[0]: table, "final_logits_bias": np.zeros((1, len(table)), "float32")}
    return filled


def start_of(value, _):
    """The token before a target; mBART's folders may say null, as its targets begin with a language."""
    return BART.config_class.start_id if value is None else value


HEAD = "classification_head"
HEADS = {
    "ForConditionalGeneration": Head(
        LanguageModel,
        weight("head/bias", "final_logits_bias", ROW_VECTOR),
        {"tied": True, "use_bias": True},
    ),
    "ForSequenceClassification": Head(
        Classifier,
        [*linear("head/hidden", f"{HEAD}.dense"), *linear("head/output", f"{HEAD}.out_proj")],
        {"hidden_dim": lambda config: config.dim, "activation": "tanh"},
        {
            "num_classes": LABELS,
            "dropout": rate("classifier_dropout", default=0.0),  # used before each of the classifier's layers
            "input_dropout": rate("classifier_dropout", default=0.0, written=False),
        },
    ),
    "ForQuestionAnswering": Head(SpanFinder, linear("head/output", "qa_outputs")),
}

FAMILY = Family(
    model_type="bart",
    backbone="BartModel",
    model=BART,
    prefix="model.",
    fields={
        "vocabulary_size": "vocab_size",
        "max_length": "max_position_embeddings",
        **STACKS,
        "scale_embedding": "scale_embedding",
        "pad_id": "pad_token_id",
        "start_id": Entry("decoder_start_token_id", start_of, lambda config: config.start_id),
        "end_id": Entry("eos_token_id", first_of, lambda config: config.end_id),
    },
    default_entries={
        "encoder_layers": 12,
        "decoder_layers": 12,
        "encoder_attention_heads": 16,
        "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "decoder_ffn_dim": 4096,
    },
    fixed_entries={"is_encoder_decoder": True, "is_decoder": False, "tie_word_embeddings": True},
    fixed_fields={"normalize_first": False, "epsilon": 1e-5},
    rows=ROWS,
    heads={f"Bart{name}": head for name, head in HEADS.items()},
    copies={
        "lm_head.weight": "{prefix}shared.weight",
        **{
            f"{prefix}{name}.embed_tokens.weight": "{prefix}shared.weight"
            for prefix in ("", "model.")
            for name in ("encoder", "decoder")
        },
    },
    default_tensors=default_tensors,
)

MBART = dataclasses.replace(
    FAMILY,
    model_type="mbart",
    backbone="MBartModel",
    fixed_fields={"normalize_first": True, "epsilon": 1e-5},
    heads={f"MBart{name}": head for name, head in HEADS.items()},
)
