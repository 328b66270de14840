"""preprocessor_config.json as published models have it, read and written; what is not computed is refused."""

import dataclasses
import json

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.convert import CheckpointError, save_timm
from keras_tfm.convert.preprocessing import canvas_fields_of, preprocessing_of, preprocessor_writer
from keras_tfm.convert.processors import MODELS
from keras_tfm.data import Preprocessing
from keras_tfm.models import DeiT, ViT
from keras_tfm.tasks import ImageClassifier, ImageEncoder
from tests.tasks.images.test_image_classifier import NAMES

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


IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
OPENAI = {"mean": CLIP_WAY["mean"], "std": CLIP_WAY["std"]}
SMALL = {"image_size": 224}


def cut(fraction, keep_aspect=True, **fields):
    return {"crop_fraction": fraction, "keep_aspect": keep_aspect, **SMALL, **fields}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({**HALVES, "size": SQUARE}, READ | SMALL),  # ViT's
        ({**HALVES, "size": 224, "resample": 3}, READ | SMALL | {"interpolation": "bicubic"}),
        ({**HALVES, "size": [224, 224], "resample": 1}, READ | SMALL | {"interpolation": "lanczos"}),
        (
            {**HALVES, "size": {"height": 256, "width": 256}, "do_center_crop": True, "crop_size": SQUARE},
            READ | cut(0.875, False),  # DeiT's
        ),
        (
            {**HALVES, "size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": 224},
            READ | cut(0.875),  # BiT's, ResNet's
        ),
        ({"do_normalize": False, "size": SQUARE}, READ | SMALL | {"mean": (0.0,), "std": (1.0,)}),
        ({"size": SQUARE}, {"interpolation": "bilinear"} | SMALL),
        ({**HALVES, "size": {"height": 8, "width": 4}}, READ),
        # Pixels that stay at 0 .. 255, or go to 0 .. 2: means and deviations are as many times as large.
        (
            {"image_mean": [127.5] * 3, "image_std": [127.5] * 3, "do_rescale": False, "size": SQUARE},
            READ | SMALL,
        ),
        ({"image_mean": [1.0] * 3, "image_std": [1.0] * 3, "rescale_factor": 2 / 255}, READ),
        (
            {"do_normalize": False, "do_rescale": False, "size": SQUARE},
            READ | SMALL | {"mean": (0.0,), "std": (1 / 255,)},
        ),
    ],
)
def test_published_ways(entries, expected, tmp_path):
    assert preprocessing_of(written(tmp_path, entries)) == expected


BICUBIC = {"interpolation": "bicubic"}
LARGE = {"height": 384, "width": 384}


