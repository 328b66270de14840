"""TransT (Chen et al. 2021) and TrTr (Zhao et al. 2021) by their authors' names, of the features that a
backbone gives. The positions are our layer's, and compared.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.detr import joint_attention_rows
from keras_tfm.convert.keymap import CONVOLVED, feedforward, linear, norm, read_state, weight
from keras_tfm.heads import HeatmapDetector, TargetDetector, TargetLoss
from keras_tfm.heads.target_losses import cells_inside
from keras_tfm.layers.boxes import box_iou
from keras_tfm.models import TransT, TransTConfig, TrTr, TrTrConfig
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.detr import TRANSFORMER_FIELDS, authors_block_rows
from tests.parity.references.state import check_arguments, fields_of

STRIDE = 4  # of the smallest backbone, which stands in for the one that theirs has elsewhere
FIELDS = {name: field for name, field in TRANSFORMER_FIELDS.items() if "layers" not in name}
TRANST_FIELDS = {**FIELDS, "num_featurefusion_layers": "num_layers"}
TRANST_OTHERS = {"num_classes", "backbone_channels", "eos_coef"}
TRTR_OTHERS = {"backbone_channels", "transformer_mask"}


def transt_rows():
    """The whole table. Their parts number 1 are the template's, number 2 the searched image's."""
    layers = "featurefusion_network.encoder.layers.{}"
    table = []
    for number, side in enumerate(("template", "search"), start=1):
        block, cross = f"{side}_block_{{}}", f"{side}_cross_block_{{}}"
        linears = (f"{layers}.linear{number}1", f"{layers}.linear{number}2")
        table += attention(f"{block}/attention", f"{layers}.self_attn{number}", f"{layers}.norm{number}1")
        theirs = f"{layers}.multihead_attn{number}", f"{layers}.norm{number}2"
        table += attention(f"{cross}/context_attention", *theirs)
        table += feedforward(f"{cross}/feedforward", *linears)
        table += norm(f"{cross}/feedforward/norm", f"{layers}.norm{number}3")
    last = "featurefusion_network.decoder.layers.{}"
    table += attention("decoder_block_{}/context_attention", f"{last}.multihead_attn", f"{last}.norm1")
    table += feedforward("decoder_block_{}/feedforward", f"{last}.linear1", f"{last}.linear2")
    table += norm("decoder_block_{}/feedforward/norm", f"{last}.norm2")
    return [
        *table,
        *norm("decoder_norm", "featurefusion_network.decoder.norm"),
        *projection_rows("input_proj"),
        *linear("class_head/layer_{}", "class_embed.layers.{}"),
        *linear("box_head/layer_{}", "bbox_embed.layers.{}"),
    ]


def trtr_rows():
    """The whole table."""
    return [
        *authors_block_rows("transformer.0."),
        *projection_rows("input_projs.0"),
        *linear("heatmap_head", "heatmap_embed"),
        *linear("place_head/layer_{}", "reg_embed.layers.{}"),
        *linear("size_head/layer_{}", "wh_embed.layers.{}"),
    ]


def projection_rows(theirs):
    """The projection of both maps."""
    table = weight("projection/convolution/kernel", f"{theirs}.weight", CONVOLVED)
    return table + weight("projection/convolution/bias", f"{theirs}.bias")


def attention(ours, theirs, their_norm):
    """A residual's attention and its norm."""
    return joint_attention_rows(f"{ours}/branch/attention", theirs) + norm(f"{ours}/norm", their_norm)


