"""TransTrack by its authors' names (Sun et al. 2020), of the features that a backbone gives."""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.detr import joint_attention_rows
from keras_tfm.convert.keymap import CONVOLVED, convolution, feedforward, linear, norm, read_state, weight
from keras_tfm.layers import SineGridPositionEncoding
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models import TransTrackConfig
from keras_tfm.models.base import Trace
from keras_tfm.models.tracking.transtrack import tracked
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.detr import TRANSFORMER_FIELDS
from tests.parity.references.state import check_arguments, fields_of

FIELDS = {
    **TRANSFORMER_FIELDS,
    "num_feature_levels": "num_levels",
    "num_queries": "num_queries",
    "group_norm_groups": "num_groups",
}
OTHERS = {"num_classes", "n_points", "with_box_refine", "backbone_channels", "strides"}


def rows():
    """The whole table."""
    table = []
    for ours, theirs in (("decoder", "decoder"), ("track", "decoder_track")):
        block, their_block = f"{ours}_block_{{}}", f"transformer.{theirs}.layers.{{}}"
        part = f"{block}/attention"
        table += joint_attention_rows(f"{part}/branch/attention", f"{their_block}.self_attn")
        table += norm(f"{part}/norm", f"{their_block}.norm2")
        table += deformable(f"{block}/context_attention", f"{their_block}.cross_attn", f"{their_block}.norm1")
        table += forward(block, their_block, 3)
    block, their_block = "encoder_block_{}", "transformer.encoder.layers.{}"
    table += deformable(f"{block}/attention", f"{their_block}.self_attn", f"{their_block}.norm1")
    table += forward(block, their_block, 2)
    return [
        *table,
        *convolution("encoder_projection_{}", "input_proj.{}.0"),
        *norm("encoder_projection_{}/norm", "input_proj.{}.1"),
        *weight("encoder_combination/convolution/kernel", "combine.weight", CONVOLVED),
        *weight("encoder_combination/convolution/bias", "combine.bias"),
        *weight("encoder_position_{}/level", "level_{}"),
        *weight("decoder_queries/table", "query_embed.weight"),
        *linear("decoder_references", "transformer.reference_points"),
        *linear("class_head_{}", "class_embed.{}"),
        *linear("decoder_box_head_{}/layer_{}", "bbox_embed.{}.layers.{}"),
    ]


def deformable(ours, theirs, their_norm):
    """A residual's deformable attention and its norm."""
    names = {
        "offsets": "sampling_offsets",
        "point_weights": "attention_weights",
        "values": "value_proj",
        "output": "output_proj",
    }
    table = norm(f"{ours}/norm", their_norm)
    for name, key in names.items():
        table += linear(f"{ours}/branch/{name}", f"{theirs}.{key}")
    return table


def forward(ours, theirs, number):
    """A residual's feed-forward layer and its norm, the one of this `number`."""
    table = feedforward(f"{ours}/feedforward", f"{theirs}.linear1", f"{theirs}.linear2")
    return table + norm(f"{ours}/feedforward/norm", f"{theirs}.norm{number}")


