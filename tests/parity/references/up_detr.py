"""UP-DETR's pre-training by its authors' names (Dai et al. 2021), of the features that a backbone gives."""

import keras
from keras import ops

from keras_tfm.convert.keymap import CONVOLVED, linear, read_state, weight
from keras_tfm.heads.patch_detector import PatchDetector, own_queries
from keras_tfm.models import DETR, DETRConfig
from keras_tfm.training.model import Model
from keras_tfm.training.safetensors import CheckpointError
from tests.parity.references.detr import TRANSFORMER_FIELDS, authors_block_rows
from tests.parity.references.state import check_arguments, fields_of

OTHERS = {"num_queries", "num_patches", "feature_recon", "transformer", "backbone_channels", "patches_given"}
STRIDE = 4  # of the smallest backbone, which stands in for the one that theirs has elsewhere


def rows():
    """The whole table."""
    return [
        *authors_block_rows("transformer."),
        *weight("encoder_projection/convolution/kernel", "input_proj.weight", CONVOLVED),
        *weight("encoder_projection/convolution/bias", "input_proj.bias"),
        *weight("decoder_queries/table", "query_embed.weight"),
        *linear("patch_queries/projection", "patch2query"),
        *linear("class_head", "class_embed"),
        *linear("box_head/layer_{}", "bbox_embed.layers.{}"),
        *linear("feature_head/layer_{}", "feature_align.layers.{}"),
    ]


def read(arguments, weights, shapes):
    """The model for the authors' arguments and weights and inputs of these `shapes`, and its outputs by their
    names. Their `mask` is True for padding. For fewer patches than in training, the first queries are used.

    Raises CheckpointError for more patches than a patch has queries: theirs hides all keys from some then.
    """
    check_arguments(arguments, {*OTHERS, "num_classes"}, "UP-DETR")
    if not arguments.get("feature_recon", True):
        raise CheckpointError("UP-DETR", "feature_recon", "True", "False")
    count = arguments.get("patches_given", arguments["num_patches"])
    each = arguments["num_queries"] // arguments["num_patches"]
    if count > min(each, arguments["num_patches"]):
        expected = f"at most {min(each, arguments['num_patches'])}"
        raise CheckpointError("UP-DETR", "patches_given", expected, repr(count))
    weights = {**weights, "query_embed.weight": weights["query_embed.weight"][: count * each]}
    _, rows_, columns, channels = shapes["features_in"]
    config = DETRConfig(
        image_size=(STRIDE * rows_, STRIDE * columns),
        backbone_config={"stem_dim": 4, "dims": (channels,), "depths": (1,), "block": "basic"},
        num_queries=count * each,
        **fields_of(arguments["transformer"], TRANSFORMER_FIELDS),
    )
    backbone = DETR(config)
    patch_size = [STRIDE * side for side in shapes["patch_features"][2:4]]
    detector = PatchDetector(backbone, count, patch_size, num_classes=arguments["num_classes"])
    position = backbone.get_layer("encoder_position").output
    pixel_mask = detector.input["pixel_mask"]
    given = [backbone.maps[-1], position, detector.get_layer("patch_mean").input, pixel_mask]
    inner = Model(given, {"all": detector.output, **detector.found})
    read_state(inner, weights, rows())

    kinds = {"features_in": "float32", "mask": "bool", "position": "float32", "patch_features": "float32"}
    inputs = {name: keras.Input(shapes[name][1:], dtype=kind, name=name) for name, kind in kinds.items()}
    shown = ops.repeat(ops.repeat(ops.logical_not(inputs["mask"]), STRIDE, axis=1), STRIDE, axis=2)
    maps = ops.reshape(inputs["patch_features"], (-1, *shapes["patch_features"][2:]))  # (B P, ., ., F)
    found = inner([inputs["features_in"], inputs["position"], maps, shown])
    first = found["all"][:, 0, :, count:]  # of the first decoder block
    names = {"logits": "pred_logits", "boxes": "pred_boxes", "features": "pred_feature"}
    outputs = {theirs: found[name] for name, theirs in names.items()}
    outputs |= {"gt_feature": found["patch_features"]}
    outputs |= {"features/aux_0_logits": first[..., :-4], "features/aux_0_boxes": first[..., -4:]}
    mask = own_queries(config.num_queries, count)[0]
    outputs["attention_mask_allowed"] = ops.logical_or(mask, ops.zeros_like(inputs["mask"][:1, :1, :1]))[0]
    return Model(inputs, outputs), outputs
