"""GPT-2's checkpoints (Radford et al. 2019), with the language model's head, which adds no weights."""

from keras_tfm.convert.family import Family, Head
from keras_tfm.convert.keymap import embedding, norm, weight
from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2


def conv1d(ours, theirs):
    """The rows of a `Dense`, which is a `Conv1D` in theirs: it stores (in, out), as Keras does."""
    return [*weight(f"{ours}/kernel", f"{theirs}.weight"), *weight(f"{ours}/bias", f"{theirs}.bias")]


# ImageGPT's folders have them too.
FIELDS = {
    "vocabulary_size": "vocab_size",
    "max_length": "n_positions",
    "num_layers": "n_layer",
    "dim": "n_embd",
    "num_heads": "n_head",
    "intermediate_dim": "n_inner",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
    "embedding_dropout": "embd_pdrop",
    "activation": "activation_function",
    "epsilon": "layer_norm_epsilon",
}
ENTRIES = {"add_cross_attention": False, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False}

FAMILY = Family(
    model_type="gpt2",
    backbone="GPT2Model",
    model=GPT2,
    prefix="transformer.",
    fields=FIELDS,
    fixed_entries={**ENTRIES, "tie_word_embeddings": True},
    fixed_fields={"normalize_first": True},
    rows=[
        *embedding("embedding/token", "wte"),
        *embedding("embedding/position/embedding", "wpe"),
        *norm("block_{}/attention/norm", "h.{}.ln_1"),
        *conv1d("block_{}/attention/branch/projections/query_key_value", "h.{}.attn.c_attn"),
        *conv1d("block_{}/attention/branch/output", "h.{}.attn.c_proj"),
        *norm("block_{}/feedforward/norm", "h.{}.ln_2"),
        *conv1d("block_{}/feedforward/branch/hidden", "h.{}.mlp.c_fc"),
        *conv1d("block_{}/feedforward/branch/output", "h.{}.mlp.c_proj"),
        *norm("norm", "ln_f"),
    ],
    heads={"GPT2LMHeadModel": Head(LanguageModel, [], {"tied": True})},
    copies={"lm_head.weight": "{prefix}wte.weight"},
    buffers=(r"h\.\d+\.attn\.(masked_)?bias",),
)