@pytest.mark.parametrize(
    ("kind", "entries", "expected"),
    [
        ("CLIPFeatureExtractor", {"size": 224, "crop_size": 224}, CLIP_WAY | SMALL),  # before 2022
        ("CLIPImageProcessor", {"resample": None}, CLIP_WAY | SMALL),
        ("CLIPImageProcessorFast", {"crop_size": 168}, CLIP_WAY | cut(0.75, image_size=168)),
        ("SiglipImageProcessor", {"size": SQUARE}, READ | BICUBIC | SMALL),
        ("ConvNextFeatureExtractor", {"size": 224, "crop_pct": 0.9}, READ | BICUBIC | cut(0.9)),
        ("ConvNextImageProcessor", {"size": {"shortest_edge": 224}}, READ | BICUBIC | cut(0.875)),
        ("ConvNextImageProcessor", {"size": 384, "crop_pct": 0.9}, READ | BICUBIC | {"image_size": 384}),
        ("ConvNextImageProcessor", {}, READ | BICUBIC | {"image_size": 384}),
        ("BitImageProcessor", {"size": 256}, OPENAI | BICUBIC | cut(0.875)),
        ("BitImageProcessor", {}, OPENAI | BICUBIC | cut(1.0)),
        ("LevitFeatureExtractor", {"size": 224}, IMAGENET | BICUBIC | cut(0.875)),
        (
            "LevitImageProcessor",
            {"size": LARGE, "crop_size": LARGE},
            IMAGENET | BICUBIC | cut(1.0, False, image_size=384),
        ),
        ("DeiTFeatureExtractor", {"size": 256, "resample": 2}, READ | cut(0.875, False)),
        ("DeiTImageProcessor", {}, READ | BICUBIC | cut(0.875, False)),
        ("ViTFeatureExtractor", {}, READ | SMALL),
        ("ViTFeatureExtractor", {"size": 384}, READ | {"image_size": 384}),
        ("ViTImageProcessor", {"size": 224, "crop_pct": 0.9}, READ | SMALL),  # it does not have this entry
        ("DINOv3ViTImageProcessorFast", {}, IMAGENET | SMALL | {"interpolation": "bilinear"}),
        (
            "SegformerFeatureExtractor",
            {"size": 512},
            IMAGENET | {"interpolation": "bilinear", "image_size": 512},
        ),
        ("MobileNetV2ImageProcessor", {}, READ | cut(0.875)),
        (
            "ViTImageProcessor",
            {"size": 256, "do_center_crop": True, "crop_size": {"height": 192, "width": 192}},
            READ | cut(0.75, False, image_size=192),
        ),
    ],
)
def test_classes_of_old_and_new_versions(kind, entries, expected, tmp_path):
    """The class may stand in the file, or follow from the model."""
    field = "feature_extractor_type" if kind.endswith("Extractor") else "image_processor_type"
    assert preprocessing_of(written(tmp_path, {field: kind, **entries})) == expected
    name = next((name for name, known in MODELS.items() if kind.startswith(known)), None)
    if name is not None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
        assert preprocessing_of(written(tmp_path, entries)) == expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"feature_extractor_type": "DetrFeatureExtractor", "max_size": 1333, "size": 800}, 800),
        ({"image_processor_type": "DetrImageProcessor", "size": {"shortest_edge": 480}}, 480),
        ({"image_processor_type": "ConditionalDetrImageProcessor"}, 800),
        ({"feature_extractor_type": "MaskFormerFeatureExtractor", "size": 640, "size_divisibility": 32}, 640),
    ],
)
def test_whole_images(entries, expected, tmp_path):
    fields = IMAGENET | {"interpolation": "bilinear", "keep_aspect": True, "image_size": expected}
    assert canvas_fields_of(written(tmp_path, entries)) == fields
    stretched = entries | {"size": SQUARE}
    assert canvas_fields_of(written(tmp_path, stretched)) == IMAGENET | SMALL | {"interpolation": "bilinear"}
    assert canvas_fields_of(written(tmp_path, entries | {"do_center_crop": True})) == fields
    with pytest.raises(CheckpointError, match="do_center_crop"):
        canvas_fields_of(written(tmp_path, {"size": {"shortest_edge": 64}, "do_center_crop": True}))
    with pytest.raises(
        CheckpointError, match=r"size: expected a height and a width, or a shortest_edge with"
    ):
        preprocessing_of(written(tmp_path, entries))


def test_nothing_is_said_where_there_is_no_file(tmp_path, caplog):
    assert preprocessing_of(tmp_path) == {}
    assert f"{tmp_path}: no preprocessor_config.json: images are stretched" in caplog.text
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    assert preprocessing_of(tmp_path) == {}
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    assert preprocessing_of(tmp_path) == CLIP_WAY
    (tmp_path / "config.json").write_text('{"model_type": "detr"}')
    assert canvas_fields_of(tmp_path) == IMAGENET | {"interpolation": "bilinear", "keep_aspect": True}


def test_a_processor_holds_that_of_images(tmp_path):
    inner = {"image_processor_type": "SiglipImageProcessor", "size": SQUARE}
    path = tmp_path / "processor_config.json"
    path.write_text(json.dumps({"image_processor": inner, "processor_class": "SiglipProcessor"}))
    assert preprocessing_of(tmp_path) == READ | SMALL | {"interpolation": "bicubic"}
    path.write_text('{"image_processor": 3}')
    with pytest.raises(CheckpointError, match="image_processor"):
        preprocessing_of(tmp_path)


