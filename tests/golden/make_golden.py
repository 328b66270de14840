"""Makes the stored references: python -m tests.golden.make_golden (needs the [parity] extra).

Tiny torch.nn.Transformer stacks with random weights, post- and pre-norm, relu and gelu, odd sizes:
weights, inputs and outputs, so that `make test` compares with torch without torch. And positions:
T5's buckets and Llama's rotation by transformers, the sinusoids of KerasHub. And encoders of transformers
under heads of theirs, as the contents of their folders; a GPT-2; and encoder-decoders.
"""

import json
import pathlib

import keras_hub
import numpy as np
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from tests.parity import seq2seq
from tests.parity.encoders import DISTILBERT_NAMES, REFERENCES, answer
from tests.parity.gpt2_reference import draw_gpt2, draw_prompts, logits_of
from tests.parity.torch_reference import run_stacks

FOLDER = pathlib.Path(__file__).parent
SIZE = {"num_layers": 2, "num_heads": 3, "dim": 15, "hidden_dim": 22}
CONFIGS = {
    "torch_post_norm": {**SIZE, "activation": "relu", "normalize_first": False},
    "torch_pre_norm": {**SIZE, "activation": "gelu", "normalize_first": True},
}
BUCKETS = {  # (num_buckets, max_distance, bidirectional)
    "t5": (32, 128, True),
    "t5_decoder": (32, 128, False),
    "odd": (9, 20, True),
    "odd_decoder": (7, 50, False),
}


def positions():
    """What other libraries make of positions, by name."""
    distances = np.arange(-300, 301, dtype="int32")
    query, key = np.random.default_rng(0).normal(size=(2, 2, 3, 23, 10)).astype("float32")
    angles = torch.arange(23)[:, None] / 500.0 ** (torch.arange(0, 10, 2) / 10)
    angles = torch.cat([angles, angles], dim=-1)[None]
    turned = apply_rotary_pos_emb(torch.from_numpy(query), torch.from_numpy(key), angles.cos(), angles.sin())
    sines = keras_hub.layers.SinePositionEncoding()(np.zeros((1, 37, 14), "float32"))[0]
    arrays = {"distances": distances, "query": query, "key": key, "sines": np.asarray(sines)}
    arrays |= {"turned_query": turned[0].numpy(), "turned_key": turned[1].numpy()}
    for name, (num_buckets, max_distance, bidirectional) in BUCKETS.items():
        bucket = T5Attention._relative_position_bucket
        buckets = bucket(torch.from_numpy(distances), bidirectional, num_buckets, max_distance)
        arrays |= {f"{name}_arguments": [num_buckets, max_distance, bidirectional], name: buckets.numpy()}
    return arrays


def gpt2():
    """A tiny GPT-2 of transformers: weights, a batch padded on the left, its logits and continuations."""
    rng = np.random.default_rng(1)
    model = draw_gpt2(rng)
    inputs = draw_prompts(rng, model.config.vocab_size)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    tensors = {
        "input_ids": torch.from_numpy(inputs["token_ids"]).long(),
        "attention_mask": torch.from_numpy(inputs["padding_mask"]).long(),
    }
    arrays = {f"state/{name}": x.detach().numpy() for name, x in model.named_parameters()}
    arrays |= {f"inputs/{name}": array for name, array in inputs.items()}
    arrays["logits"] = logits_of(model, inputs).detach().numpy()
    arrays["greedy"] = model.generate(**tensors, **options).numpy()
    arrays["beams"] = model.generate(**tensors, **options, num_beams=4, length_penalty=0.6).numpy()
    return {"config": json.dumps(model.config.to_dict() | {"architectures": ["GPT2LMHeadModel"]}), **arrays}


