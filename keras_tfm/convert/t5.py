"""T5's checkpoints (Raffel et al. 2020), v1.0 and v1.1, with the head of conditional generation."""

from keras_tfm.convert.family import ACTIVATIONS, Entry, Family, Head, first_of
from keras_tfm.convert.keymap import TRANSPOSED, Row, embedding, weight
from keras_tfm.heads import LanguageModel
from keras_tfm.models import T5


def dense(ours, *theirs):
    """A `Dense` without bias and the `torch.nn.Linear`s it joins."""
    return [Row(f"{ours}/kernel", tuple(f"{key}.weight" for key in theirs), TRANSPOSED)]


def gamma(ours, theirs):
    """A norm without bias."""
    return weight(f"{ours}/gamma", f"{theirs}.weight")


def attention(theirs):
    """(queries, keys, values) of an attention of theirs."""
    return [f"{theirs}.{part}" for part in "qkv"]


def stack(name, feedforward):
    """The rows of one stack, whose feed-forward layer is its layer number `feedforward`."""
    block, layer = f"{name}/block_{{}}", f"{name}.block.{{}}.layer"
    return [
        *weight(
            f"{name}/block_0/attention/position/table",
            f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ),
        *dense(f"{block}/attention/query_key_value", *attention(f"{layer}.0.SelfAttention")),
        *dense(f"{block}/attention/output", f"{layer}.0.SelfAttention.o"),
        *gamma(f"{block}/attention_norm", f"{layer}.0.layer_norm"),
        *gamma(f"{block}/feedforward_norm", f"{layer}.{feedforward}.layer_norm"),
        *dense(f"{block}/feedforward/hidden", f"{layer}.{feedforward}.DenseReluDense.wi"),
        *dense(f"{block}/feedforward/gate", f"{layer}.{feedforward}.DenseReluDense.wi_0"),
        *dense(f"{block}/feedforward/value", f"{layer}.{feedforward}.DenseReluDense.wi_1"),
        *dense(f"{block}/feedforward/output", f"{layer}.{feedforward}.DenseReluDense.wo"),
        *gamma(f"{name}/norm", f"{name}.final_layer_norm"),
    ]


CROSS, CONTEXT = "decoder.block.{}.layer.1", "decoder/block_{}/cross_attention"
ROWS = [
    *embedding("embedding/token", "shared"),
    *stack("encoder", 1),
    *stack("decoder", 2),
    *dense(f"{CONTEXT}/query", f"{CROSS}.EncDecAttention.q"),
    *dense(f"{CONTEXT}/key_value", f"{CROSS}.EncDecAttention.k", f"{CROSS}.EncDecAttention.v"),
    *dense(f"{CONTEXT}/output", f"{CROSS}.EncDecAttention.o"),
    *gamma("decoder/block_{}/context_norm", f"{CROSS}.layer_norm"),
]


def activation(value, entries):
    """Their activation out of "relu" or "gated-gelu", by which they mean the approximate one."""
    return "gelu_new" if value == "gated-gelu" else value.split("-")[-1]


def feedforward(config):
    """ "relu", "gated-gelu", ... for our configuration; ValueError for what they have no name for."""
    if config.gated and config.activation == "gelu":
        raise ValueError('T5 has no gate with the exact GELU; use "gelu_tanh".')
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    name = "gelu" if config.gated and config.activation == "gelu_tanh" else names[config.activation]
    return f"gated-{name}" if config.gated else name


def is_tied(value, entries):
    """Since version 5 of transformers another entry says so, and this one is always true."""
    return entries.get("scale_decoder_outputs", value is not False)


def decoder_layers(value, entries):
    """The decoder's, left open where they are as many as the encoder's."""
    return None if value == entries.get("num_layers") else value


def left_out(tensors):
    """Other names of the one table of vectors, and the output's table where it is that one."""
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
        "activation": Entry("feed_forward_proj", activation, feedforward),
        "gated": Entry("feed_forward_proj", lambda value, _: value.startswith("gated-"), feedforward),
        "tied": Entry("tie_word_embeddings", is_tied, lambda config: config.tied),
        "epsilon": "layer_norm_epsilon",
        "pad_id": "pad_token_id",
        "start_id": "decoder_start_token_id",
        "end_id": Entry("eos_token_id", first_of, lambda config: config.end_id),
    },
    absent={"num_layers": 6, "d_model": 512, "num_heads": 8, "d_ff": 2048},
    fixed={"is_encoder_decoder": True, "is_decoder": False},
    shapes={
        "shared.weight": ("vocabulary_size", "dim"),
        "encoder.block.0.layer.0.SelfAttention.q.weight": ("inner_dim", "dim"),
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": ("num_buckets", "num_heads"),
        "encoder.block.0.layer.1.DenseReluDense.wo.weight": ("dim", "intermediate_dim"),
    },
    rows=ROWS,
    heads={
        "T5ForConditionalGeneration": Head(
            LanguageModel,
            dense("head/dense", "lm_head"),
            {"tied": lambda config: config.tied, "use_bias": False},
        )
    },
    copies={
        "lm_head.weight": "shared.weight",
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    },
    left_out=left_out,
    ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
)
