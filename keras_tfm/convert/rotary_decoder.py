"""What the checkpoints of Llama and of its successors share."""

from keras_tfm.convert.entries import Entry
from keras_tfm.convert.family import Family, Head
from keras_tfm.convert.keymap import attention, embedding, linear, weight
from keras_tfm.heads import LanguageModel
from keras_tfm.training.safetensors import CheckpointError


def rope_of(entries):
    """What a configuration says of rotary positions, in the form of transformers 5; older ones say it by
    `rope_theta` and `rope_scaling`, which replaces `rope_parameters` where a folder has both.
    """
    rope = entries.get("rope_scaling") or entries.get("rope_parameters") or {}
    rope = {"rope_theta": entries.get("rope_theta", 10_000.0), **rope}
    if "type" in rope:  # as it was called at first
        rope.setdefault("rope_type", rope.pop("type"))
    return rope


def read_scaling(_, entries):
    """Our scaling; CheckpointError for a kind that `RotaryEmbedding` lacks."""
    rope = {name: value for name, value in rope_of(entries).items() if name != "rope_theta"}
    kind = rope.get("rope_type", "default")
    if kind not in ("default", "linear", "llama3"):
        raise CheckpointError("config.json", "rope_type", "default, linear or llama3", repr(kind))
    return {} if kind == "default" else rope


def write_rope(config):
    """Their entry for our base and scaling."""
    return {"rope_type": "default", **config.rotary_scaling, "rope_theta": config.rotary_base}


def read_key_dim(value, entries):
    """None for a width of heads that follows from the model's."""
    is_usual = value is not None and value * entries["num_attention_heads"] == entries["hidden_size"]
    return None if is_usual else value


def rows_of(norms):
    """The function that returns the table of weights; `norms` are {a part's norm: their name of it}."""

    def rows(config):
        ours, theirs = "block_{}", "layers.{}"
        query, key, value, output = (f"{theirs}.self_attn.{name}_proj" for name in "qkvo")
        feedforward = f"{ours}/feedforward/branch"
        table = [
            *embedding("embedding/token", "embed_tokens"),
            *attention(f"{ours}/attention", query, key, value, output, widths=config.widths),
            *linear(f"{feedforward}/gate", f"{theirs}.mlp.gate_proj"),
            *linear(f"{feedforward}/value", f"{theirs}.mlp.up_proj"),
            *linear(f"{feedforward}/output", f"{theirs}.mlp.down_proj"),
            *weight("norm/gamma", "norm.weight"),
        ]
        for part, norm in norms.items():
            table += weight(f"{ours}/{part}/gamma", f"{theirs}.{norm}.weight")
        return table

    return rows


NORMS = {"attention/norm": "input_layernorm", "feedforward/norm": "post_attention_layernorm"}


def family(model_type, model, fields=None, default_entries=None, norms=NORMS, **options):
    """The `Family` of Llama or of a successor, which adds `fields`, `default_entries` and other `options`."""
    name = model.__name__
    return Family(
        model_type=model_type,
        backbone=f"{name}Model",
        model=model,
        prefix="model.",
        fields={
            "vocabulary_size": "vocab_size",
            "max_length": "max_position_embeddings",
            "num_layers": "num_hidden_layers",
            "dim": "hidden_size",
            "num_heads": "num_attention_heads",
            "num_key_value_heads": Entry(
                "num_key_value_heads",
                lambda value, all_: None if value == all_.get("num_attention_heads") else value,
                lambda config: config.num_key_value_heads or config.num_heads,
            ),
            "key_dim": Entry("head_dim", read_key_dim, lambda config: config.widths[0] // config.num_heads),
            "intermediate_dim": "intermediate_size",
            "attention_dropout": "attention_dropout",
            "rotary_base": Entry("rope_parameters", lambda _, all_: rope_of(all_)["rope_theta"], write_rope),
            "rotary_scaling": Entry("rope_parameters", read_scaling, write_rope),
            "activation": "hidden_act",
            "epsilon": "rms_norm_eps",
            "tied": "tie_word_embeddings",
            **(fields or {}),
        },
        default_entries={"rope_parameters": None, **(default_entries or {})},
        rows=rows_of(norms),
        heads={
            f"{name}ForCausalLM": Head(
                LanguageModel,
                linear("head/dense", "lm_head"),
                {"tied": lambda config: config.tied},
            )
        },
        copies=lambda config: {"lm_head.weight": "{prefix}embed_tokens.weight"} if config.tied else {},
        buffers=(r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",),
        **options,
    )
