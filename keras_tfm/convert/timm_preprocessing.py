"""The preprocessing of images in timm: "pretrained_cfg" in its config.json, read and written; class names.

The fields are `mean` and `std` of pixels from 0 to 1, `interpolation`, `crop_fraction`, the share of a
resized image's sides that the centre crop keeps, `keep_aspect`: whether images are resized to cover that
size, or stretched to it, and `rounds_crop`, as timm crops by torchvision.
"""

import pathlib
from typing import Any

from keras_tfm.configs import brief
from keras_tfm.convert.folder import read_config
from keras_tfm.training.folder import Path
from keras_tfm.training.safetensors import CheckpointError

KEEPS_ASPECT = {"center": True, "squash": False}
INTERPOLATIONS = ("bilinear", "bicubic", "lanczos")
# timm's defaults; the means are ImageNet's.
DEFAULTS = {
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "interpolation": "bicubic",
    "crop_pct": 0.875,
    "crop_mode": "center",
}


# Where names of classes stand: beside "pretrained_cfg" or in it, and in older files as "labels".
NAMES = ("label_names", "labels", "label_descriptions")


def timm_preprocessing_of(folder: Path) -> dict[str, Any]:
    """Read the fields of `data.Preprocessing` in a `folder` of timm; CheckpointError for malformed entries.

    >>> import pathlib
    >>> _ = pathlib.Path("config.json").write_text('{"pretrained_cfg": {"mean": [0.5], "std": [0.5]}}')
    >>> keras_tfm.convert.timm_preprocessing_of(".")["mean"]
    (0.5,)
    """
    path = pathlib.Path(folder, "config.json")
    entries = read_config(path.parent)
    given = entries.get("pretrained_cfg", entries)  # older files have no such part
    if not isinstance(given, dict):
        raise CheckpointError(path, "pretrained_cfg", "an object", brief(given))
    values: dict[str, Any] = DEFAULTS | {
        name: given[name] for name in DEFAULTS if given.get(name) is not None
    }
    for name in ("mean", "std"):
        numbers = values[name]
        if not isinstance(numbers, list) or not all(_is_number(x, name == "std") for x in numbers):
            raise CheckpointError(path, name, "a list of numbers, one for each channel", brief(numbers))
    if values["interpolation"] not in INTERPOLATIONS:
        expected = " or ".join(INTERPOLATIONS)
        raise CheckpointError(path, "interpolation", expected, brief(values["interpolation"]))
    if not _is_number(values["crop_pct"], True) or values["crop_pct"] > 1:
        raise CheckpointError(path, "crop_pct", "above 0, at most 1", brief(values["crop_pct"]))
    if values["crop_mode"] not in tuple(KEEPS_ASPECT):
        raise CheckpointError(path, "crop_mode", " or ".join(KEEPS_ASPECT), brief(values["crop_mode"]))
    return {
        "mean": tuple(map(float, values["mean"])),
        "std": tuple(map(float, values["std"])),
        "interpolation": values["interpolation"],
        "crop_fraction": float(values["crop_pct"]),
        "keep_aspect": KEEPS_ASPECT[values["crop_mode"]],
        "rounds_crop": True,
    }


def timm_names(entries, count):
    """{number, as text: name} for `count` classes in the `entries` of a config.json, {} without any.
    Names, a list or such an object that may have gaps, come before descriptions.
    """
    source = entries.get("pretrained_cfg")
    parts = (entries, source) if isinstance(source, dict) else (entries,)
    numbers = {str(number) for number in range(count)}
    for names in (part.get(name) for name in NAMES for part in parts):
        if isinstance(names, list) and len(names) == count:
            names = {str(number): name for number, name in enumerate(names)}
        if not isinstance(names, dict) or not names or not names.keys() <= numbers:
            continue
        if all(isinstance(name, str) for name in names.values()):
            return names
    return {}


def timm_entries(preprocessing, image_shape):
    """timm's entries for images of `image_shape`, (height, width, channels), and an object with the fields.

    For None, images are stretched and pixels scaled to -1 .. 1.
    """
    height, width, channels = image_shape
    numbers: dict[str, Any] = {}
    for name in ("mean", "std"):
        values = list(getattr(preprocessing, name, (0.5,)))
        numbers[name] = values * (channels if len(values) == 1 else 1)
    return {
        "input_size": [channels, height, width],
        **numbers,
        "interpolation": getattr(preprocessing, "interpolation", "bilinear"),
        "crop_pct": getattr(preprocessing, "crop_fraction", 1.0),
        "crop_mode": "center" if getattr(preprocessing, "keep_aspect", False) else "squash",
    }


def _is_number(value, is_positive):
    return type(value) in (int, float) and abs(value) < 1e6 and (value > 0 or not is_positive)
