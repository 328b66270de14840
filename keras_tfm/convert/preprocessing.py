"""The preprocessing of images and videos for published models: preprocessor_config.json, read and written.

Entries that a file does not have are the defaults of its class; `processors` has the classes.
"""

import collections
import json

from keras_tfm.configs import FieldError, brief
from keras_tfm.convert.folder import inside, read_config
from keras_tfm.convert.huggingface import from_huggingface
from keras_tfm.convert.processors import CLASSES, IMAGENET, MODELS, UNCUT, class_in, size_in
from keras_tfm.convert.timm import from_timm, is_timm
from keras_tfm.convert.timm_preprocessing import timm_names, timm_preprocessing_of
from keras_tfm.log import LOG
from keras_tfm.training.safetensors import CheckpointError, read_json

NAME = "preprocessor_config.json"
# Where preprocessing may stand: (file, the entry that holds it or None). The first one that is there counts,
# as in transformers 5.
PLACES = (
    ("processor_config.json", "video_processor"),
    ("video_preprocessor_config.json", None),
    ("processor_config.json", "image_processor"),
    (NAME, None),
)
# Models whose images are prepared as their class does it where a folder has no such file.
WITHOUT_FILE = ("clip", "mask2former", "maskformer", "rt_detr", "segformer", "siglip")
INTERPOLATIONS = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers for its filters
# Classes of which a model hides what is padded, so that its canvas may be a square for all images
PADDING = {f"{name}ImageProcessor" for name in ("ConditionalDetr", "DeformableDetr", "Detr")}
LEAST_STRETCHED = 384  # ConvNeXt's images of this size and more are stretched, not cut


def image_model(folder, with_head=True):
    """(The model, fields of `Preprocessing`) of a `folder` of transformers or of timm."""
    if is_timm(read_config(folder)):
        return from_timm(folder, with_head), timm_preprocessing_of(folder)
    model = from_huggingface(folder, with_head)
    return model, preprocessing_of(folder, model)


def label_names(folder, count):
    """The names of `count` classes, from the folder's config.json or as transformers numbers them. Names that
    stand there more than once, as ImageNet's two cranes do, get their number.
    """
    entries = read_config(folder)
    named = entries.get("id2label") or timm_names(entries, count)
    names = [named.get(str(number), f"LABEL_{number}") for number in range(count)]
    times = collections.Counter(names)
    return [name if times[name] == 1 else f"{name} {number}" for number, name in enumerate(names)]


def preprocessing_of(folder, model=None):
    """The fields of `Preprocessing` in a folder's file, the first one of `PLACES`.

    They are {}, and a warning says so, if there is no such file and the model has no defaults here. Raises
    CheckpointError for preprocessing that this package does not have, and for images that are not square and
    of another size than the `model` reads.
    """
    entries, kind, path = _read_entries(folder)
    if not entries:
        if path.name == "config.json":
            LOG.warning("%s: no %s: images are stretched, with a mean and deviation of 0.5", folder, NAME)
        return {}
    return _fields(entries, path) | _placing(entries, kind, path, model)


def canvas_fields_of(folder, model=None):
    """The fields of `data.Canvas` in a folder's file. Where it gives the size of the shorter side and keeps
    the aspect ratio, the whole image is resized here to fit that size, and padded. Without a file, and
    without defaults of the model here, images are DETR's: whole, padded, in ImageNet's mean and deviation.
    """
    entries, kind, path = _read_entries(folder)
    if not entries:
        are_colours = model is None or model.input["images"].shape[-1] == 3
        return {"keep_aspect": True} | (_fields(IMAGENET, path) if are_colours else {})
    if "shortest_edge" not in _size(entries, path) or kind == "ConvNext":
        return preprocessing_of(folder, model)
    if entries.get("do_center_crop", False):
        raise CheckpointError(path, "do_center_crop", "false, as the model reads whole images", "true")
    side = _size(entries, path)["shortest_edge"]
    size = {} if path.name == "config.json" else {"image_size": side}
    return _fields(entries, path) | {"keep_aspect": True, **size}


def shifts_labels(folder):
    """Whether masks for the folder's model number the labels from 1, and 0 is for pixels without a class."""
    entries, _, _ = _read_entries(folder)
    return bool(entries.get("do_reduce_labels", entries.get("reduce_labels", False)))


