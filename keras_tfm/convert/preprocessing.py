"""The preprocessing of images for published models: preprocessor_config.json, read and written.

Entries that a file does not have are the defaults of its class; `PUBLISHED` has those of some families.
"""

import json

from keras_tfm.configs import brief
from keras_tfm.convert.folder import inside, read_config
from keras_tfm.convert.huggingface import from_huggingface
from keras_tfm.convert.timm import from_timm, is_timm
from keras_tfm.convert.timm_preprocessing import timm_preprocessing_of
from keras_tfm.training.safetensors import CheckpointError, read_json

NAME = "preprocessor_config.json"
WHOLE = "processor_config.json"  # in transformers 5, for models with a tokenizer: it contains the other file
# {the beginning of the class's name in lower case, also the model's name in config.json: its defaults}
PUBLISHED = {
    "clip": {
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
        "size": {"shortest_edge": 224},
        "do_center_crop": True,
        "resample": 3,
    },
    "maskformer": {
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "size": {"shortest_edge": 800},
        "resample": 2,
    },
    **{  # by the names of its preprocessor and of its model
        name: {"do_normalize": False, "size": {"height": 640, "width": 640}, "resample": 2}
        for name in ("rtdetr", "rt_detr")
    },
    "segformer": {
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "size": {"height": 512, "width": 512},
        "resample": 2,
    },
    "siglip": {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "size": {"height": 224, "width": 224},
        "resample": 3,
    },
}
PUBLISHED["mask2former"] = PUBLISHED["maskformer"]
INTERPOLATIONS = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers for its filters
MAX_SIDE = 4_096
LEAST_STRETCHED = 384  # ConvNeXt's images of this size and more are stretched, not cut


def image_model(folder, with_head=True):
    """(The model, fields of `Preprocessing`) of a `folder` of transformers or of timm."""
    if is_timm(read_config(folder)):
        return from_timm(folder, with_head), timm_preprocessing_of(folder)
    return from_huggingface(folder, with_head), preprocessing_of(folder)


def label_names(folder, count):
    """The names of `count` classes, from the folder's config.json or as transformers numbers them."""
    entries = read_config(folder)
    named, listed = entries.get("id2label") or {}, entries.get("label_names")  # timm's are a list
    if isinstance(listed, list) and len(listed) == count and all(isinstance(name, str) for name in listed):
        return listed
    return [named.get(str(number), f"LABEL_{number}") for number in range(count)]


def preprocessing_of(folder):
    """The fields of `Preprocessing` in a folder's preprocessor_config.json or processor_config.json.

    They are {} if there is no such file and the model has no defaults here. Raises CheckpointError for
    preprocessing that this package does not have, for example another filter.
    """
    entries, path = _read_entries(folder)
    return _fields(entries, path) | _cutting(entries, path) if entries else {}


def canvas_fields_of(folder):
    """The fields of `data.Canvas` in a folder's file, with `image_size` if it gives the size of the shorter
    side and keeps the aspect ratio. Here the whole image is then resized to fit that size, and padded.
    """
    entries, path = _read_entries(folder)
    size = entries.get("size")
    if not isinstance(size, dict) or "shortest_edge" not in size or entries.get("do_center_crop", False):
        return preprocessing_of(folder)
    side = size["shortest_edge"]
    if type(side) is not int or not 0 < side <= MAX_SIDE:
        raise CheckpointError(path, "size.shortest_edge", f"1 to {MAX_SIDE}", brief(side))
    return _fields(entries, path) | {"keep_aspect": True, "image_size": side}


def _fields(entries, path):
    """The fields for normalisation and interpolation."""
    for name, value in {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255}.items():
        given = entries.get(name, value)
        if not isinstance(given, bool | float | int) or abs(given - value) > 1e-6:
            raise CheckpointError(path, name, repr(value), brief(entries[name]))
    fields: dict = {}
    if entries.get("do_normalize", True):
        for name, ours in (("image_mean", "mean"), ("image_std", "std")):
            if name in entries:
                fields[ours] = tuple(_numbers(entries[name], name, path))
    else:
        fields = {"mean": (0.0,), "std": (1.0,)}
    resample = entries.get("resample", 2)
    if type(resample) is not int or resample not in INTERPOLATIONS:
        raise CheckpointError(path, "resample", "2 (bilinear) or 3 (bicubic)", brief(resample))
    fields["interpolation"] = INTERPOLATIONS[resample]
    return fields


def shifts_labels(folder):
    """Whether masks for the folder's model number the labels from 1, and 0 is for pixels without a class."""
    entries, _ = _read_entries(folder)
    return bool(entries.get("do_reduce_labels", entries.get("reduce_labels", False)))


def _read_entries(folder):
    """(The entries about preprocessing, with the defaults of the class or the model; the file)."""
    name = next((name for name in (NAME, WHOLE) if (folder / name).exists()), None)
    if name is None:
        path = folder / "config.json"
        model_type = read_config(folder).get("model_type") if path.exists() else None
        return PUBLISHED.get(str(model_type), {}), path
    path = inside(folder, name)
    content = read_json(path)
    entries = content.get("image_processor") if name == WHOLE else content
    if not isinstance(entries, dict):
        raise CheckpointError(path, "image_processor", "an object", brief(entries))
    kind = str(entries.get("image_processor_type") or entries.get("feature_extractor_type")).lower()
    defaults = next((PUBLISHED[name] for name in PUBLISHED if kind.startswith(name)), {})
    entries = {name: value for name, value in entries.items() if value is not None}
    if kind.startswith("clip") and isinstance(entries.get("size"), int):  # the shorter side, before 2022
        entries["size"] = {"shortest_edge": entries["size"]}
    return defaults | entries, path


def _cutting(entries, path):
    """The share of a resized image that its centre crop keeps, and whether the aspect ratio is kept."""
    size = entries.get("size", {})
    size = size if isinstance(size, dict) else {"height": size, "width": size}
    shortest = size.get("shortest_edge")
    side = shortest if shortest is not None else size.get("height")
    if "crop_pct" in entries and shortest is not None:  # the entries of ConvNeXt
        if _numbers([shortest], "size", path)[0] >= LEAST_STRETCHED:
            return {}
        fraction = _numbers([entries["crop_pct"]], "crop_pct", path)[0]
        return {"crop_fraction": fraction, "keep_aspect": True}
    if not entries.get("do_center_crop", False):
        if shortest is not None:
            raise CheckpointError(path, "size", "a height and a width, or a centre crop", brief(size))
        return {}
    crop = entries.get("crop_size", side)
    crop = crop.get("height") if isinstance(crop, dict) else crop
    side, crop = _numbers([side, crop], "size", path)
    if not 0 < crop <= side:
        raise CheckpointError(path, "crop_size", f"at most {side:g}", brief(crop))
    return {"crop_fraction": crop / side, "keep_aspect": shortest is not None}


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