def read_transt(arguments, weights, shapes):
    """TransT for the authors' arguments and weights and inputs of these `shapes`, and its outputs and losses
    by their names. Their masks are True for padding.
    """
    check_arguments(arguments, {*TRANST_FIELDS, *TRANST_OTHERS}, "TransT")
    config = config_of(TransTConfig, arguments, TRANST_FIELDS, shapes)
    detector = TargetDetector(TransT(config), arguments["num_classes"])
    inputs, found = between(detector, weights, transt_rows(), shapes)
    logits, boxes = found["predictions"][..., :-4], found["predictions"][..., -4:]
    outputs = {"pred_logits": logits, "pred_boxes": boxes, "features/fused": found["sequence_output"]}
    for i in range(config.num_layers):
        for side in ("template", "search"):
            outputs[f"features/{side}_{i}"] = found[side][2 * i + 2]
    inputs["true_boxes"] = truth = keras.Input(shapes["true_boxes"][1:], name="true_boxes")
    grid = detector.backbone.grid
    loss = TargetLoss(grid, weights=(1.0, 1.0, 1.0), no_target=arguments.get("eos_coef", 0.0625))
    means = [total / count for total, count in loss.means(truth, found["predictions"])]
    outputs |= dict(zip(("loss_ce", "loss_bbox", "loss_giou"), means, strict=True))
    inside = cells_inside(truth, grid)
    overlaps = ops.sum(ops.where(inside, box_iou(boxes, truth[:, None]), 0.0))
    outputs["iou"] = overlaps / ops.sum(ops.cast(inside, "float32"))
    return Model(inputs, outputs), {**outputs, "positive_mask": inside, **found["positions"]}


def read_trtr(arguments, weights, shapes):
    """TrTr for the authors' arguments and weights and inputs of these `shapes`, and its outputs by their
    names. Their masks are True for padding.
    """
    check_arguments(arguments, {*TRANSFORMER_FIELDS, *TRTR_OTHERS}, "TrTr")
    if len(channels := arguments["backbone_channels"]) != 1:
        raise CheckpointError("TrTr", "backbone_channels", "one map", f"{len(channels)}")
    config = config_of(TrTrConfig, arguments, TRANSFORMER_FIELDS, shapes)
    detector = HeatmapDetector(TrTr(config))
    is_masked = arguments.get("transformer_mask", False)
    inputs, found = between(detector, weights, trtr_rows(), shapes, is_masked)
    predictions = found["predictions"]
    norm_layer = detector.backbone.get_layer("decoder_norm")
    outputs = {
        "pred_heatmap": predictions[..., :1],
        "pred_bbox_reg": predictions[..., 1:3],
        "pred_bbox_wh": predictions[..., 3:],
        "features/encoder": found["encoder_sequence_output"],
        "features/decoder": ops.stack([norm_layer(x) for x in found["decoder"][1:]]),
    }
    return Model(inputs, outputs), outputs | found["positions"]


def config_of(config_class, arguments, names, shapes):
    """The configuration whose smallest backbone has maps of the given features."""
    (*_, rows, columns, channels), (*_, theirs, broad, _) = shapes["search_in"], shapes["template_in"]
    return config_class(
        image_size=(STRIDE * rows, STRIDE * columns),
        template_size=(STRIDE * theirs, STRIDE * broad),
        backbone_config={"stem_dim": 4, "dims": (channels,), "depths": (1,), "block": "basic"},
        **fields_of({x: y for x, y in arguments.items() if x in names}, names),
    )


def between(detector, weights, rows, shapes, is_masked=True):
    """(Inputs by their names, what the `detector` makes of them: predictions, outputs, positions and the
    states of its stacks), with their `weights`.
    """
    backbone = detector.backbone
    template, search = backbone.cells
    given = [backbone.template_maps[-1], backbone.maps[-1], template.position, search.position]
    states = {name: x for name, x in backbone.hidden_states.items() if name not in ("backbone", "encoder")}
    found = {"predictions": detector.predictions, **backbone.output, **states}
    inner = Model([*given, template.mask, search.mask], found)
    read_state(inner, weights, rows)

    encoding = backbone.get_layer("position")
    inputs, maps, places, masks, positions = {}, [], [], [], {}
    for side in ("template", "search"):
        name, hidden = f"{side}_in", f"{side}_mask"
        inputs[name] = keras.Input(shapes[name][1:], name=name)
        inputs[hidden] = keras.Input(shapes[hidden][1:], dtype="bool", name=hidden)
        shown = ops.logical_not(inputs[hidden])
        dim = backbone.config.dim
        zeros = ops.zeros_like(inputs[name][..., :1]) + np.zeros(dim, "float32")
        positions[f"{side}_position"] = encoding(zeros, shown)
        maps.append(inputs[name])
        length = int(np.prod(shapes[hidden][1:]))
        places.append(ops.reshape(positions[f"{side}_position"], (-1, length, dim)))
        shown = shown if is_masked else ops.ones_like(shown)
        masks.append(ops.reshape(shown, (-1, length)))
    return inputs, {**inner([*maps, *places, *masks]), "positions": positions}