SIZES = {
    "vocab_size": 31,
    "hidden_size": 21,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 26,
    "max_position_embeddings": 17,
}
DEBERTA = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}
ENCODERS = {  # {family: (head, entries)}
    "bert": ("PreTraining", SIZES),
    "roberta": ("MaskedLM", SIZES),
    "albert": (
        "PreTraining",
        {**SIZES, "embedding_size": 9, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    ),
    "deberta": ("TokenClassification", {**SIZES, **DEBERTA, "type_vocab_size": 2}),
    "deberta-v2": (
        "MaskedLM",
        {
            **SIZES,
            **DEBERTA,
            "max_relative_positions": 9,
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "conv_kernel_size": 3,
        },
    ),
    "distilbert": ("SequenceClassification", {DISTILBERT_NAMES[key]: size for key, size in SIZES.items()}),
}


def encoder(family, head, entries):
    """An encoder's configuration, weights, inputs, hidden states and what its head answers."""
    reference, rng = REFERENCES[family], np.random.default_rng(0)
    model = reference.draw_model(rng, head, entries)
    inputs = reference.draw_inputs(rng, entries)
    while inputs["padding_mask"].all():
        inputs = reference.draw_inputs(rng, entries)
    with torch.no_grad():
        outputs = answer(model, inputs, output_hidden_states=True)
    arrays = {"config": json.dumps(model.config.to_dict() | {"architectures": [type(model).__name__]})}
    arrays |= {f"state/{key}": x.detach().numpy() for key, x in model.named_parameters()}
    arrays |= {f"inputs/{key}": array for key, array in inputs.items()}
    arrays |= {"hidden": outputs.hidden_states[-1].numpy()}
    names = reference.outputs[head]
    return arrays | {f"outputs/{i}": getattr(outputs, name).numpy() for i, name in enumerate(names)}


def encoder_decoder(family):
    """An encoder-decoder's weights, a padded batch, its logits, and what it writes greedily and by beams."""
    rng = np.random.default_rng({"mbart": 19}.get(family, 3))
    model = seq2seq.REFERENCES[family].draw_model(rng)
    inputs = seq2seq.draw_inputs(rng, model.config.vocab_size)
    while inputs["padding_mask"].all() or inputs["decoder_padding_mask"].all():
        inputs = seq2seq.draw_inputs(rng, model.config.vocab_size)
    entries = model.config.to_dict() | {"architectures": [type(model).__name__]}
    arrays = {f"state/{name}": x.detach().numpy() for name, x in model.named_parameters()}
    if hasattr(model, "final_logits_bias"):
        arrays["state/final_logits_bias"] = model.final_logits_bias.numpy()
    arrays |= {f"inputs/{name}": array for name, array in inputs.items()}
    arrays["logits"] = seq2seq.answer(model, inputs).logits.detach().numpy()
    tensors = {
        "input_ids": torch.from_numpy(inputs["token_ids"]).long(),
        "attention_mask": torch.from_numpy(inputs["padding_mask"]).long(),
    }
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": 5, "pad_token_id": 6}
    for name, more in (("greedy", {}), ("beams", {"num_beams": 4, "length_penalty": 0.6})):
        rows = model.generate(**tensors, **options, **more).numpy()
        arrays[name] = np.pad(rows, ((0, 0), (0, 9 - rows.shape[1])), constant_values=6)
    return {"config": json.dumps(entries), **arrays}


def main():
    for family in seq2seq.REFERENCES:
        np.savez_compressed(FOLDER / f"{family}.npz", **encoder_decoder(family))
    for family, (head, entries) in ENCODERS.items():
        np.savez_compressed(FOLDER / f"{family}.npz", **encoder(family, head, entries))
    np.savez_compressed(FOLDER / "gpt2.npz", **gpt2())
    np.savez_compressed(FOLDER / "positions.npz", **positions())
    for seed, (name, config) in enumerate(CONFIGS.items()):
        state, inputs, (encoded, decoded) = run_stacks(config, np.random.default_rng(seed))
        arrays = {f"state/{key}": array for key, array in state.items()}
        arrays |= {f"inputs/{key}": array for key, array in inputs.items()}
        path = FOLDER / f"{name}.npz"
        np.savez_compressed(path, config=json.dumps(config), encoded=encoded, decoded=decoded, **arrays)
        assert path.stat().st_size <= 400_000, path


if __name__ == "__main__":
    main()
