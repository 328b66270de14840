"""Our GPT-2 with the weights of transformers' (a state of arrays), and the comparison of both."""

import numpy as np

from keras_tfm.heads import LanguageModel
from keras_tfm.models import GPT2, GPT2Config


def make_gpt2(config, state):
    """A language model of `config`, a dict of our fields, with the weights of `state`."""
    model = LanguageModel(GPT2(GPT2Config(**config)))
    backbone = model.backbone
    backbone.embedding.token.embeddings.assign(state["transformer.wte.weight"])
    backbone.embedding.position.embedding.embeddings.assign(state["transformer.wpe.weight"])
    for i, block in enumerate(backbone.decoder.blocks):
        for layer, name in (
            (block.attention_norm, "ln_1"),
            (block.attention.query_key_value, "attn.c_attn"),
            (block.attention.output_projection, "attn.c_proj"),
            (block.feedforward_norm, "ln_2"),
            (block.feedforward.hidden, "mlp.c_fc"),
            (block.feedforward.output_projection, "mlp.c_proj"),
        ):
            layer.set_weights([state[f"transformer.h.{i}.{name}.{part}"] for part in ("weight", "bias")])
    backbone.decoder.norm.set_weights([state["transformer.ln_f.weight"], state["transformer.ln_f.bias"]])
    return model


def check_logits(config, state, inputs, expected):
    """Our logits equal `expected` to 1e-5, absolute or relative, wherever there is a token."""
    model = make_gpt2(config, state)
    logits = np.asarray(model(inputs))
    error = np.abs(logits - expected) / np.maximum(1, np.abs(expected))
    assert error[inputs["padding_mask"]].max() < 1e-5, config
    return model