def _read_entries(folder):
    """(The entries about preprocessing, with the defaults of the class; its name in `CLASSES`, or None; the
    file).
    """
    config = folder / "config.json"
    model_type = str(read_config(folder).get("model_type")) if config.exists() else ""
    path, entries = next(_in_places(folder), (config, {}))
    if path == config:
        kind = MODELS[model_type] if model_type in WITHOUT_FILE else None
        return CLASSES[kind] if kind else {}, kind, path
    entries = {name: value for name, value in entries.items() if value is not None}
    kind = class_in(entries, model_type, path)
    if kind is None and "crop_pct" in entries:  # no other class has this entry
        kind = "ConvNext"
    if kind in UNCUT:
        entries.pop("do_center_crop", None)
    if kind != "Vivit" or "video_processor_type" in entries:  # the class for videos always has it
        entries.pop("offset", None)
    return CLASSES.get(kind, {}) | entries, kind, path


def _in_places(folder):
    """Each (file, entries about preprocessing) in a `folder`, the one that counts first."""
    for name, entry in PLACES:
        if (folder / name).exists():
            path = inside(folder, name)
            content = read_json(path)
            entries = content if entry is None else content.get(entry)
            if not isinstance(entries, dict | None):
                raise CheckpointError(path, entry, "an object", brief(entries))
            if entries is not None:
                yield path, entries


def _fields(entries, path):
    """The fields for normalisation and interpolation."""
    if entries.get("do_resize", True) is not True:
        raise CheckpointError(path, "do_resize", "true", brief(entries["do_resize"]))
    factor = 1.0
    if _flag(entries, "do_rescale", True, path):
        (factor,) = _numbers(entries.get("rescale_factor", 1 / 255), "rescale_factor", path)
    if not 0 < factor <= 1:
        raise CheckpointError(path, "rescale_factor", "above 0, at most 1", brief(factor))
    # Pixels go from 0 to 1 here; where theirs go to another number, mean and deviation are parts of it. With
    # an `offset` 1 is taken from theirs before the mean.
    most = 1.0 if abs(255 * factor - 1) < 1e-6 else 255 * factor
    offset = 1.0 if _flag(entries, "offset", False, path) and factor != 1 else 0.0
    fields: dict = {}
    if _flag(entries, "do_normalize", True, path):
        for name, ours, shift in (("image_mean", "mean", offset), ("image_std", "std", 0.0)):
            if name in entries:
                fields[ours] = tuple((value + shift) / most for value in _numbers(entries[name], name, path))
            elif most != 1:
                raise CheckpointError(path, name, "numbers, as pixels are not scaled to 0 .. 1", "none")
    else:
        fields = {"mean": (offset / most,), "std": (1 / most,)}
    resample = entries.get("resample", 2)
    if type(resample) is not int or resample not in INTERPOLATIONS:
        known = ", ".join(f"{number} ({name})" for number, name in INTERPOLATIONS.items())
        raise CheckpointError(path, "resample", f"one of {known}", brief(resample))
    fields["interpolation"] = INTERPOLATIONS[resample]
    return fields


def _placing(entries, kind, path, model):
    """How an image becomes one of the model's size: the share of the resized image that the centre crop
    keeps, whether the aspect ratio is kept, and the size.
    """
    size = _size(entries, path)
    crop = None
    if entries.get("do_center_crop", False):
        crop = size_in(entries.get("crop_size", entries.get("size")), "crop_size", path, True)
        if "height" not in crop:
            raise CheckpointError(path, "crop_size", "a height and a width", brief(crop))
    if entries.get("do_pad", False) and entries.get("pad_size") not in (None, size):
        raise CheckpointError(path, "pad_size", "none", brief(entries["pad_size"]))
    if kind == "ConvNext":
        return _convnext(size, crop, entries, path)
    shortest = size.get("shortest_edge")
    if "longest_edge" in size or (crop is None if shortest is not None else crop is not None and not size):
        expected = "a height and a width, or a shortest_edge with a centre crop"
        raise CheckpointError(path, "size", expected, brief(size))
    if crop is None:
        return _image_size(size, entries, path, model)
    if kind == "Levit" and shortest is not None:
        shortest = int(256 / 224 * shortest)
    wholes = (size["height"], size["width"]) if shortest is None else (shortest, shortest)
    shares = {crop[side] / whole for side, whole in zip(("height", "width"), wholes, strict=True)}
    if len(shares) > 1 or max(shares) > 1:
        raise CheckpointError(path, "crop_size", f"at most {wholes}, of the same shape", brief(crop))
    kept = {"crop_fraction": shares.pop(), "keep_aspect": shortest is not None}
    return kept | _image_size(crop, entries, path, model)


