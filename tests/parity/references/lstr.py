"""LSTR (Liu et al. 2021) by its authors' names. Their mask is True for padding."""

import keras
from keras import ops

from keras_tfm.convert import resnet
from keras_tfm.convert.keymap import CONVOLVED, linear, read_state, weight
from keras_tfm.heads import LaneDetector
from keras_tfm.models import LSTR, LSTRConfig
from keras_tfm.training.model import Model
from keras_tfm.visualize import with_attention
from tests.parity.references.detr import authors_block_rows
from tests.parity.references.state import check_arguments, fields_of

FIELDS = {
    "attn_dim": "dim",
    "num_queries": "num_queries",
    "drop_out": "dropout",
    "num_heads": "num_heads",
    "dim_feedforward": "intermediate_dim",
    "enc_layers": "num_layers",
    "dec_layers": "num_decoder_layers",
}
OTHERS = {"layers", "res_dims", "res_strides", "aux_loss", "pos_type", "pre_norm", "return_intermediate"}
OTHERS |= {"lsp_dim", "mlp_layers", "num_cls"}


def rows(config):
    """The whole table."""
    return [
        *resnet.timm_rows(config.of_backbone),
        *authors_block_rows("transformer."),
        *weight("encoder_projection/convolution/kernel", "input_proj.weight", CONVOLVED),
        *weight("encoder_projection/convolution/bias", "input_proj.bias"),
        *weight("decoder_queries/table", "query_embed.weight"),
        *linear("class_head", "class_embed"),
        *linear("lane_head/layer_{}", "specific_embed.layers.{}"),
        *linear("road_head/layer_{}", "shared_embed.layers.{}"),
    ]


def read(arguments, weights, shapes):
    """The model for their arguments and weights and inputs of these `shapes`, and its outputs by their
    names.
    """
    check_arguments(arguments, {*FIELDS, *OTHERS}, "LSTR")
    dims, depths = arguments["res_dims"], arguments["layers"]
    config = LSTRConfig(
        image_size=tuple(shapes["images"][1:3]),
        backbone_config={"stem_dim": dims[0], "dims": dims, "depths": depths, "block": "basic"},
        **fields_of({name: x for name, x in arguments.items() if name in FIELDS}, FIELDS),
    )
    backbone = LSTR(config)
    detector = LaneDetector(backbone, arguments["num_cls"] - 1)
    read_state(detector, weights, rows(config))
    found = {
        "predictions": detector.predictions,
        "features/backbone": backbone.maps[-1],
        "features/position": backbone.get_layer("encoder_position").output,
        "features/encoder": backbone.output["encoder_sequence_output"],
        "features/decoder": ops.transpose(backbone.output["decoder_outputs"], (1, 0, 2, 3)),
    }
    inputs = {
        "images": keras.Input(shapes["images"][1:], name="images"),
        "mask": keras.Input(shapes["mask"][1:], dtype="bool", name="mask"),
    }
    given = {"images": inputs["images"], "pixel_mask": ops.logical_not(inputs["mask"])}
    both = with_attention(Model(detector.input, found))(given)
    outputs, predictions = dict(both["output"]), both["output"].pop("predictions")
    outputs.pop("predictions")
    outputs |= {"logits": predictions[:, -1, :, :2], "curves": predictions[:, -1, :, 2:]}
    for i in range(predictions.shape[1] - 1):
        outputs |= {f"features/aux_{i}_logits": predictions[:, i, :, :2]}
        outputs |= {f"features/aux_{i}_curves": predictions[:, i, :, 2:]}
    last = next(
        x for path, x in both["attention"].items() if f"encoder_block_{config.num_layers - 1}" in path
    )
    outputs["encoder_attention"] = ops.mean(last, axis=1)
    return Model(inputs, outputs), outputs
