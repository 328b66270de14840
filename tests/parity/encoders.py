"""Random encoders of transformers, and what they answer, as arrays."""

import copy
import dataclasses
import inspect
from collections.abc import Callable

import numpy as np
import torch
import transformers

ACTIVATIONS = ("gelu", "relu", "silu", "tanh", "gelu_new", "gelu_pytorch_tanh", "quick_gelu")
MAX_LENGTH = 12  # of the batches drawn here


@dataclasses.dataclass(frozen=True)
class Reference:
    """A family: the prefix of its classes' names, its random entries, its heads ("" for the backbone alone)
    with the names of what they answer, in the order of ours sorted by name. Where it does not take a mask
    nothing is padded: theirs holds the row of padding still, which then counts.
    """

    prefix: str
    draw: Callable
    outputs: dict
    takes_mask: bool = True

    def config(self, entries, **more):
        return getattr(transformers, f"{self.prefix}Config")(**entries, **more)

    def kind(self, head):
        return getattr(transformers, f"{self.prefix}{f'For{head}' if head else 'Model'}")

    def draw_model(self, rng, head, entries, num_labels=2):
        """A model of these entries with every weight, biases and gammas too, at random."""
        model = self.kind(head)(self.config(entries, num_labels=num_labels)).eval()
        torch.manual_seed(int(rng.integers(2**31)))
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                is_gamma = type(module).__name__.endswith("LayerNorm") and name == "weight"
                torch.nn.init.normal_(parameter, mean=float(is_gamma), std=0.3)
        return model

    def draw_inputs(self, rng, entries, head=""):
        """A batch of ours, padded on the right; no token is a padding's id, whose row theirs holds still."""
        if head == "MultipleChoice":
            batch, choices = int(rng.integers(1, 4)), int(rng.integers(1, 5))
            rows = self._draw_rows(rng, entries, batch * choices)
            return {name: x.reshape(batch, choices, -1) for name, x in rows.items()}
        return self._draw_rows(rng, entries, int(rng.integers(1, 5)))

    def _draw_rows(self, rng, entries, batch):
        config = self.config(entries)
        length = int(rng.integers(1, MAX_LENGTH + 1))
        mask = np.arange(length) < rng.integers(1, length + 1, (batch, 1))
        mask |= not self.takes_mask
        others = np.setdiff1d(np.arange(config.vocab_size), [config.pad_token_id])
        tokens = rng.choice(others, (batch, length))
        inputs = {
            "token_ids": np.where(mask, tokens, config.pad_token_id).astype("int32"),
            "padding_mask": mask,
        }
        num_segments = getattr(config, "type_vocab_size", 0)
        if num_segments > 1:
            inputs["segment_ids"] = rng.integers(0, num_segments, (batch, length), "int32")
        return inputs


def answer(model, inputs, **options):
    """What `model` says to a batch of ours."""
    if "segment_ids" in inputs:
        options["token_type_ids"] = torch.from_numpy(inputs["segment_ids"]).long()
    if "attention_mask" in inspect.signature(model.forward).parameters:  # FNet mixes padding in
        options["attention_mask"] = torch.from_numpy(inputs["padding_mask"]).long()
    return model(input_ids=torch.from_numpy(inputs["token_ids"]).long(), **options)


def in_float64(model):
    """`model` in float64; and copies of it whose weights are moved by up to half a unit in the last place of
    float32: what that changes, no computation in float32 can be sure of.
    """
    exact, moved = copy.deepcopy(model).double(), []
    for seed in range(4):
        torch.manual_seed(seed)
        moved.append(copy.deepcopy(exact))
        with torch.no_grad():
            for parameter in moved[-1].parameters():
                parameter.mul_(1 + 2**-24 * (2 * torch.rand_like(parameter) - 1))
    return exact, moved


def draw_bert(rng):
    """BERT's entries: odd sizes, one to four layers, any activation."""
    num_heads = int(rng.integers(1, 5))
    return {
        "vocab_size": int(rng.integers(11, 60)),
        "hidden_size": num_heads * int(rng.integers(2, 9)),
        "num_hidden_layers": int(rng.integers(1, 5)),
        "num_attention_heads": num_heads,
        "intermediate_size": int(rng.integers(5, 50)),
        "hidden_act": str(rng.choice(ACTIVATIONS)),
        "max_position_embeddings": int(rng.integers(MAX_LENGTH, 30)),
        "type_vocab_size": int(rng.integers(1, 4)),
        "layer_norm_eps": float(rng.choice([1e-12, 1e-5, 1e-2])),
        "classifier_dropout": [None, 0.0, 0.25][rng.integers(3)],
    }


def draw_fnet(rng):
    without = ("num_attention_heads", "classifier_dropout")
    return {name: value for name, value in draw_bert(rng).items() if name not in without}


def draw_roberta(rng):
    entries, pad_id = draw_bert(rng), int(rng.integers(5))
    rows = entries["max_position_embeddings"] + pad_id + 1
    return {**entries, "pad_token_id": pad_id, "max_position_embeddings": rows}


