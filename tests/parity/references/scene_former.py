"""SceneFormer's networks of categories and locations by the authors' names."""

import keras
from keras import ops

from keras_tfm.convert.keymap import TRANSPOSED, Row, embedding, feedforward, linear, norm, read_state
from keras_tfm.models import SceneFormer, SceneFormerConfig
from keras_tfm.training.model import Model
from tests.parity.references.state import check_arguments

FIELDS = {
    "emb_dim": "dim",
    "dim_fwd": "intermediate_dim",
    "num_heads": "num_heads",
    "num_blocks": "num_layers",
}
OTHERS = {"max_seq_len", "condition", "tokens", "pad", "stop", "start"}
TABLES = {"category": "cat_emb", "orientation": "orient_emb"}
PLACES = {**TABLES, **{axis: f"{axis}_coor_emb" for axis in "xyz"}}
FLAT = {**TABLES, "location": "loc_coor_emb", "current_category": "curr_cat_emb"}


def rows(tables, output, has_context):
    """The table of weights; their decoder's norms are numbered through its parts."""
    table = [*linear("output", output), *embedding("position/embedding", "pos_emb")]
    for name, theirs in tables.items():
        table += embedding(f"{name}_embedding/token", theirs)
    block, layer = "block_{}", "generator.layers.{}"
    parts = {"attention": "self_attn"} | ({"context_attention": "multihead_attn"} if has_context else {})
    for i, (ours, theirs) in enumerate(parts.items()):
        table += attention(f"{block}/{ours}/branch", f"{layer}.{theirs}", crosses=i == 1)
        table += norm(f"{block}/{ours}/norm", f"{layer}.norm{i + 1}")
    table += feedforward(f"{block}/feedforward", f"{layer}.linear1", f"{layer}.linear2")
    table += norm(f"{block}/feedforward/norm", f"{layer}.norm{len(parts) + 1}")
    return table + (linear("context_projection", "text_emb_linear") if has_context else [])


def attention(ours, theirs, crosses):
    """An attention and a `torch.nn.MultiheadAttention`, whose projections are one matrix of three parts."""
    parts = {"query": (0, 1, 3), "key_value": (1, 3, 3)} if crosses else {"query_key_value": None}
    table = linear(f"{ours}/output", f"{theirs}.out_proj")
    for name, part in parts.items():
        path = f"{ours}/projections/{name}"
        table.append(Row(f"{path}/kernel", (f"{theirs}.in_proj_weight",), TRANSPOSED, part))
        table.append(Row(f"{path}/bias", (f"{theirs}.in_proj_bias",), part=part))
    return table


def read_categories(arguments, weights):
    """The network of categories, and its outputs by the authors' names."""
    return read(arguments, weights, PLACES, "category", "output_cat")


def read_locations(arguments, weights):
    """The network of locations, and its outputs by the authors' names."""
    return read(arguments, weights, FLAT | {"part": "coor_type_emb"}, "location", "output_loc")


def read(arguments, weights, tables, predicts, output):
    """The network that predicts a property, and its outputs; all but the last token go in."""
    check_arguments(arguments, FIELDS.keys() | OTHERS, "SceneFormer")
    has_context = arguments["condition"] == "text"
    sizes = {name: len(weights[f"{theirs}.weight"]) for name, theirs in tables.items() if name != "part"}
    config = SceneFormerConfig(
        sizes,
        predicts,
        period=3 if "part" in tables else 1,
        context_dim=weights["text_emb_linear.weight"].shape[1] if has_context else 0,
        max_length=arguments["max_seq_len"],
        **{ours: arguments[theirs] for theirs, ours in FIELDS.items()},
    )
    inner = SceneFormer(config)
    read_state(inner, weights, rows(tables, output, has_context))
    states = {f"features/block_{i}": x for i, x in enumerate(inner.hidden_states["decoder"][1:])}
    inner = Model(inner.input, states | {"logits": inner.output["logits"]})
    inputs = {name: x for name, x in inner.input.items() if name != "context"}
    names = {**{name: name for name in inputs}, **({"context": "text"} if has_context else {})}
    given = {
        theirs: keras.Input(inner.input[ours].shape[1:], dtype=inner.input[ours].dtype, name=theirs)
        for ours, theirs in names.items()
    }
    outputs = inner({ours: given[t] if ours == "context" else given[t][:, :-1] for ours, t in names.items()})
    outputs["log_probabilities"] = ops.log_softmax(outputs.pop("logits"))
    return Model(given, outputs), outputs