def read(arguments, weights, shapes):
    """The model for the authors' arguments and weights and inputs of these `shapes`, and its outputs of two
    frames by their names. The masks and positions are our layers', and compared.
    """
    check_arguments(arguments, {*FIELDS, *OTHERS}, "TransTrack")
    if not arguments["with_box_refine"]:
        raise CheckpointError("TransTrack", "with_box_refine", "True", "False")
    count = len(arguments["backbone_channels"])
    given = {name: value for name, value in arguments.items() if name in FIELDS}
    points = {"num_points": arguments["n_points"], "num_decoder_points": arguments["n_points"]}
    config = TransTrackConfig(num_maps=count, **points, **fields_of(given, FIELDS))
    sides = [shapes[f"frame_0_features_{i}"][1:] for i in range(count)]
    inner = whole(config, sides, shapes["image_mask"][1:], arguments["num_classes"])
    read_state(inner, state_of(weights, inner.grids, config), rows())

    inputs = {"image_mask": keras.Input(shapes["image_mask"][1:], dtype="bool", name="image_mask")}
    frames = []
    for frame in (0, 1):
        names = [f"frame_{frame}_features_{i}" for i in range(count)]
        inputs |= {name: keras.Input(shapes[name][1:], name=name) for name in names}
        frames.append([inputs[name] for name in names])
    shown = ops.logical_not(inputs["image_mask"])
    nowhere = ops.zeros_like(frames[0][0][:, 0, 0, :1])[..., None]  # (B, 1, 1)
    states = nowhere + np.zeros((config.num_queries, config.dim), "float32")
    first = inner([*frames[0], *frames[0], shown, states, nowhere + np.full((config.num_queries, 4), 0.5)])
    state = first["decoder_outputs"][:, -1], first["pred_boxes"]
    second = inner([*frames[1], *frames[0], shown, *state])
    outputs = {"frame_0_tracking_logits": first["pred_logits"], "frame_0_tracking_boxes": first["pred_boxes"]}
    for frame, found in enumerate((first, second)):
        outputs |= {f"frame_{frame}_{name}": found[name] for name in ("pred_logits", "pred_boxes")}
        outputs[f"features/frame_{frame}_encoder"] = found["encoder_sequence_output"]
        outputs[f"features/frame_{frame}_decoder"] = ops.moveaxis(found["decoder_outputs"], 1, 0)
    outputs["frame_1_tracking_logits"] = second["tracking_logits"]
    outputs["frame_1_tracking_boxes"] = second["expected_boxes"]
    outputs["features/frame_1_decoder_track"] = ops.moveaxis(second["track_outputs"], 1, 0)
    for i, (*grid, _) in enumerate(sides):
        mask = resize_nearest(shown, grid)
        encoding = SineGridPositionEncoding(normalize=True, offset=0.5)
        zeros = frames[0][i][..., :1] * 0 + np.zeros(config.dim, "float32")
        outputs |= {f"position_{i}": encoding(zeros, mask), f"mask_{i}": ops.logical_not(mask)}
    return Model(inputs, outputs), outputs


def whole(config, sides, size, num_classes):
    """The model behind the backbone, with the class heads of all blocks."""
    maps, previous = ([keras.Input(shape) for shape in sides] for _ in range(2))
    pixel_mask = keras.Input(size, dtype="bool")
    state = keras.Input((config.num_queries, config.dim)), keras.Input((config.num_queries, 4))
    outputs = tracked(config, Trace(), maps, previous, pixel_mask, *state)
    states = outputs["decoder_outputs"]
    heads = [keras.layers.Dense(num_classes, name=f"class_head_{i}") for i in range(states.shape[1])]
    for i, head in enumerate(heads):
        head.build(states[:, i].shape)
    outputs |= {
        "pred_logits": ops.stack([head(states[:, i]) for i, head in enumerate(heads)], axis=1)[:, -1],
        "pred_boxes": outputs["decoder_boxes"][:, -1],
        "tracking_logits": heads[-1](outputs["track_outputs"][:, -1]),
    }
    model = Model([*maps, *previous, pixel_mask, *state], outputs)
    blocks = [model.get_layer(f"encoder_block_{i}") for i in range(config.num_layers)]
    model.grids = blocks[0].attention.branch.grids
    return model


def state_of(weights, grids, config):
    """Their `weights` with a vector for each level, without the heads of boxes that stand twice, and with the
    offsets from points as ours: they divide x by the rows of a map and y by its columns.
    """
    weights = {key: x for key, x in weights.items() if not key.startswith("transformer.decoder.bbox_embed")}
    for i, level in enumerate(weights.pop("transformer.level_embed")):
        weights[f"level_{i}"] = level
    factors = np.array([[columns / rows, rows / columns] for rows, columns in grids], "float32")
    shape = (config.num_heads, len(grids), config.num_points, 2)
    factors = np.broadcast_to(factors[:, None], shape).reshape(-1)
    for key in weights:
        is_of_points = key.startswith(("transformer.encoder", "transformer.decoder.layers.0."))
        if is_of_points and "sampling_offsets" in key:
            weights[key] = (weights[key].T * factors).T
    return weights