def test_which_file_counts(tmp_path):
    """As in transformers 5: what a processor holds, then videos' file, then images'."""
    inner = {"image_processor_type": "SiglipImageProcessor", "size": SQUARE}
    videos = {"video_processor_type": "TimesformerVideoProcessor", "crop_size": {"height": 112, "width": 112}}
    written(tmp_path, {"image_processor_type": "CLIPImageProcessor"})
    assert preprocessing_of(tmp_path) == CLIP_WAY | SMALL
    path = tmp_path / "processor_config.json"
    path.write_text('{"processor_class": "CLIPProcessor", "image_processor": null}')  # of older versions
    assert preprocessing_of(tmp_path) == CLIP_WAY | SMALL
    path.write_text(json.dumps({"image_processor": inner}))
    assert preprocessing_of(tmp_path) == READ | SMALL | BICUBIC
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(videos))
    found = IMAGENET | {"interpolation": "bilinear"} | cut(0.5, image_size=112)
    assert preprocessing_of(tmp_path) == found
    path.write_text(json.dumps({"video_processor": {"video_processor_type": "VideoMAEVideoProcessor"}}))
    assert preprocessing_of(tmp_path) == READ | cut(1.0)


def test_vivit_s_class_for_videos_always_takes_one_away(tmp_path):
    entries = {"video_processor_type": "VivitVideoProcessor", "offset": False}
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(entries))
    fields = preprocessing_of(tmp_path)
    assert fields["mean"] == (0.75,) * 3 and fields["std"] == (0.25,) * 3


@pytest.mark.parametrize(
    ("entries", "entry"),
    [
        ({"resample": 0}, "resample"),
        ({"resample": [2]}, "resample"),
        ({"do_resize": False}, "do_resize"),
        ({"rescale_factor": 0}, "rescale_factor"),
        ({"rescale_factor": "x"}, "rescale_factor"),
        ({"do_rescale": False}, "image_mean"),
        ({"do_rescale": "no"}, "do_rescale"),
        ({"do_normalize": 1}, "do_normalize"),
        ({"image_mean": ["x"]}, "image_mean"),
        ({"size": {"shortest_edge": 224}}, "size"),
        ({"size": {"shortest_edge": 224, "longest_edge": 300}, "do_center_crop": True}, "crop_size"),
        ({"size": {"max_height": 224, "max_width": 224}}, "size"),
        ({"size": {"height": 224}}, "size"),
        ({"size": SQUARE, "do_center_crop": True, "crop_size": 256}, "crop_size"),
        ({"do_center_crop": True, "crop_size": 256}, "size"),
        ({"size": SQUARE, "do_center_crop": True, "crop_size": {"height": 112, "width": 224}}, "crop_size"),
        ({"size": SQUARE, "do_center_crop": True, "crop_size": {"shortest_edge": 224}}, "crop_size"),
        ({"size": {"height": "x", "width": 2}, "do_center_crop": True, "crop_size": 256}, "size"),
        ({"size": SQUARE, "do_pad": True, "pad_size": {"height": 300, "width": 300}}, "pad_size"),
        ({"size": {"shortest_edge": 224}, "crop_pct": "x"}, "crop_pct"),
        ({"size": {"shortest_edge": 224}, "crop_pct": 1.5}, "crop_pct"),
        ({"size": {"shortest_edge": "224"}, "crop_pct": 0.9}, "size"),
        ({"size": SQUARE, "crop_pct": 0.9}, "size"),
        (
            {"size": {"shortest_edge": 224}, "crop_pct": 0.9, "do_center_crop": True, "crop_size": 8},
            "crop_size",
        ),
        ({"image_processor_type": "MobileViTImageProcessor"}, "image_processor_type"),
        ({"image_processor_type": "DonutImageProcessorFast", "size": SQUARE}, "image_processor_type"),
        ({"feature_extractor_type": "PoolFormerFeatureExtractor"}, "feature_extractor_type"),
        ({"image_processor_type": 3}, "image_processor_type"),
        ({"auto_map": {"AutoImageProcessor": "own.Processor"}}, "auto_map"),
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
    assert Preprocessing(**preprocessing_of(tmp_path)) == dataclasses.replace(preprocessing, image_size=224)


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
    path = tmp_path / "theirs" / "config.json"
    entries = json.loads(path.read_text())
    cranes = {"id2label": {"0": "crane", "1": "dog", "2": "crane"}}  # as ImageNet has them
    path.write_text(json.dumps(entries | cranes))
    assert tasks.from_huggingface(tmp_path / "theirs").config.class_names == ("crane 0", "dog", "crane 2")
    path.write_text(json.dumps(entries | {"problem_type": "multi_label_classification"}))
    with pytest.raises(CheckpointError, match="problem_type: expected single_label_classification"):
        tasks.from_huggingface(tmp_path / "theirs")
    assert ImageClassifier.from_huggingface(tmp_path / "theirs", (images, named)).class_names.size == 2


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