def _convnext(size, crop, entries, path):
    """Below `LEAST_STRETCHED` the shorter side becomes the size / crop_pct, and a square is cut out."""
    if (side := size.get("shortest_edge")) is None:
        raise CheckpointError(path, "size", "a shortest_edge", brief(size))
    if crop not in (None, {"height": side, "width": side}):
        raise CheckpointError(path, "crop_size", f"the size, {side}, which is cut out already", brief(crop))
    if side >= LEAST_STRETCHED:
        return {"image_size": side}
    (fraction,) = _numbers(entries["crop_pct"], "crop_pct", path)
    if not 0.1 <= fraction <= 1:
        raise CheckpointError(path, "crop_pct", "0.1 to 1", brief(fraction))
    return {"crop_fraction": fraction, "keep_aspect": True, "image_size": side}


def _size(entries, path):
    """The entry `size`; {} where neither the file nor its class has one."""
    if not entries.get("size"):
        return {}
    to_square = entries.get("default_to_square", True)
    return size_in(entries["size"], "size", path, to_square, entries.get("max_size"))


def _image_size(size, entries, path, model):
    """The field `image_size`, where images become square; a model without a file keeps its own size."""
    if not size or path.name == "config.json":
        return {}
    height, width = size["height"], size["width"]
    if height == width:
        return {"image_size": height}
    inputs = {} if model is None else getattr(model, "backbone", model).input
    for pixels in (inputs[name] for name in ("images", "videos") if name in inputs):
        if tuple(pixels.shape[-3:-1]) != (height, width):
            raise CheckpointError(path, "size", f"the model's, {pixels.shape[-3:-1]}", brief((height, width)))
    return {}


def _flag(entries, name, default, path):
    value = entries.get(name, default)
    if not isinstance(value, bool):
        raise CheckpointError(path, name, "true or false", brief(value))
    return value


def _numbers(values, name, path):
    values = values if isinstance(values, list) else [values]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise CheckpointError(path, name, "numbers", brief(values))
    return [float(value) for value in values]


def preprocessor_writer(preprocessing, image_shape, kind=None, **more):
    """A function of a folder that writes preprocessor_config.json to it, for images of `image_shape`.

    `kind` is the class with which transformers reads it, by default one for any model; `more` are additional
    entries.
    """
    height, width, channels = image_shape
    mean, std = (
        list(values) * (channels if len(values) == 1 else 1)
        for values in (preprocessing.mean, preprocessing.std)
    )
    is_cut = preprocessing.keep_aspect or preprocessing.crop_fraction < 1
    whole = [int(side / preprocessing.crop_fraction + 1e-6) for side in (height, width)]
    size = (
        {"shortest_edge": min(whole)}
        if preprocessing.keep_aspect
        else dict(zip(("height", "width"), whole, strict=True))
    )
    numbers = {name: number for number, name in INTERPOLATIONS.items()}
    entries = {
        "image_processor_type": kind
        or ("BitImageProcessor" if preprocessing.keep_aspect else "DeiTImageProcessor"),
        "do_resize": True,
        "size": size,
        "resample": numbers[preprocessing.interpolation],
        "do_center_crop": is_cut,
        "crop_size": {"height": height, "width": width},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": mean,
        "image_std": std,
        **more,
    }

    def write(folder):
        (folder / NAME).write_text(json.dumps(entries, indent=2) + "\n", "utf-8")

    return write


def canvas_writer(canvas, image_shape, kind, **more):
    """`preprocessor_writer` for a `Canvas`, of the class `kind`; FieldError where that class cannot keep the
    aspect of images as the canvas does.
    """
    if canvas.keep_aspect:
        height, width, _ = image_shape
        if kind not in PADDING:
            raise FieldError("{} stretches images; {keep_aspect} is True.", kind)
        if height != width:
            raise FieldError(
                "{} fits images into a square alone; {keep_aspect} is True on {} x {} pixels.",
                kind,
                height,
                width,
            )
        more |= {"size": {"shortest_edge": height, "longest_edge": height}, "do_center_crop": False}
    return preprocessor_writer(canvas, image_shape, kind, **more)
