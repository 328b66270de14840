"""The two-stream encoder of ViLBERT by its authors' names (Lu et al. 2019): 1 is the image, 2 the text."""

import keras
from keras import ops

from keras_tfm.convert.keymap import attention, context_attention, feedforward, norm, read_state
from keras_tfm.models import ViLBERT, ViLBERTConfig
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import check_arguments

ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "swish": "silu"}  # theirs: ours
LETTERS = {"image": "v_", "text": ""}  # prefixes of a stream's arguments and layers
NUMBERS = {"image": (1, 2), "text": (2, 1)}  # {stream: (its number, the other's)}
OF_STREAMS = {
    "num_{}_layers": "num_hidden_layers",
    "{}_dim": "hidden_size",
    "num_{}_heads": "num_attention_heads",
    "{}_intermediate_dim": "intermediate_size",
}
OF_BOTH = {
    "connection_dim": "bi_hidden_size",
    "num_connection_heads": "bi_num_attention_heads",
    "image_connections": "v_biattention_id",
    "text_connections": "t_biattention_id",
}


def config_of(arguments):
    """The configuration for the arguments of the authors' class."""
    fields = {
        ours.format(side): f"{letter}{theirs}"
        for side, letter in LETTERS.items()
        for ours, theirs in OF_STREAMS.items()
    } | OF_BOTH
    path, values = "vilbert.BertEncoder", {}
    names = {"activation": "hidden_act", "image_activation": "v_hidden_act"}
    check_arguments(arguments, {*fields.values(), *names.values()}, path)
    for ours, theirs in names.items():
        if (name := arguments.get(theirs, "gelu")) not in ACTIVATIONS:
            raise CheckpointError(path, theirs, f"one of {', '.join(ACTIVATIONS)}", repr(name))
        values[ours] = ACTIVATIONS[name]
    values |= {ours: arguments[theirs] for ours, theirs in fields.items()}
    return ViLBERTConfig(**values)


def stream_rows(side):
    """The rows of the blocks of one stream."""
    ours, theirs = f"{side}_block_{{}}", f"{LETTERS[side]}layer.{{}}"
    query, key, value = (f"{theirs}.attention.self.{part}" for part in ("query", "key", "value"))
    return [
        *attention(f"{ours}/attention", query, key, value, f"{theirs}.attention.output.dense"),
        *norm(f"{ours}/attention/norm", f"{theirs}.attention.output.LayerNorm"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.intermediate.dense", f"{theirs}.output.dense"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.output.LayerNorm"),
    ]


def connection_rows(side, ours, theirs):
    """The rows of a connection's part for one stream; `theirs` is the prefix of its keys."""
    own, other = NUMBERS[side]
    letter = side[0].replace("i", "v")
    ask, answer = f"{theirs}biattention", f"{theirs}biOutput"
    parts = f"{ask}.query{own}", f"{ask}.key{other}", f"{ask}.value{other}", f"{answer}.dense{own}"
    hidden, output = f"{theirs}{letter}_intermediate.dense", f"{theirs}{letter}_output"
    return [
        *context_attention(f"{ours}/context_attention", *parts),
        *norm(f"{ours}/context_attention/norm", f"{answer}.LayerNorm{own}"),
        *feedforward(f"{ours}/feedforward", hidden, f"{output}.dense"),
        *norm(f"{ours}/feedforward/norm", f"{output}.LayerNorm"),
    ]


def rows():
    """The whole table."""
    table = []
    for side in LETTERS:
        table += stream_rows(side)
        table += connection_rows(side, f"{side}_connection_{{}}", "c_layer.{}.")
    return table


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    model = ViLBERT(config_of(arguments))
    read_state(model, weights, rows())
    outputs = {f"{side}_output": model.output[f"{side}_sequence_output"] for side in LETTERS}
    for side in LETTERS:
        connections = 0
        for block, state in zip(model.blocks[side], model.hidden_states[side][1:], strict=True):
            if "_connection_" in block.name:
                outputs[f"features/{side}_after_connection_{connections}"] = state
                connections += 1
    return model, outputs


def read_connection(arguments, weights):
    """The same for a single connection layer of theirs."""
    alone = {
        "num_hidden_layers": 1,
        "v_num_hidden_layers": 1,
        "t_biattention_id": [0],
        "v_biattention_id": [0],
    }
    config = config_of({**arguments, **alone})
    whole = ViLBERT(config)
    inner = {side: whole.hidden_states[side][:2] for side in LETTERS}
    model = Model(whole.input, {f"{side}_output": states[1] for side, states in inner.items()})
    table = [row for side in LETTERS for row in connection_rows(side, f"{side}_connection_0", "")]
    read_state(model, weights, table)
    outputs = dict(model.output)
    for side, other in (("image", "text"), ("text", "image")):
        branch = whole.get_layer(f"{side}_connection_0").context_attention.branch
        contexts = Contexts(branch, name=f"context_for_{side}")
        sides = inner[side][0], inner[other][0], whole.input[f"{other}_mask"]
        outputs[f"features/context_for_{side}"] = contexts(*sides)
    return model, outputs


class Contexts(keras.layers.Layer):
    """The averages of an `attention` layer for queries (B, T, D) and a context, before its output layer."""

    def __init__(self, attention, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention

    def call(self, x, context, mask):
        """(B, T, H K), the heads side by side."""
        query, key, value = self.attention.projections.project(x, context, None)
        weights = self.attention.weigh(self.attention.score(query, key), mask[:, None, None])
        heads = self.attention.average(weights, value)  # (B, H, T, K)
        return ops.concatenate([heads[:, i] for i in range(heads.shape[1])], axis=-1)
