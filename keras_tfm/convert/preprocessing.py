"""What a checkpoint's folder says of how images become its model's input."""

import dataclasses
import os
from typing import Annotated, Any, Literal

from keras_tfm.configs import Between, Config, brief
from keras_tfm.convert.folder import find_folder, inside, read_config
from keras_tfm.training.safetensors import CheckpointError, read_json

SIDE = Annotated[int, Between(1, 2**14)]
METHODS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers


@dataclasses.dataclass(frozen=True)
class Preprocessing(Config):
    """Images are resized by `interpolation` and cut to `image_size`, (height, width); pixels from 0 to 1
    become (x - `mean`) / `std`, channel by channel.

    `crop_pct` is how much of the resized image's shorter side the middle part has that is cut out; with
    None nothing is cut: the whole image is resized, whatever its shape.
    """

    image_size: tuple[SIDE, SIDE] = (224, 224)
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    interpolation: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = "bicubic"
    crop_pct: Annotated[float, Between(0, 1, is_above=True)] | None = None


def preprocessing_of(name):
    """The `Preprocessing` in the folder `name`, or of a hub id, of timm or of transformers.

    None where it says nothing of images. CheckpointError for what is not as it must be.
    """
    folder = find_folder(name)
    entries = read_config(folder)
    if "architecture" in entries:
        path, values = folder / "config.json", _of_timm(entries.get("pretrained_cfg", entries))
    elif os.path.lexists(path := folder / "preprocessor_config.json"):
        values = read_json(inside(folder, "preprocessor_config.json"))
        values = _of_transformers(values, path)
    else:
        return None
    try:
        return Preprocessing.from_json(values)
    except ValueError as error:
        raise CheckpointError(path, None, "a preprocessing of images", str(error)) from None


def timm_entries(preprocessing, num_channels):
    """timm's entries for it."""
    entries: dict[str, Any] = {
        "input_size": [num_channels, *preprocessing.image_size],
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
        "interpolation": preprocessing.interpolation,
    }
    if preprocessing.crop_pct is None:
        return {**entries, "crop_pct": 1.0, "crop_mode": "squash"}
    return {**entries, "crop_pct": preprocessing.crop_pct, "crop_mode": "center"}


def _of_timm(entries):
    """Our fields; what it does not say is as in timm's defaults, those of ImageNet."""
    size = entries.get("input_size")
    return {
        "image_size": size[1:] if isinstance(size, list) else (224, 224),
        "mean": entries.get("mean", (0.485, 0.456, 0.406)),
        "std": entries.get("std", (0.229, 0.224, 0.225)),
        "interpolation": entries.get("interpolation", "bicubic"),
        "crop_pct": None if entries.get("crop_mode") == "squash" else entries.get("crop_pct", 0.875),
    }


def _of_transformers(entries, path):
    """Our fields; a number that is no size is kept as it is, for `Preprocessing` to refuse."""
    size, crop = entries.get("size", 224), None
    if entries.get("do_center_crop"):
        image_size = _pair(entries.get("crop_size", 224))
        edge = size.get("shortest_edge") if isinstance(size, dict) else size
        if type(edge) is int and edge and all(type(side) is int for side in image_size):
            crop = min(image_size) / edge
    else:
        image_size = _pair(size)
    resample = entries.get("resample", 2)
    if type(resample) is not int or not 0 <= resample < len(METHODS):
        raise CheckpointError(path, "resample", f"0 to {len(METHODS) - 1}", brief(resample))
    is_normalized = entries.get("do_normalize", True)
    return {
        "image_size": image_size,
        "mean": entries.get("image_mean", (0.5, 0.5, 0.5)) if is_normalized else (0.0, 0.0, 0.0),
        "std": entries.get("image_std", (0.5, 0.5, 0.5)) if is_normalized else (1.0, 1.0, 1.0),
        "interpolation": METHODS[resample],
        "crop_pct": crop,
    }


def _pair(size):
    """(height, width) of a number, or of an object of either or of the shorter side."""
    if isinstance(size, dict):
        side = size.get("shortest_edge")
        return (size.get("height", side), size.get("width", side))
    return (size, size)
