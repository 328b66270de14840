"""VisTR by its authors' names (Wang et al. 2021), of the features that a backbone gives."""

import keras
from keras import ops

from keras_tfm.convert.keymap import CONVOLVED, linear, read_state, weight
from keras_tfm.heads import ObjectDetector
from keras_tfm.models import VisTR, VisTRConfig
from keras_tfm.training.model import Model
from tests.parity.references.detr import TRANSFORMER_FIELDS, authors_block_rows
from tests.parity.references.state import check_arguments, fields_of

OTHERS = {"num_frames", "num_queries", "num_classes", "transformer", "backbone_channels"}
STRIDE = 4  # of the smallest backbone, which stands in for the one that theirs has elsewhere


def rows():
    """The whole table."""
    return [
        *authors_block_rows("transformer."),
        *weight("encoder_projection/convolution/kernel", "input_proj.weight", CONVOLVED),
        *weight("encoder_projection/convolution/bias", "input_proj.bias"),
        *weight("decoder_queries/table", "query_embed.weight"),
        *linear("class_head", "class_embed"),
        *linear("box_head/layer_{}", "bbox_embed.layers.{}"),
    ]


def read(arguments, weights, shapes):
    """The model for the authors' arguments and weights and inputs of these `shapes`, and its outputs by their
    names. Their `mask` is True for padding; the positions are our layer's, and compared.
    """
    check_arguments(arguments, OTHERS, "VisTR")
    *_, rows_, columns, channels = shapes["features_in"]
    config = VisTRConfig(
        image_size=(STRIDE * rows_, STRIDE * columns),
        backbone_config={"stem_dim": 4, "dims": (channels,), "depths": (1,), "block": "basic"},
        num_frames=arguments["num_frames"],
        num_queries=arguments["num_queries"],
        **fields_of(arguments["transformer"], TRANSFORMER_FIELDS),
    )
    backbone = VisTR(config)
    detector = ObjectDetector(backbone, arguments["num_classes"])
    position = backbone.get_layer("encoder_position").output
    found = [detector.output, detector.predictions, position]
    inner = Model([backbone.maps[-1], detector.input["video_mask"]], found)
    read_state(inner, weights, rows())

    kinds = {"features_in": "float32", "mask": "bool"}
    inputs = {name: keras.Input(shapes[name][1:], dtype=kind, name=name) for name, kind in kinds.items()}
    shown = ops.repeat(ops.repeat(ops.logical_not(inputs["mask"]), STRIDE, axis=2), STRIDE, axis=3)
    maps = ops.reshape(inputs["features_in"], (-1, rows_, columns, channels))  # (B F, rows, columns, C)
    last, all_blocks, position = inner([maps, shown])
    outputs = {"pred_logits": last["logits"], "pred_boxes": last["boxes"], "position": position}
    for i in range(all_blocks.shape[1] - 1):
        outputs[f"features/aux_{i}_logits"] = all_blocks[:, i, :, :-4]
        outputs[f"features/aux_{i}_boxes"] = all_blocks[:, i, :, -4:]
    return Model(inputs, outputs), outputs
