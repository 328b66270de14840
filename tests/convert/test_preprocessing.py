"""preprocessor_config.json as published models have it, read and written; what is not computed is refused."""

import json

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError, save_timm
from keras_tfm.convert.preprocessing import preprocessing_of, preprocessor_writer
from keras_tfm.data import Preprocessing
from keras_tfm.models import DeiT, ViT
from keras_tfm.tasks import ImageClassifier, ImageEncoder
from tests.tasks.test_image_classifier import NAMES

HALVES = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
READ = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bilinear"}
SQUARE = {"height": 224, "width": 224}
CLIP_WAY = {
    "mean": (0.48145466, 0.4578275, 0.40821073),
    "std": (0.26862954, 0.26130258, 0.27577711),
    "interpolation": "bicubic",
    "crop_fraction": 1.0,
    "keep_aspect": True,
}


def written(folder, entries):
    (folder / "preprocessor_config.json").write_text(json.dumps(entries))
    return folder


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({**HALVES, "size": SQUARE}, READ),  # ViT's
        ({**HALVES, "size": 224, "resample": 3}, READ | {"interpolation": "bicubic"}),  # before 2022
        (
            {**HALVES, "size": {"height": 256, "width": 256}, "do_center_crop": True, "crop_size": SQUARE},
            READ | {"crop_fraction": 0.875, "keep_aspect": False},  # DeiT's
        ),
        (
            {**HALVES, "size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224},
            READ | {"crop_fraction": 0.875, "keep_aspect": True},  # BiT's, ResNet's
        ),
        (
            {**HALVES, "size": {"shortest_edge": 224}, "crop_pct": 0.9},
            READ | {"crop_fraction": 0.9, "keep_aspect": True},  # ConvNeXt's
        ),
        ({**HALVES, "size": {"shortest_edge": 384}, "crop_pct": 0.9}, READ),
        (
            {"do_normalize": False, "size": SQUARE},
            {"mean": (0.0,), "std": (1.0,), "interpolation": "bilinear"},
        ),
        ({"size": SQUARE}, {"interpolation": "bilinear"}),
        (
            {
                **HALVES,
                "feature_extractor_type": "CLIPFeatureExtractor",
                "size": 224,
                "crop_size": 224,
                "do_center_crop": True,
                "resample": 3,
            },
            READ | CLIP_WAY | {"mean": (0.5,) * 3, "std": (0.5,) * 3},  # before 2022
        ),
        ({"image_processor_type": "CLIPImageProcessor", "resample": None}, CLIP_WAY),
        (
            {"image_processor_type": "CLIPImageProcessorFast", "crop_size": 168},
            CLIP_WAY | {"crop_fraction": 0.75},
        ),
        (
            {"image_processor_type": "SiglipImageProcessor", "size": SQUARE},
            READ | {"interpolation": "bicubic"},
        ),
    ],
)
def test_published_ways(entries, expected, tmp_path):
    assert preprocessing_of(written(tmp_path, entries)) == expected


def test_nothing_is_said_where_there_is_no_file(tmp_path):
    assert preprocessing_of(tmp_path) == {}
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    assert preprocessing_of(tmp_path) == {}
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    assert preprocessing_of(tmp_path) == CLIP_WAY


def test_a_processor_holds_that_of_images(tmp_path):
    inner = {"image_processor_type": "SiglipImageProcessor", "size": SQUARE}
    path = tmp_path / "processor_config.json"
    path.write_text(json.dumps({"image_processor": inner, "processor_class": "SiglipProcessor"}))
    assert preprocessing_of(tmp_path) == READ | {"interpolation": "bicubic"}
    path.write_text('{"image_processor": 3}')
    with pytest.raises(CheckpointError, match="image_processor"):
        preprocessing_of(tmp_path)


