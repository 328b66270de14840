"""TSP-FCOS (Sun et al. 2021) by its authors' names, of the levels of a pyramid."""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.detr import joint_attention_rows
from keras_tfm.convert.keymap import (
    CONVOLVED,
    convolution,
    feedforward,
    linear,
    norm,
    read_state,
    weight,
)
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.models import TSPFCOSConfig
from keras_tfm.models.base import Trace
from keras_tfm.models.detection.tsp_fcos import cells_of, scores_of
from keras_tfm.training.model import Model
from tests.parity.references.state import check_arguments, fields_of

FIELDS = {
    "channels": "pyramid_dim",
    "group_norm_groups": "num_groups",
    "d_model": "dim",
    "nhead": "num_heads",
    "num_encoder_layers": "num_layers",
    "dim_feedforward": "intermediate_dim",
    "num_convs": "num_convolutions",
    "num_proposal": "num_queries",
}
OTHERS = {"normalize_before", "in_features", "strides", "image_sizes_hw", "padded_size_hw", "num_classes"}


def block_rows(prefix):
    """The blocks of their encoder and its last norm."""
    ours, theirs = "encoder_block_{}", f"{prefix}layers.{{}}"
    return [
        *joint_attention_rows(f"{ours}/attention/branch/attention", f"{theirs}.self_attn"),
        *norm(f"{ours}/attention/norm", f"{theirs}.norm1"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.linear1", f"{theirs}.linear2"),
        *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2"),
        *norm("norm", f"{prefix}norm"),
    ]


def rows(config):
    """The whole table."""
    table = block_rows("transformer_encoder.")
    for name, key in (("class", "cls"), ("box", "bbox")):
        for i in range(config.num_convolutions):
            ours, theirs = f"{name}_tower/layer_{i}", f"fcos_head.{key}_tower"
            table += convolution(ours, f"{theirs}.{3 * i}") + norm(f"{ours}/norm", f"{theirs}.{3 * i + 1}")
    return [
        *table,
        *weight("dense_class_head/kernel", "fcos_head.cls_logits.weight", CONVOLVED),
        *weight("dense_class_head/bias", "fcos_head.cls_logits.bias"),
        *weight("level_position/table", "pyramid_position_embedding"),
        *weight("level_scale/table", "scales"),
        *linear("token_projection", "enc_proj"),
        *norm("token_norm", "post_enc_proj_norm"),
        *linear("class_head", "cls_logits"),
        *linear("box_head", "bbox_pred"),
        *linear("centredness_head", "ctrness"),
    ]


def read(arguments, weights, shapes):
    """The model for their arguments and weights and inputs of these `shapes`, and its outputs by their
    names. Their masks are made for images of the `image_sizes_hw`, and resized step by step.
    """
    check_arguments(arguments, {*FIELDS, *OTHERS}, "TSP-FCOS")
    fields = fields_of({name: x for name, x in arguments.items() if name in FIELDS}, FIELDS)
    config = TSPFCOSConfig(**fields, num_classes=arguments["num_classes"])
    names = [f"features_{name}" for name in arguments["in_features"]]
    inputs = {name: keras.Input(shapes[name][1:], name=name) for name in names}
    levels = [inputs[name] for name in names]
    height, width = arguments["padded_size_hw"]
    cells = np.array(
        [
            [[row < rows_ and column < columns for column in range(width)] for row in range(height)]
            for rows_, columns in arguments["image_sizes_hw"]
        ]
    )
    for size in ((height // 2, width // 2), (height // 4, width // 4)):
        cells = resize_nearest(cells, size)
    masks = []
    for level in levels:
        cells = resize_nearest(cells, level.shape[1:3])
        masks.append(ops.logical_and(cells, ops.isfinite(level[..., 0])))
    trace = Trace()
    strides = np.array(arguments["strides"], "float32")
    all_cells, choose = cells_of(config, levels, masks, arguments["strides"])
    found = choose(trace, scores_of(all_cells["logits"]))
    outputs = {
        "pred_logits": found["logits"],
        "pred_ltrb": found["distances"],
        "pred_centerness": found["centredness"],
        "locations": found["centres"],
        "levels": ops.argmax(ops.equal(found["strides"], strides), axis=-1),
        "features/encoder": found["sequence_output"],
        "features/input": trace.hidden_states["encoder"][0],
    }
    first = 0
    for i, level in enumerate(levels):
        rows_, columns = level.shape[1:3]
        dense = all_cells["logits"][:, first : first + rows_ * columns]
        outputs[f"features/dense_logits_{i}"] = ops.reshape(dense, (-1, rows_, columns, dense.shape[-1]))
        first += rows_ * columns
    model = Model(inputs, outputs)
    read_state(model, {**weights, "scales": weights["scales"][:, None]}, rows(config))
    return model, outputs
