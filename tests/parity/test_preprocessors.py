"""Every class of image processors that transformers has: what it makes of an image, or a refusal by name."""

import json

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
import transformers
from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES

from keras_tfm.convert import CheckpointError
from keras_tfm.convert.preprocessing import canvas_fields_of, preprocessing_of
from keras_tfm.convert.processors import CLASSES
from keras_tfm.data import Canvas, Preprocessing

pytestmark = pytest.mark.parity
NAMES = sorted({each.get("torchvision") or each["pil"] for each in IMAGE_PROCESSOR_MAPPING_NAMES.values()})
RANDOM = np.random.default_rng(0)
COARSE = PIL.Image.fromarray(RANDOM.integers(0, 256, (12, 20, 3), "uint8"))
IMAGE = COARSE.resize((320, 192), PIL.Image.Resampling.BICUBIC)
WAYS = {
    "alone": {},
    "old": {"size": 224, "crop_size": 224, "resample": 2},
    "cut": {"size": 256, "crop_size": 192, "do_center_crop": True, "resample": 1},
    "raw": {"size": {"height": 96, "width": 96}, "crop_size": 96, "do_rescale": False},
    "share": {"size": 224, "crop_pct": 0.8, "do_normalize": False},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_a_class_that_is_computed(name, way, tmp_path):
    """Equal within two grey levels, as resizing rounds."""
    entries = {"image_processor_type": f"{name}ImageProcessor", **WAYS[way]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(entries))
    backend = {"backend": "torchvision" if name == "DINOv3ViT" else "pil"}
    try:
        read = transformers.AutoImageProcessor.from_pretrained(tmp_path, **backend)
        pixels = np.asarray(read([IMAGE], return_tensors="np")["pixel_values"])
        expected = pixels.reshape(pixels.shape[-3:]).transpose(1, 2, 0)  # of videos the one frame
    except (ValueError, TypeError, AttributeError) as error:
        pytest.skip(f"transformers computes none: {error}")
    if "longest_edge" in CLASSES[name]["size"] and way != "raw":  # transformers makes images of any shape
        assert canvas_fields_of(tmp_path)["image_size"] == WAYS[way].get("size", 800)
        return
    try:
        fields = preprocessing_of(tmp_path)
    except CheckpointError as error:
        assert error.key.startswith(("size", "crop_size"))
        assert expected.shape[0] != expected.shape[1] or (name, way) == ("ConvNext", "cut")  # cut twice
        return
    kind = Canvas if "longest_edge" in CLASSES[name]["size"] else Preprocessing
    ours = kind(**fields)
    assert (ours.image_size, ours.image_size) == expected.shape[:2]
    pixels = ours.resized(tf.constant(np.asarray(IMAGE))[None], *expected.shape[:2])
    level = 1 / 255 / min(ours.std)
    assert np.abs(ours.normalized(pixels)[0].numpy() - expected).max() <= 2.01 * level


@pytest.mark.parametrize("name", [n for n in NAMES if n.removesuffix("ImageProcessor") not in CLASSES])
def test_a_class_that_is_not(name, tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": name}))
    for read in (preprocessing_of, canvas_fields_of):
        with pytest.raises(CheckpointError, match=f"one of Beit.*got '{name}'"):
            read(tmp_path)