@pytest.mark.parametrize(
    ("entries", "entry"),
    [
        ({"resample": 1}, "resample"),
        ({"resample": [2]}, "resample"),
        ({"do_resize": False}, "do_resize"),
        ({"rescale_factor": 1.0}, "rescale_factor"),
        ({"do_rescale": "no"}, "do_rescale"),
        ({"image_mean": ["x"]}, "image_mean"),
        ({"size": {"shortest_edge": 224}}, "size"),
        ({"size": {"height": 224}, "do_center_crop": True, "crop_size": 256}, "crop_size"),
        ({"size": {"height": "x"}, "do_center_crop": True, "crop_size": 256}, "size"),
        ({"size": {"shortest_edge": 224}, "crop_pct": "x"}, "crop_pct"),
        ({"size": {"shortest_edge": "224"}, "crop_pct": 0.9}, "size"),
    ],
)
def test_what_is_not_computed_is_refused(entries, entry, tmp_path):
    with pytest.raises(CheckpointError, match=rf"preprocessor_config\.json: .*{entry}"):
        preprocessing_of(written(tmp_path, entries))


@pytest.mark.parametrize("keep_aspect", [False, True])
def test_what_is_written_is_read_again(keep_aspect, tmp_path):
    fields = {"mean": (0.1, 0.2, 0.3), "std": (0.4,) * 3, "crop_fraction": 0.875, "keep_aspect": keep_aspect}
    preprocessing = Preprocessing(interpolation="bicubic", **fields)
    preprocessor_writer(preprocessing, (224, 224, 3))(tmp_path)
    assert Preprocessing(**preprocessing_of(tmp_path)) == preprocessing


def test_a_folder_is_a_classifier_a_start_and_an_encoder(tmp_path):
    sizes = {
        "image_size": 8,
        "patch_size": 4,
        "num_layers": 1,
        "dim": 16,
        "num_heads": 2,
        "intermediate_dim": 16,
    }
    task = ImageClassifier(DeiT.from_size("Ti", **sizes), NAMES, crop_fraction=0.8, mean=(0.1, 0.2, 0.3))
    task.save_huggingface(tmp_path / "theirs")
    images = np.random.default_rng(0).integers(0, 256, (4, 12, 10, 3), "uint8")
    again = tasks.from_huggingface(tmp_path / "theirs")
    assert type(again) is ImageClassifier and again.config.class_names == tuple(NAMES)
    assert again.config.crop_fraction == 0.8
    np.testing.assert_allclose(again.probabilities(images), task.probabilities(images), atol=1e-6)
    named = np.array(["x", "y", "x", "y"])
    other = ImageClassifier.from_huggingface(tmp_path / "theirs", (images, named), image_size=16)
    assert other.config.class_names == ("x", "y") and other.image_shape == (16, 16, 3)
    encoder = ImageEncoder.from_huggingface(tmp_path / "theirs")
    assert encoder.config.mean == (0.1, 0.2, 0.3) and encoder.predict(images).shape == (4, 16)
    encoder.save_huggingface(tmp_path / "bare")
    assert type(tasks.from_huggingface(tmp_path / "bare")) is ImageEncoder
    with pytest.raises(CheckpointError, match="one for 'classify-images'"):
        ImageClassifier.from_huggingface(tmp_path / "bare")


def test_timm_s_folders_are_starts_too(tmp_path):
    sizes = {
        "image_size": 8,
        "patch_size": 4,
        "num_layers": 1,
        "dim": 16,
        "num_heads": 2,
        "intermediate_dim": 16,
    }
    task = ImageClassifier(ViT.from_size("tiny", **sizes), NAMES, crop_fraction=0.9, keep_aspect=True)
    save_timm(task.model, tmp_path / "theirs", preprocessing=task.preprocessing)
    images = np.random.default_rng(0).integers(0, 256, (4, 12, 10, 3), "uint8")
    again = ImageClassifier.from_huggingface(tmp_path / "theirs")
    assert again.config.class_names == ("LABEL_0", "LABEL_1", "LABEL_2") and again.config.keep_aspect
    np.testing.assert_allclose(again.probabilities(images), task.probabilities(images), atol=1e-6)
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"label_names": NAMES}))
    assert ImageClassifier.from_huggingface(tmp_path / "theirs").config.class_names == tuple(NAMES)
    assert ImageEncoder.from_huggingface(tmp_path / "theirs").config.crop_fraction == 0.9
