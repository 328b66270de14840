"""T5's checkpoints (Raffel et al. 2020), v1.0 and v1.1, with the head of conditional generation."""

from keras_tfm.convert.entries import Entry, their_activation
from keras_tfm.convert.family import Family, Head, first_of
from keras_tfm.convert.keymap import attention, context_attention, embedding, feedforward, linear, weight
from keras_tfm.heads import LanguageModel
from keras_tfm.models import T5


def gamma(ours, theirs):
    """The row of a norm without bias."""
    return weight(f"{ours}/gamma", f"{theirs}.weight")


def projections(theirs):
    """Their keys for the queries', keys', values' and output projections of an attention layer."""
    return [f"{theirs}.{part}" for part in "qkvo"]


def stack(name, number):
    """The rows of one stack, whose feed-forward layer is its layer `number`."""
    block, layer = f"{name}_block_{{}}", f"{name}.block.{{}}.layer"
    dense = f"{layer}.{number}.DenseReluDense"
    return [
        *weight(
            f"{name}_position/table",
            f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ),
        *attention(f"{block}/attention", *projections(f"{layer}.0.SelfAttention")),
        *gamma(f"{block}/attention/norm", f"{layer}.0.layer_norm"),
        *feedforward(f"{block}/feedforward", f"{dense}.wi", f"{dense}.wo"),
        *linear(f"{block}/feedforward/branch/gate", f"{dense}.wi_0"),
        *linear(f"{block}/feedforward/branch/value", f"{dense}.wi_1"),
        *gamma(f"{block}/feedforward/norm", f"{layer}.{number}.layer_norm"),
        *gamma(f"{name}_norm", f"{name}.final_layer_norm"),
    ]


CROSS, CONTEXT = "decoder.block.{}.layer.1", "decoder_block_{}/context_attention"
ROWS = [
    *embedding("embedding/token", "shared"),
    *stack("encoder", 1),
    *stack("decoder", 2),
    *context_attention(CONTEXT, *projections(f"{CROSS}.EncDecAttention")),
    *gamma(f"{CONTEXT}/norm", f"{CROSS}.layer_norm"),
]


def activation(value, entries):
    """Our activation for "relu" or "gated-gelu", which is the approximate GELU."""
    return "gelu_new" if value == "gated-gelu" else value.split("-")[-1]


def feed_forward_proj(config):
    """ "relu", "gated-gelu", ... for our configuration; ValueError if they have no name for it."""
    if config.gated and config.activation == "gelu":
        raise ValueError('T5 has no gate with the exact GELU; use "gelu_tanh".')
    if config.gated and config.activation == "gelu_tanh":
        return "gated-gelu"
    name = their_activation(config.activation)
    return f"gated-{name}" if config.gated else name


def is_tied(value, entries):
    """Whether the embedding tables are tied; since transformers 5 `scale_decoder_outputs` says it."""
    return entries.get("scale_decoder_outputs", value is not False)


def decoder_layers(value, entries):
    """The number of the decoder's layers; None if it equals the encoder's."""
    return None if value == entries.get("num_layers") else value


def default_tensors(tensors):
    """What a file may omit: other names of the shared embedding table, and the output's table if tied."""
    names = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    table = next((tensors[name] for name in names if name in tensors), None)
    return {} if table is None else {"shared.weight": table, "lm_head.weight": table}


FAMILY = Family(
    model_type="t5",
    backbone="T5Model",
    model=T5,
    prefix="",
    fields={
        "vocabulary_size": "vocab_size",
        "num_layers": "num_layers",
        "num_decoder_layers": Entry(
            "num_decoder_layers",
            decoder_layers,
            lambda config: config.num_decoder_layers or config.num_layers,
        ),
        "dim": "d_model",
        "num_heads": "num_heads",
        "key_dim": "d_kv",
        "intermediate_dim": "d_ff",
        "num_buckets": "relative_attention_num_buckets",
        "max_distance": "relative_attention_max_distance",
        "dropout": "dropout_rate",
        "activation": Entry("feed_forward_proj", activation, feed_forward_proj),
        "gated": Entry("feed_forward_proj", lambda value, _: value.startswith("gated-"), feed_forward_proj),
        "tied": Entry("tie_word_embeddings", is_tied, lambda config: config.tied),
        "epsilon": "layer_norm_epsilon",
        "pad_id": "pad_token_id",
        "start_id": "decoder_start_token_id",
        "end_id": Entry("eos_token_id", first_of, lambda config: config.end_id),
    },
    default_entries={"num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048},
    fixed_entries={"is_encoder_decoder": True, "is_decoder": False},
    rows=ROWS,
    heads={
        "T5ForConditionalGeneration": Head(
            LanguageModel,
            linear("head/dense", "lm_head"),
            {"tied": lambda config: config.tied, "use_bias": False},
        )
    },
    copies={
        "lm_head.weight": "shared.weight",
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    },
    default_tensors=default_tensors,
    buffers=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
)
