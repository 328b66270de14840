"""TSP-RCNN's head (Sun et al. 2021) by its authors' names. Their mask is True for padding."""

import keras
from keras import ops

from keras_tfm.convert.keymap import linear, norm, read_state
from keras_tfm.models import TSPRCNNHead, TSPRCNNHeadConfig
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import check_arguments, fields_of, rows_before_channels
from tests.parity.references.tsp_fcos import block_rows

FIELDS = {
    "d_model": "dim",
    "nhead": "num_heads",
    "num_encoder_layers": "num_layers",
    "dim_feedforward": "intermediate_dim",
    "channels": "region_dim",
    "resolution": "region_size",
}
FIXED = {"normalize_before": True, "use_position_encoding": True, "num_fc": 1}


def rows():
    """The whole table, of weights whose first matrix reads places before channels."""
    return [
        *block_rows("head.transformer_encoder."),
        *linear("region_projection", "head.input_proj"),
        *linear("position_projection", "head.dec_pos_embed_proj"),
        *norm("token_norm", "head.post_input_proj_norm"),
    ]


def read(arguments, weights, shapes):
    """The model for their arguments and weights and inputs of these `shapes`, and its outputs by their
    names.
    """
    check_arguments(arguments, {*FIELDS, *FIXED}, "TSP-RCNN")
    for name, value in FIXED.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("TSP-RCNN", name, repr(value), repr(arguments[name]))
    fields = fields_of({name: x for name, x in arguments.items() if name in FIELDS}, FIELDS)
    head = TSPRCNNHead(TSPRCNNHeadConfig(**fields))
    order = rows_before_channels(arguments["channels"], arguments["resolution"])
    key = "head.input_proj.weight"
    read_state(head, {**weights, key: weights[key][:, order]}, rows())
    kinds = {"roi_features": "float32", "padding_mask": "bool", "proposals": "float32"}
    inputs = {name: keras.Input(shapes[name][1:], dtype=kind, name=name) for name, kind in kinds.items()}
    given = {
        "regions": inputs["roi_features"],
        "boxes": inputs["proposals"][..., :4],
        "region_mask": ops.logical_not(inputs["padding_mask"]),
    }
    states = head.hidden_states["encoder"]
    found = Model(head.input, {"output": head.output["sequence_output"], "states": states})(given)
    first, *others = found["states"]
    outputs = {"output": found["output"], "features/input": first}
    outputs |= {f"features/layer_{i}": x for i, x in enumerate(others)}
    return Model(inputs, outputs), outputs
