"""SMCA's Transformer by its authors' names (Gao et al. 2021); their code has no published weights here."""

import keras
from keras import ops

from keras_tfm.convert.keymap import linear, norm, read_state
from keras_tfm.models import SMCA, SMCAConfig
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.detr import TRANSFORMER_FIELDS, authors_block_rows, transformer_of
from tests.parity.references.state import fields_of

FIELDS = {
    **TRANSFORMER_FIELDS,
    "smooth": "smoothness",
    "dynamic_scale": "num_scales",
}
SCALES = {"type1": 0, "type2": 1, "type3": 2}
FIXED = {"normalize_before": False, "return_intermediate_dec": True}
INPUTS = ("features_in", "mask", "position", "query_embed", "sizes_hw")
STRIDE = 4  # of the smallest backbone, which stands in for the one that theirs has elsewhere


def rows():
    """The whole table."""
    theirs = "decoder.layers.{}"
    return [
        *authors_block_rows(),
        *norm("decoder_place_norm_{}", f"{theirs}.norm4"),
        *linear("decoder_references/layer_{}", "decoder.layers.0.point1.layers.{}"),
        *linear("decoder_bias_{}/offsets", f"{theirs}.point2"),
        *linear("decoder_bias_{}/scales", f"{theirs}.point3"),
    ]


def config_of(arguments, **fields):
    """The configuration for the authors' arguments and other `fields`."""
    for name, value in FIXED.items():
        if arguments.get(name, value) != value:
            raise CheckpointError("SMCA", name, repr(value), repr(arguments[name]))
    if arguments["dynamic_scale"] not in SCALES:
        known = f"one of {', '.join(SCALES)}"
        raise CheckpointError("SMCA", "dynamic_scale", known, repr(arguments["dynamic_scale"]))
    own = fields_of({name: x for name, x in arguments.items() if name not in FIXED}, FIELDS)
    return SMCAConfig(**own | fields | {"num_scales": SCALES[arguments["dynamic_scale"]]})


def read(arguments, weights, shapes):
    """The Transformer for the authors' arguments and weights and inputs of these `shapes`, and its outputs by
    their names. Their `mask` is True for padding. `sizes_hw`, the images' own, are not read: they follow
    from the mask.
    """
    _, rows_, columns, _ = shapes["features_in"]
    config = config_of(
        arguments,
        image_size=(STRIDE * rows_, STRIDE * columns),
        backbone_config={"stem_dim": 4, "dims": (4,), "depths": (1,), "block": "basic"},
        num_queries=shapes["query_embed"][0],
    )
    transformer = transformer_of(SMCA(config))
    read_state(transformer, weights, rows())
    kinds = dict.fromkeys(INPUTS, "float32") | {"mask": "bool"}
    inputs = {name: keras.Input(shapes[name][1:], dtype=kind, name=name) for name, kind in kinds.items()}
    pixel_mask = ops.repeat(ops.repeat(ops.logical_not(inputs["mask"]), STRIDE, axis=1), STRIDE, axis=2)
    features, queries = inputs["features_in"], ops.expand_dims(inputs["query_embed"], 0)
    queries = queries + ops.zeros_like(features[:, :1, 0])  # (B, Q, D)
    found = transformer([features, inputs["position"], queries, pixel_mask])
    outputs = {
        "output": ops.transpose(found["decoder_outputs"], (1, 0, 2, 3)),
        "points": found["references"][:, 0, :, :2],
        "features/encoder": found["encoder_sequence_output"],
    }
    return Model(inputs, outputs), outputs
