"""ISTR's stages (Hu et al. 2021) by its authors' names, of a pyramid's levels, first boxes and queries; its
codes of masks.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.keymap import (
    TRANSPOSED,
    Transform,
    batch_norm,
    convolution,
    feedforward,
    linear,
    norm,
    read_state,
    weight,
)
from keras_tfm.heads.mask_codes import (
    MaskAutoencoder,
    PrincipalMaskCode,
    cosine_code,
    masks_of_cosines,
    zigzag,
)
from keras_tfm.layers.base import Layer
from keras_tfm.models import ISTRConfig
from keras_tfm.models.base import Trace
from keras_tfm.models.detection.istr import in_pixels, stages
from keras_tfm.private.keras import inputs_of_calls
from keras_tfm.training.model import Model
from tests.parity.references.state import check_arguments, fields_of

FIELDS = {
    "hidden_dim": "dim",
    "dim_dynamic": "dynamic_dim",
    "dim_feedforward": "intermediate_dim",
    "nheads": "num_heads",
    "num_heads": "num_layers",  # of stages
    "num_cls": "num_class_layers",
    "num_reg": "num_box_layers",
    "pooler_resolution": "region_size",
    "mask_pooler_resolution": "mask_region_size",
}
OTHERS = {"mask_last_kernel", "sampling_ratio", "strides", "num_classes"}


def rows():
    """The whole table."""
    ours, theirs = "decoder_block_{}", "head_series.{}"
    table = [
        *weight(
            f"{ours}/attention/branch/projections/query_key_value/kernel",
            f"{theirs}.self_attn.in_proj_weight",
            TRANSPOSED,
        ),
        *weight(
            f"{ours}/attention/branch/projections/query_key_value/bias", f"{theirs}.self_attn.in_proj_bias"
        ),
        *linear(f"{ours}/attention/branch/output", f"{theirs}.self_attn.out_proj"),
        *linear(f"{ours}/interaction/branch/matrices", f"{theirs}.inst_interact.dynamic_layer"),
        *linear(f"{ours}/interaction/branch/output", f"{theirs}.inst_interact.out_layer"),
        *feedforward(f"{ours}/feedforward", f"{theirs}.linear1", f"{theirs}.linear2"),
        *linear("class_head_{}", f"{theirs}.class_logits"),
        *linear("decoder_box_{}", f"{theirs}.bboxes_delta"),
    ]
    for i, name in enumerate(("attention", "interaction", "feedforward"), start=1):
        table += norm(f"{ours}/{name}/norm", f"{theirs}.norm{i}")
    for i, name in enumerate(("hidden", "place", "output"), start=1):
        table += norm(f"{ours}/interaction/branch/{name}_norm", f"{theirs}.inst_interact.norm{i}")
    for name, key in (("class", "cls"), ("box", "reg")):
        tower = f"decoder_{name}_tower_{{}}/layer_{{}}"
        table += weight(f"{tower}/kernel", f"{theirs}.{key}_module.{{}}.weight", TRANSPOSED)
        table += norm(tower, f"{theirs}.{key}_module.{{}}")
    for i in range(3):
        table += convolution(f"mask_head_{{}}/layer_{i}", f"{theirs}.mask_module.{3 * i}")
        table += batch_norm(f"mask_head_{{}}/layer_{i}/norm", f"{theirs}.mask_module.{3 * i + 1}")
    return table


def read(arguments, weights, shapes):
    """The stages for their arguments and weights and inputs of these `shapes`, and the outputs by their
    names.
    """
    check_arguments(arguments, {*FIELDS, *OTHERS}, "ISTR")
    strides = arguments["strides"]
    config = ISTRConfig(
        **fields_of({name: x for name, x in arguments.items() if name in FIELDS}, FIELDS),
        num_queries=shapes["boxes"][1],
        code_dim=arguments["hidden_dim"],
    )
    names = [*(f"features_{i}" for i in range(len(strides))), "boxes", "proposal_features"]
    inputs = {name: keras.Input(shapes[name][1:], name=name) for name in names}
    levels = [inputs[f"features_{i}"] for i in range(len(strides))]
    extent = np.array([[[side * strides[0] for side in levels[0].shape[2:0:-1]]]], "float32")
    start, end = ops.split(inputs["boxes"] / np.tile(extent, 2), 2, axis=-1)
    boxes = ops.concatenate([(start + end) / 2, end - start], axis=-1)
    trace, queries = Trace(), inputs["proposal_features"]
    found = stages(config, trace, levels, strides, queries, boxes, extent)
    outputs = {"pred_mask_codes": found["mask_codes"][:, -1]}
    for i, block in enumerate(trace.blocks["decoder"]):
        states = trace.hidden_states["decoder"]
        interaction = Interaction(block, name=f"interaction_{i}")
        logits = keras.layers.Dense(arguments["num_classes"], name=f"class_head_{i}")
        outputs |= {
            f"features/stage_{i}_objects": states[i + 1],
            f"features/stage_{i}_logits": logits(found["decoder_outputs"][:, i]),
            f"features/stage_{i}_boxes": in_pixels(found["decoder_boxes"][:, i], extent),
            f"features/stage_{i}_dynamic": interaction(*inputs_of_calls(block)[:2]),
        }
    outputs["pred_logits"] = outputs[f"features/stage_{i}_logits"]
    outputs["pred_boxes"] = outputs[f"features/stage_{i}_boxes"]
    model = Model(inputs, outputs)
    read_state(model, weights, rows())
    return model, outputs


class Interaction(Layer):
    """What the dynamic convolution of a `block` gives: queries (B, Q, D) and regions (B, Q, P, D) -> (B, Q,
    D).
    """

    def __init__(self, block, **kwargs):
        super().__init__(**kwargs)
        self.block = block

    def build(self, x_shape, regions_shape):
        """The block is built already."""

    def call(self, x, regions):
        return self.block.interaction.branch(self.block.attention(x), regions)


def read_codes(arguments, arrays):
    """The names of the inputs among the `arrays`, and what the three codes make of them."""
    keys = [name for name in arrays if name.startswith("weights/")]
    weights = {name.removeprefix("weights/"): arrays[name] for name in keys}
    masks, side, widths = arrays["masks"], arguments["mask_size"], arguments["widths"]
    model = MaskAutoencoder(side, arguments["embedding"], widths)
    table = []
    for i in range(len(widths) + 1):
        table += convolution(f"encoder/layer_{i}", f"encoder.{3 * i}")
        table += batch_norm(f"encoder/layer_{i}/norm", f"encoder.{3 * i + 1}")
    # A transposed convolution's kernel is (in, out, height, width) there, (height, width, out, in) here.
    turned = Transform(lambda x: x.transpose(2, 3, 1, 0), lambda x, _: [x.transpose(3, 2, 0, 1)])
    table += weight("decoder/convolution/kernel", "decoder.1.weight", turned)
    table += weight("decoder/convolution/bias", "decoder.1.bias")
    table += batch_norm("decoder/layer_1", "decoder.2")
    for i in range(len(widths)):
        ours, theirs = f"decoder/layer_{4 + 2 * i}", f"decoder.{4 + i}.up"
        table += convolution(ours, f"{theirs}.1") + batch_norm(f"{ours}/norm", f"{theirs}.2")
    last = len(widths)
    table += convolution(f"decoder/layer_{3 + 2 * last}", f"decoder.{4 + last}")
    read_state(model, weights, table)
    found = model(masks)
    parts = (arrays[f"pca_{name}"] for name in ("mean", "components", "variances"))
    mean, components, variances = parts
    code = PrincipalMaskCode(mean.reshape(side, side), components, variances)
    cosines = cosine_code(masks, arguments["dct_dim"])
    ours = {
        "code": found["code"],
        "output": found["masks"],
        "pca_code": code.encode(masks),
        "pca_output": code.decode(code.encode(masks)),
        "dct_code": cosines,
        "dct_output": masks_of_cosines(cosines, side),
        "dct_coordinates": zigzag(side, arguments["dct_dim"]),
    }
    names = {"masks", "pca_components", "pca_variances", "pca_mean", *keys}
    return names, {name: np.asarray(x) for name, x in ours.items()}
