"""The classes of transformers' processors of images and videos that are computed here: their defaults.

An entry that a preprocessor's file does not have is its class's. All other classes do what
`data.Preprocessing` does not (patches, padding to multiples, other orders of channels), and are refused by
name. Other entries of a file change nothing in these classes.
"""

from keras_tfm.configs import brief
from keras_tfm.training.safetensors import CheckpointError

HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
OPENAI = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
BILINEAR, BICUBIC = 2, 3  # Pillow's numbers


def _square(side):
    return {"height": side, "width": side}


def _stretched(values, side, resample):
    return {**values, "size": _square(side), "default_to_square": True, "resample": resample}


def _cut(values, shortest, side, resample):
    """Resized until the shorter side has `shortest` pixels; then a square of `side` is cut out."""
    size = {"size": {"shortest_edge": shortest}, "default_to_square": False, "resample": resample}
    return {**values, **size, "do_center_crop": True, "crop_size": _square(side)}


def _whole(shortest):
    size = {"size": {"shortest_edge": shortest, "longest_edge": 1_333}, "default_to_square": False}
    return {**IMAGENET, **size, "resample": BILINEAR}


CLASSES = {
    "Beit": _stretched(HALVES, 224, BICUBIC),
    "Bit": _cut(OPENAI, 224, 224, BICUBIC),
    "Blip": _stretched(OPENAI, 384, BICUBIC),
    "ChineseCLIP": _cut(OPENAI, 224, 224, BICUBIC),
    "CLIP": _cut(OPENAI, 224, 224, BICUBIC),
    "ConditionalDetr": _whole(800),
    "ConvNext": _cut(HALVES, 384, 384, BICUBIC) | {"do_center_crop": False, "crop_pct": 224 / 256},
    "DeformableDetr": _whole(800),
    "DeiT": _stretched(HALVES, 256, BICUBIC) | {"do_center_crop": True, "crop_size": _square(224)},
    "Detr": _whole(800),
    "DINOv3ViT": _stretched(IMAGENET, 224, BILINEAR),
    "Levit": _cut(IMAGENET, 224, 224, BICUBIC),
    "Mask2Former": _whole(800),
    "MaskFormer": _whole(800),
    "MobileNetV1": _cut(HALVES, 256, 224, BILINEAR),
    "MobileNetV2": _cut(HALVES, 256, 224, BILINEAR),
    "OwlViT": _stretched(OPENAI, 768, BICUBIC),
    "Pvt": _stretched(IMAGENET, 224, BICUBIC),
    "RTDetr": _stretched(IMAGENET, 640, BILINEAR) | {"default_to_square": False, "do_normalize": False},
    "Segformer": _stretched(IMAGENET, 512, BILINEAR),
    "Siglip": _stretched(HALVES, 224, BICUBIC) | {"default_to_square": False},
    "Timesformer": _cut(IMAGENET, 224, 224, BILINEAR),
    "VideoMAE": _cut(HALVES, 224, 224, BILINEAR),
    "ViT": _stretched(HALVES, 224, BILINEAR),
    "Vivit": _cut(HALVES, 256, 224, BILINEAR) | {"rescale_factor": 1 / 127.5, "offset": True},
}
# Classes that read an image whole, whatever `do_center_crop` says
UNCUT = {name for name, entries in CLASSES.items() if "longest_edge" in entries["size"]} | {
    "RTDetr",
    "Segformer",
}
# {model_type: its class}, for files that do not name one
MODELS = {
    "bit": "Bit", "clip": "CLIP", "conditional_detr": "ConditionalDetr", "cvt": "ConvNext",
    "deformable_detr": "DeformableDetr", "deit": "DeiT", "detr": "Detr", "dinov2": "Bit",
    "dinov2_with_registers": "Bit", "dinov3_vit": "DINOv3ViT", "levit": "Levit", "mask2former": "Mask2Former",
    "maskformer": "MaskFormer", "resnet": "ConvNext", "rt_detr": "RTDetr", "segformer": "Segformer",
    "siglip": "Siglip", "swin": "ViT", "swinv2": "ViT", "timesformer": "VideoMAE", "videomae": "VideoMAE",
    "vit": "ViT", "vit_mae": "ViT", "vivit": "Vivit",
}  # fmt: skip
MAX_SIDE = 4_096
# The entries that name the class, and the endings of its name: the last of both before transformers 4.26
TYPES = ("video_processor_type", "image_processor_type", "feature_extractor_type")
ENDINGS = ("Fast", "Pil", "ImageProcessor", "VideoProcessor", "FeatureExtractor")


def class_in(entries, model_type, path):
    """The name in `CLASSES` of the class that a file's `entries`, or else the `model_type`, stand for.

    It is None where neither says anything. Raises CheckpointError for a class that is not computed here.
    """
    field = next((name for name in TYPES if entries.get(name)), TYPES[-1])
    given = entries.get(field)
    if given is None:
        if "AutoImageProcessor" in (entries.get("auto_map") or ()):
            raise CheckpointError(path, "auto_map", "a class of transformers", "code of the folder's own")
        return MODELS.get(model_type)
    name = str(given)
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    by_name = {known.lower(): known for known in CLASSES}
    if name.lower() not in by_name:
        raise CheckpointError(
            path, field, f"one of {', '.join(CLASSES)}, each an ImageProcessor", brief(given)
        )
    return by_name[name.lower()]


def size_in(value, name, path, to_square, longest=None):
    """`size` or `crop_size` as {"height", "width"} or {"shortest_edge"}, of positive integers.

    A number is a square's side or, without `to_square`, the shorter side, beside which a `longest` may stand.
    Raises CheckpointError for anything else.
    """
    if isinstance(value, list) and len(value) == 2:
        value = dict(zip(("height", "width"), value, strict=True))
    elif not isinstance(value, dict):
        value = _square(value) if to_square else {"shortest_edge": value, "longest_edge": longest}
    value = {key: side for key, side in value.items() if side is not None}
    if value.keys() not in ({"height", "width"}, {"shortest_edge"}, {"shortest_edge", "longest_edge"}):
        raise CheckpointError(path, name, "a height and a width, or a shortest_edge", brief(value))
    for key, side in value.items():
        if type(side) is not int or not 0 < side <= MAX_SIDE:
            raise CheckpointError(path, f"{name}.{key}", f"1 to {MAX_SIDE}", brief(side))
    return value
