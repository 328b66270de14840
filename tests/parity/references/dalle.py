"""DALL-E's Transformer as DALLE-pytorch has it, which re-creates it: without rotary positions and shifts."""

import numpy as np
from keras import ops

from keras_tfm.convert.keymap import Row, Transform, linear, norm, read_state, weight
from keras_tfm.heads import TextToCodes, TextToCodesLoss
from keras_tfm.models import DALLE, DALLEConfig
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.state import check_arguments

FIELDS = {
    "dim": "dim",
    "heads": "num_heads",
    "dim_head": "key_dim",
    "text_seq_len": "text_length",
    "num_text_tokens": "text_vocabulary_size",
    "num_image_tokens": "num_codes",
    "depth": "num_layers",
    "kernel_size": "kernel_size",
}
SCALE = Transform(lambda array: array[0, 0], lambda array, _: [array[None, None]])
COLUMNS = SCALE
ROWS = Transform(lambda array: array[0, :, 0], lambda array, _: [array[None, :, None]])
KINDS = {"full": "full", "axial_row": "row", "axial_col": "column", "conv_like": "convolution"}


def config_of(arguments):
    """Our configuration for their arguments; CheckpointError for others."""
    others = {"attn_types", "image_fmap_size", "loss_img_weight", "partial_image_tokens"}
    check_arguments(arguments, {*FIELDS, *others, "rotary_emb", "shift_tokens"}, "DALLE-pytorch")
    for name in ("rotary_emb", "shift_tokens"):
        if arguments.get(name):
            raise CheckpointError("DALLE-pytorch", name, "False", "True")
    return DALLEConfig.from_json(
        {ours: arguments[theirs] for theirs, ours in FIELDS.items()}
        | {
            "grid": [arguments["image_fmap_size"]] * 2,
            "kinds": [KINDS[kind] for kind in arguments["attn_types"]],
        }
        | {"last_kind": None, "gated": True, "use_bias": False, "layer_scale": 0.1}
    )


def rows(config):
    """The table of weights; theirs keep the embeddings of texts and of codes apart."""
    joined = Transform(
        lambda *tables: np.concatenate(tables), lambda table, _: np.split(table, [config.num_text_tokens])
    )
    table = [
        Row("embedding/token/embeddings", ("text_emb.weight", "image_emb.weight"), joined),
        *weight("embedding/position/text", "text_pos_emb.weight"),
        *weight("embedding/position/rows", "image_pos_emb.weights.0", ROWS),
        *weight("embedding/position/columns", "image_pos_emb.weights.1", COLUMNS),
        *norm("norm", "to_logits.0"),
        *linear("head/dense", "to_logits.1"),
    ]
    for part, number in (("attention", 0), ("feedforward", 1)):
        ours, theirs = "block_{}/" + part, f"transformer.layers.layers.{{}}.{number}"
        table += weight(f"{ours}/scale", f"{theirs}.scale", SCALE)
        table += norm(f"{ours}/norm", f"{theirs}.fn.norm")
    attention, feedforward = (f"transformer.layers.layers.{{}}.{i}.fn.fn" for i in range(2))
    table += linear("block_{}/attention/branch/projections/query_key_value", f"{attention}.fn.to_qkv")
    table += linear("block_{}/attention/branch/output", f"{attention}.fn.to_out.0")
    for part, section in (("value", (0, 1, 2)), ("gate", (1, 2, 2))):
        table += linear(f"block_{{}}/feedforward/branch/{part}", f"{feedforward}.net.0", part=section)
    return table + linear("block_{}/feedforward/branch/output", f"{feedforward}.net.3")


def read(arguments, arrays):
    """The inputs' names, and the outputs for them by their names."""
    config = config_of(arguments)
    backbone = DALLE(config)
    model = TextToCodes(backbone)
    weights = {name.removeprefix("weights/"): x for name, x in arrays.items() if name.startswith("weights/")}
    read_state(model, weights, rows(config))
    text, codes = arrays["text"], arrays["image"]
    tokens = backbone.tokens_of(text, codes)
    logits = model({"token_ids": tokens[:, :-1]})
    partial = backbone.tokens_of(text, codes[:, : arguments["partial_image_tokens"]])
    outputs = {
        "logits": without_forbidden(logits),
        "logits_allowed": logits > -1e30,
        "logits_partial": without_forbidden(model({"token_ids": partial})),
        "loss": TextToCodesLoss(config.text_length, arguments["loss_img_weight"])(tokens[:, 1:], logits),
    }
    x = outputs["features/embed"] = backbone.embedding(tokens[:, :-1])
    for i, block in enumerate(backbone.blocks["decoder"]):
        for part, theirs in (("attention", "attention"), ("feedforward", "feed_forward")):
            y = block.parts[part](x)
            outputs[f"features/{theirs}_{i}"] = y - x  # what the branch adds
            x = y
    outputs["features/transformer"] = x
    return {"text", "image", *(f"weights/{name}" for name in weights)}, outputs


def without_forbidden(logits):
    """The logits, 0 where a token cannot follow."""
    return ops.where(logits > -1e30, logits, 0)
