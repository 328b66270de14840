"""What the readers of detectors share."""

from keras_tfm.convert.detr import joint_attention_rows
from keras_tfm.convert.keymap import feedforward, norm
from keras_tfm.training.model import Model

# {argument of the authors' Transformer: our field}
TRANSFORMER_FIELDS = {
    "d_model": "dim",
    "nhead": "num_heads",
    "num_encoder_layers": "num_layers",
    "num_decoder_layers": "num_decoder_layers",
    "dim_feedforward": "intermediate_dim",
    "dropout": "dropout",
    "activation": "activation",
}


def authors_block_rows(prefix=""):
    """The blocks and the last norm by the names of the authors' own code, which later detectors build on;
    `prefix` stands before them.
    """
    table = norm("decoder_norm", f"{prefix}decoder.norm")
    parts = {  # in the order of theirs, norm1, norm2, ...
        "encoder": ["attention", "feedforward"],
        "decoder": ["attention", "context_attention", "feedforward"],
    }
    keys = {"attention": "self_attn", "context_attention": "multihead_attn"}
    for stack, names in parts.items():
        for i, name in enumerate(names, start=1):
            ours, theirs = f"{stack}_block_{{}}/{name}", f"{prefix}{stack}.layers.{{}}"
            table += norm(f"{ours}/norm", f"{theirs}.norm{i}")
            if name == "feedforward":
                table += feedforward(ours, f"{theirs}.linear1", f"{theirs}.linear2")
            else:
                table += joint_attention_rows(f"{ours}/branch/attention", f"{theirs}.{keys[name]}")
    return table


def transformer_of(model):
    """The part of a detector between the backbone and the heads, as a model of its own.

    Its inputs are a list: the projected map and its positions (B, rows, columns, D), the queries (B, Q, D),
    and the `pixel_mask`.
    """
    names = ("encoder_projection", "encoder_position", "decoder_queries")
    inputs = [model.get_layer(name).output for name in names]
    return Model([*inputs, model.input["pixel_mask"]], model.output)