DISTILBERT_NAMES = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "max_position_embeddings": "max_position_embeddings",
}


def draw_distilbert(rng):
    entries = draw_bert(rng)
    entries = {theirs: entries[name] for name, theirs in DISTILBERT_NAMES.items()}
    sines = entries["dim"] % 2 == 0 and bool(rng.integers(2))
    dropouts = {"seq_classif_dropout": 0.3, "qa_dropout": 0.25, "dropout": 0.2}
    return {**entries, **dropouts, "sinusoidal_pos_embds": sines}


def draw_albert(rng):
    entries = draw_bert(rng)
    more = {
        "embedding_size": int(rng.integers(2, 20)),
        "num_hidden_groups": int(rng.integers(1, entries["num_hidden_layers"] + 1)),
        "inner_group_num": int(rng.integers(1, 3)),
        "classifier_dropout_prob": 0.25,
    }
    return {name: x for name, x in entries.items() if name != "classifier_dropout"} | more


def draw_deberta(rng):
    """Version 1's."""
    entries = draw_bert(rng)
    terms = [[], ["c2p"], ["p2c"], ["c2p", "p2c"]][rng.integers(4)]
    more = {
        "layer_norm_eps": float(rng.choice([1e-7, 1e-3])),
        "type_vocab_size": int(rng.integers(4)),
        "relative_attention": bool(terms),
        "pos_att_type": terms,
        "max_relative_positions": int(rng.choice([-1, 2, 7, 40])),
        "position_biased_input": bool(rng.integers(2)),
        "pooler_hidden_act": str(rng.choice(ACTIVATIONS)),
        "pooler_dropout": 0.3,
        "cls_dropout": 0.2,
    }
    entries |= more
    if rng.integers(3) == 0:
        entries["embedding_size"] = int(rng.integers(2, 20))
    return {name: x for name, x in entries.items() if name != "classifier_dropout"}


def draw_deberta_v2(rng):
    entries = draw_deberta(rng)
    more = {
        "max_relative_positions": int(rng.choice([-1, 9, 40])),
        "position_buckets": int(rng.choice([-1, 2, 4, 8])),
        "norm_rel_ebd": "layer_norm" if entries["relative_attention"] and rng.integers(2) else "none",
        "share_att_key": bool(rng.integers(2)),
        "conv_kernel_size": int(rng.choice([0, 1, 3, 5])),
        "conv_act": str(rng.choice(ACTIVATIONS)),
    }
    return entries | more


def draw_esm2(rng):
    entries = draw_bert(rng)
    num_heads = entries["num_attention_heads"]
    names = ("vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "layer_norm_eps")
    return {name: entries[name] for name in names} | {
        "hidden_size": num_heads * 2 * int(rng.integers(1, 5)),  # pairs are rotated
        "max_position_embeddings": entries["max_position_embeddings"],
        "position_embedding_type": "rotary",
        "rope_theta": float(rng.choice([100.0, 10_000.0])),
        "pad_token_id": 1,
        "mask_token_id": int(rng.integers(2, entries["vocab_size"])),
        "token_dropout": bool(rng.integers(2)),
        "emb_layer_norm_before": bool(rng.integers(2)),
    }


FINE_TUNED = {
    "MaskedLM": ("logits",),
    "SequenceClassification": ("logits",),
    "TokenClassification": ("logits",),
    "QuestionAnswering": ("end_logits", "start_logits"),
}
CHOICE = {"MultipleChoice": ("logits",)}
POOLED = ("pooler_output", "last_hidden_state")
REFERENCES = {
    "bert": Reference(
        "Bert",
        draw_bert,
        {
            "": POOLED,
            "PreTraining": ("prediction_logits", "seq_relationship_logits"),
            "NextSentencePrediction": ("logits",),
            **FINE_TUNED,
            **CHOICE,
        },
    ),
    "roberta": Reference("Roberta", draw_roberta, {"": POOLED, **FINE_TUNED, **CHOICE}),
    "distilbert": Reference(
        "DistilBert", draw_distilbert, {"": ("last_hidden_state",), **FINE_TUNED, **CHOICE}
    ),
    "albert": Reference(
        "Albert",
        draw_albert,
        {"": POOLED, "PreTraining": ("prediction_logits", "sop_logits"), **FINE_TUNED, **CHOICE},
    ),
    "deberta": Reference("Deberta", draw_deberta, {"": ("last_hidden_state",), **FINE_TUNED}),
    "deberta-v2": Reference(
        "DebertaV2", draw_deberta_v2, {"": ("last_hidden_state",), **FINE_TUNED, **CHOICE}
    ),
    "esm": Reference(
        "Esm",
        draw_esm2,
        {"": POOLED, **{name: x for name, x in FINE_TUNED.items() if name != "QuestionAnswering"}},
    ),
    "fnet": Reference(
        "FNet",
        draw_fnet,
        {
            "": POOLED,
            "PreTraining": ("prediction_logits", "seq_relationship_logits"),
            "NextSentencePrediction": ("logits",),
            **FINE_TUNED,
            **CHOICE,
        },
        takes_mask=False,
    ),
}
