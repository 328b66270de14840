"""Detecting: what is learnt, answers in the pictures' own pixels, COCO's measure, folders, refusals."""

import dataclasses
import io
import json
import logging

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data import Objects
from keras_tfm.models import DETR, RTDETR, SMCA, DeformableDETR, DETRConfig, ResNet
from keras_tfm.tasks import Detector, ImageClassifier
from keras_tfm.tasks.images.average_precision import average_precision
from keras_tfm.tasks.images.decoded import Sized
from keras_tfm.tasks.images.detector import DetectorOptions
from keras_tfm.tasks.images.drawing import COLOURS, Drawing, beside, ink_on
from tests.contract import randomise
from tests.fresh_process import ask

NETWORK = {"stem_dim": 8, "dims": (8, 16), "depths": (1, 1), "block": "basic"}
SMALL = DETRConfig(
    (24, 32),
    1,
    "ResNet",
    NETWORK,
    False,
    num_queries=4,
    dim=16,
    num_layers=1,
    num_heads=2,
    intermediate_dim=16,
)
NAMES = ["bright", "dark"]


def examples(count, seed=0):
    """Pictures (count, 24, 32) with a bright or a dark rectangle, its box and its name."""
    rng = np.random.default_rng(seed)
    images = np.full((count, 24, 32), 128, "uint8")
    boxes, labels = [], []
    for row, image in enumerate(images):
        (left, top), size = rng.integers(0, 12, 2), rng.integers(8, 12)
        image[top : top + size, left : left + size] = 255 * (row % 2 == 0)
        boxes.append([[float(left), float(top), float(left + size), float(top + size)]])
        labels.append([NAMES[row % 2]])
    return images, boxes, labels


def make(**options):
    keras.utils.set_random_seed(0)
    return Detector(DETR(SMALL), NAMES, **options)


@pytest.fixture(scope="module")
def task():
    """A detector whose weights are drawn, so that its objects differ."""
    made = make(keep_aspect=True)
    randomise(made.model, 1)
    return made


def test_a_training_learns(tmp_path):
    made = make()
    history = made.fit(examples(64), 0.25, epochs=3, batch_size=16, run=tmp_path / "run")
    assert history["loss"][-1] < history["loss"][0]
    measures = made.evaluate(examples(6, seed=1))
    assert measures.keys() == {"ap", "ap50", "ap75", "images"} and measures["images"] == 6
    again, kept = (x(examples(2)[0]) for x in (tasks.load(tmp_path / "run"), made))
    for name in ("logits", "boxes"):
        np.testing.assert_allclose(again[name], kept[name], atol=1e-5)


def test_answers_are_in_the_pixels_of_each_picture(task, tmp_path):
    rng = np.random.default_rng(0)
    sizes = [(24, 32), (48, 64), (10, 60), (60, 10)]
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for path, size in zip(paths, sizes, strict=True):
        PIL.Image.fromarray(rng.integers(0, 256, size, "uint8")).save(path)
    answers = task.predict(paths, threshold=0.0, batch_size=3)
    for answer, (height, width), path in zip(answers, sizes, paths, strict=True):
        boxes, scores = answer["boxes"], answer["scores"]
        assert boxes.shape == (4, 4) and (np.diff(scores) <= 0).all() and set(answer["labels"]) <= set(NAMES)
        assert (boxes >= 0).all() and (boxes <= [width, height, width, height]).all()
        (alone,) = task.predict(path, threshold=0.0)
        np.testing.assert_allclose(alone["boxes"], boxes, atol=1e-3)
        line = json.loads(task.as_line(answer))
        np.testing.assert_allclose(line["boxes"], boxes, atol=0.01)
    median = np.median([answer["scores"] for answer in answers])
    told = task.predict(paths, threshold=float(median))
    assert sum(len(answer["scores"]) for answer in told) < 16
    assert all((answer["scores"] >= median).all() for answer in told)


def test_files_and_arrays_of_several_sizes_beside_each_other(task, tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, size, "uint8") for size in ((24, 32), (10, 60, 1), (48, 64))]
    images.append((images[1] / 255).astype("float32"))
    images.append(tf.io.encode_png(images[1]).numpy())
    answers = task.predict(iter(images), threshold=0.0, draw=tmp_path / "drawn")
    for image, answer in zip(images, answers, strict=True):
        (alone,) = task.predict([image], threshold=0.0)
        np.testing.assert_allclose(answer["boxes"], alone["boxes"], atol=1e-3)
    for row in (3, 4):
        np.testing.assert_allclose(answers[row]["boxes"], answers[1]["boxes"], atol=0.5)
    for row, (height, width) in enumerate([(24, 32), (10, 60), (48, 64), (10, 60), (10, 60)]):
        with PIL.Image.open(tmp_path / "drawn" / f"{row:06}.png") as drawn:
            assert drawn.size[0] * height == drawn.size[1] * width


def test_images_on_the_canvas_have_the_sizes_that_are_given(task):
    images = np.random.default_rng(0).integers(0, 256, (2, 24, 32), "uint8")
    own, given = (
        task.predict(images, threshold=0.0),
        task.predict([Sized(images[0], (48, 64)), images[1]], threshold=0.0),
    )
    np.testing.assert_allclose(given[0]["boxes"], 2 * own[0]["boxes"], rtol=1e-5)
    np.testing.assert_array_equal(given[1]["boxes"], own[1]["boxes"])


@pytest.mark.slow
def test_the_export_answers_as_the_task(task, tmp_path):
    """Files of any size, in a process without this package."""
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*size, 1), "uint8") for size in ((24, 32), (30, 20), (9, 50))]
    files = [tf.io.encode_png(picture).numpy() for picture in pictures]
    buffer, exif = io.BytesIO(), PIL.Image.Exif()
    exif[0x0112] = 6  # turned by its orientation
    PIL.Image.fromarray(pictures[0][..., 0]).save(buffer, "JPEG", exif=exif)
    files.append(buffer.getvalue())
    task.export(tmp_path / "served")
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    for row, answer in enumerate(task.predict(files, threshold=0.0)):
        np.testing.assert_allclose(served["boxes"][row], answer["boxes"], atol=1e-3)
        np.testing.assert_allclose(served["scores"][row], answer["scores"], atol=1e-5)
        assert list(served["labels"][row]) == answer["labels"]


@pytest.mark.slow
@pytest.mark.parametrize("keep_aspect", [False, True])
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_other_formats_answer_as_the_task(task, format, keep_aspect, tmp_path):
    made = Detector(task.model, NAMES, keep_aspect=keep_aspect)
    made.export(tmp_path / "served", format=format)
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*size, 1), "uint8") for size in ((24, 32), (24, 16), (9, 32))]
    files = [tf.io.encode_png(picture).numpy() for picture in pictures]
    served = serving.load(tmp_path / "served")
    for given in (pictures, files):
        found = served(given)
        for row, answer in enumerate(made.predict(given, threshold=0.0)):
            np.testing.assert_allclose(found["boxes"][row], answer["boxes"], atol=0.5)
            np.testing.assert_allclose(found["scores"][row], answer["scores"], atol=0.02)
            if row == 0:  # the others are resized, where a grey level may differ
                np.testing.assert_allclose(found["boxes"][row], answer["boxes"], atol=1e-3)
                assert list(found["labels"][row]) == answer["labels"]


@pytest.mark.slow
def test_queries_that_are_proposals_are_kept_and_exported(tmp_path):
    """The default family, whose queries have no weights of their own."""
    made = Detector(DeformableDETR.from_size("tiny", image_size=32, num_channels=1, dim=16), NAMES)
    assert made.model.backbone.config.proposes
    randomise(made.model, 1)
    made.save(tmp_path / "saved")
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 1), "uint8")
    expected, loaded = made.predict(images, threshold=0.0), tasks.load(tmp_path / "saved")
    made.export(tmp_path / "served")
    files = [tf.io.encode_png(image).numpy() for image in images]
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    for row, (answer, again) in enumerate(zip(expected, loaded.predict(images, threshold=0.0), strict=True)):
        for name in ("boxes", "scores"):
            np.testing.assert_allclose(again[name], answer[name], atol=1e-4)
            np.testing.assert_allclose(served[name][row], answer[name], atol=1e-3)
        assert again["labels"] == answer["labels"] == list(served["labels"][row])


@pytest.mark.slow
def test_a_family_by_its_name_learns():
    given = examples(64)
    changes = dataclasses.asdict(SMALL)
    made = Detector.make(given, DetectorOptions(family="smca"), changes)
    assert isinstance(made.model.backbone, SMCA)
    history = made.fit(given, 0.25, epochs=3, batch_size=16)
    assert history["loss"][-1] < history["loss"][0]


CHOOSING = {
    "image_size": (24, 32),
    "num_channels": 1,
    "frozen_norms": False,
    "backbone_config": NETWORK,
    "num_queries": 8,
    "dim": 16,
    "num_layers": 1,
    "num_heads": 2,
    "intermediate_dim": 16,
}
CELLS = {"num_maps": 2, "num_coarse_levels": 0, "pyramid_dim": 8, "num_convolutions": 1, "num_groups": 2}
CROWD = {"num_neighbours": 3, "num_decoder_layers": 3, "num_maps": 2, "num_levels": 2, "num_points": 1}
REGIONS = {"num_candidates": 32, "anchor_cells": 2, "region_dim": 8, "region_size": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "fields", "head"),
    [
        ("tsp-fcos", CELLS, "box_head"),
        ("tsp-rcnn", REGIONS, "box_head"),
        ("ped", CROWD, "decoder_box_head_2"),
    ],
)
def test_other_families_learn_resume_and_are_exported(family, fields, head, tmp_path):
    """Trained, stopped, resumed to the last bit, saved, exported; other classes."""
    given, options = examples(64), {"epochs": 6, "batch_size": 16, "learning_rate": 3e-3}

    def learnt(run, **more):
        keras.utils.set_random_seed(0)
        task = Detector.make(given, DetectorOptions(family=family), {**CHOOSING, **fields})
        return task, task.fit(given, 0.25, run=tmp_path / run, **options, **more)

    made, history = learnt("whole")
    assert made.model.takes_objects == family.startswith("tsp")
    assert history["loss"][-1] < history["loss"][0]
    learnt("run", minutes=0)
    resumed = tasks.load(tmp_path / "run")
    resumed.fit(given, 0.25, run=tmp_path / "run", resume=True, **options)
    for one, two in zip(made.model.weights, resumed.model.weights, strict=True):
        np.testing.assert_array_equal(one, two)
    assert made.evaluate(examples(6, seed=1))["images"] == 6
    images = examples(2)[0]
    expected = resumed.predict(images, threshold=0.0)
    for a, b in zip(tasks.load(tmp_path / "run").predict(images, threshold=0.0), expected, strict=True):
        np.testing.assert_allclose(a["boxes"], b["boxes"], atol=1e-3)
    resumed.export(tmp_path / "served")
    files = [tf.io.encode_png(image[..., None]).numpy() for image in images]
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    for row, answer in enumerate(resumed.predict(files, threshold=0.0)):
        for name in ("boxes", "scores"):
            np.testing.assert_allclose(served[name][row], answer[name], atol=1e-3)
    others = Detector.adopt(made, (None, None, [["cat"], ["dog"], ["eel"]]))
    assert others.model.num_classes == 3 and others.predict(images, threshold=0.0)
    weights = (x.model.get_layer(head).get_weights() for x in (others, made))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)


STRETCHED = {
    "image_size": 32,
    "num_channels": 1,
    "frozen_norms": True,
    "backbone_config": {**NETWORK, "stem_dim": 8},
    "num_queries": 4,
    "dim": 16,
    "num_heads": 2,
    "intermediate_dim": 16,
}


@pytest.mark.slow
def test_rt_detr_knows_the_classes_and_stretches_images(tmp_path):
    made = Detector.make(examples(2), DetectorOptions(family="rt-detr"), STRETCHED)
    assert isinstance(made.model.backbone, RTDETR) and made.model.backbone.config.num_classes == 2
    randomise(made.model, 1)
    made.save(tmp_path / "saved")
    made.save_huggingface(tmp_path / "theirs")
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 1), "uint8")
    expected = made.predict(images, threshold=0.0)
    for again in (tasks.load(tmp_path / "saved"), tasks.from_huggingface(tmp_path / "theirs")):
        side = None if again.preprocessing.image_size is None else 32  # a folder of transformers states it
        expected_preprocessing = dataclasses.replace(made.preprocessing, image_size=side)
        assert again.class_names == NAMES and again.preprocessing == expected_preprocessing
        for a, b in zip(again.predict(images, threshold=0.0), expected, strict=True):
            np.testing.assert_allclose(a["boxes"], b["boxes"], atol=1e-4)
            assert a["labels"] == b["labels"]
    others = Detector.adopt(made, (None, None, [["cat"], ["dog"], ["eel"]]))
    assert others.model.num_classes == 3 and others.predict(images, threshold=0.0)
    weights = (x.model.get_layer("decoder_box_head_1").get_weights() for x in (others, made))
    for a, b in zip(*weights, strict=True):
        np.testing.assert_array_equal(a, b)
    padded = Detector(made.model, NAMES, keep_aspect=True)
    with pytest.raises(ValueError, match="RTDetrImageProcessor stretches images; `keep_aspect` is True"):
        padded.save_huggingface(tmp_path / "padded")


@pytest.mark.slow
def test_rt_detr_learns_and_is_exported(tmp_path):
    given = examples(64)
    made = Detector.make(given, DetectorOptions(family="rt-detr"), {**STRETCHED, "frozen_norms": False})
    history = made.fit(given, 0.25, epochs=20, batch_size=16, learning_rate=3e-3)
    assert history["loss"][-1] < history["loss"][0]
    assert made.evaluate(examples(6, seed=1))["images"] == 6
    made.export(tmp_path / "served")
    files = [tf.io.encode_png(image[..., None]).numpy() for image in examples(2)[0]]
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    for row, answer in enumerate(made.predict(files, threshold=0.0)):
        for name in ("boxes", "scores"):
            np.testing.assert_allclose(served[name][row], answer[name], atol=1e-3)


def test_padding_is_hidden_and_the_same_in_training(task):
    """A picture that fills half of the canvas: the task's batches show its own pixels alone."""
    images, boxes, labels = np.full((1, 24, 16), 200, "uint8"), [[[0.0, 0.0, 8.0, 12.0]]], [["dark"]]
    checked = task.check_examples((images, boxes, labels))
    (inputs, targets), *_ = task.batches(checked, task.training, is_validation=True).dataset()
    assert inputs["pixel_mask"].numpy()[0].sum(1).tolist() == [16] * 24
    assert not inputs["images"].numpy()[0, :, 16:].any()
    np.testing.assert_allclose(targets[0, 0], [1, 0.25, 0.25, 0.5, 0.5])


def test_a_thin_picture_is_not_drawn_as_a_vast_one():
    for shape, size in (
        ((1, 60_000, 3), (60_000, 1)),
        ((20, 1000, 3), (4000, 80)),
        ((24, 32, 3), (320, 240)),
    ):
        assert Drawing.on(np.zeros(shape, "uint8")).picture.size == size


def test_average_precision_by_hand():
    """Two pictures of 100 x 100; of three objects two are found, or all, one by an overlap of 0.62."""
    boxes = [np.array([[0.1, 0.1, 0.5, 0.5], [0.6, 0.6, 0.9, 0.9]]), np.array([[0.0, 0.0, 1.0, 1.0]])]
    truth = Objects(np.zeros(2), np.array([[100, 100]] * 2), boxes, [["a", "a"], ["b"]])
    none = {"boxes": np.zeros((0, 4)), "labels": [], "scores": []}
    perfect = {"boxes": 100 * boxes[0], "labels": ["a", "a"], "scores": [0.9, 0.8]}
    assert average_precision(truth, [none, none]) == {"ap": 0, "ap50": 0, "ap75": 0}
    half = average_precision(truth, [perfect, none])
    assert half == pytest.approx({"ap": 50, "ap50": 50, "ap75": 50}, abs=0.01)
    near = {"boxes": np.array([[0.0, 0.0, 100.0, 62.0]]), "labels": ["b"], "scores": [0.5]}
    found = average_precision(truth, [perfect, near])  # 0.5, 0.55 and 0.6 of ten overlaps count
    assert found == pytest.approx({"ap": 65, "ap50": 100, "ap75": 50}, abs=0.01)
    other = {"boxes": np.array([[0.0, 0.0, 100.0, 62.0]]), "labels": ["c"], "scores": [0.5]}
    assert average_precision(truth, [perfect, other]) == pytest.approx(half)


@pytest.mark.slow
def test_folders_of_transformers_both_ways(tmp_path):
    published = Detector(DETR(dataclasses.replace(SMALL, frozen_norms=True)), NAMES)
    randomise(published.model, 1)
    published.save_huggingface(tmp_path / "theirs")
    again = tasks.from_huggingface(tmp_path / "theirs")
    assert type(again) is Detector and again.class_names == NAMES
    others = Detector.from_huggingface(tmp_path / "theirs", (None, None, [["cat"]]))
    assert others.class_names == ["cat"]
    box_heads = (x.model.get_layer("box_head").get_weights() for x in (others, published))
    for a, b in zip(*box_heads, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("keep_aspect", [False, True])
def test_folders_of_transformers_keep_the_preprocessing(keep_aspect, tmp_path):
    """Pictures of another shape than the model's; without the file they are prepared as the published."""
    config = dataclasses.replace(SMALL, image_size=(32, 32), num_channels=3, frozen_norms=True)
    fields = {"mean": (0.1, 0.2, 0.3), "std": (0.4,) * 3, "keep_aspect": keep_aspect}
    task = Detector(DETR(config), NAMES, **fields)
    randomise(task.model, 1)
    task.save_huggingface(tmp_path / "theirs")
    again = Detector.from_huggingface(tmp_path / "theirs")
    assert again.preprocessing == dataclasses.replace(task.preprocessing, image_size=32)
    images = np.random.default_rng(0).integers(0, 256, (2, 20, 48, 3), "uint8")
    for a, b in zip(again.predict(images, threshold=0.0), task.predict(images, threshold=0.0), strict=True):
        np.testing.assert_allclose(a["boxes"], b["boxes"], atol=1e-3)
    (tmp_path / "theirs" / "preprocessor_config.json").unlink()
    published = Detector.from_huggingface(tmp_path / "theirs").preprocessing
    assert published.mean == (0.485, 0.456, 0.406) and published.keep_aspect
    if keep_aspect:
        with pytest.raises(ValueError, match="DetrImageProcessor fits images into a square alone"):
            make(keep_aspect=True).save_huggingface(tmp_path / "oblong")


@pytest.mark.slow
def test_a_classifiers_backbone_goes_on(tmp_path):
    classifier = ImageClassifier(ResNet(SMALL.of_backbone), ["x", "y"])
    randomise(classifier.model, 1)
    made = Detector.adopt(classifier, (None, None, [["cat"], ["dog"]]))
    assert made.class_names == ["cat", "dog"]
    expected = {weight.path: weight.numpy() for weight in classifier.model.backbone.weights}
    found = {weight.path: weight.numpy() for weight in made.model.weights}
    for path, value in expected.items():
        np.testing.assert_array_equal(found[path], value)
    first = make()
    keep = Detector.adopt(first, (None, None, [["dark"]]))
    assert keep.class_names == NAMES and keep.model is first.model
    larger = Detector.adopt(first, (None, None, [["dark"]]), image_size=48)
    assert larger.image_shape == (48, 48, 1)
    others = Detector.adopt(first, (None, None, [["cat"], ["dog"]]))
    assert others.class_names == ["cat", "dog"]
    for name, is_kept in (("box_head", True), ("class_head", False)):
        for made in (larger, others):
            (a, *_), (b, *_) = (x.model.get_layer(name).get_weights() for x in (made, first))
            assert np.array_equal(a, b) == (is_kept or made is larger)


@pytest.mark.slow
def test_the_command_line(tmp_path, capsys):
    images, boxes, labels = examples(12)
    rows = []
    for number, image in enumerate(images):
        PIL.Image.fromarray(image).save(tmp_path / f"{number}.png")
        rows.append({"image": f"{number}.png", "boxes": boxes[number], "labels": labels[number]})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {name: getattr(SMALL, name) for name in ("num_channels", "backbone_config", "dim", "num_layers",
                                                      "num_heads", "intermediate_dim")}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config | {"image_size": [24, 32]}))
    data, run = str(tmp_path / "train.jsonl"), str(tmp_path / "run")
    main(["train", "detect", "--data", data, "--out", run, "--config", str(tmp_path / "config.json"),
          "--epochs", "1", "--queries", "4", "--batch-size", "4"])  # fmt: skip
    assert "12 images with 12 objects read" in capsys.readouterr().err
    main(["evaluate", run, "--data", data])
    assert json.loads(capsys.readouterr().out)["images"] == 12
    pictures = tmp_path / "pictures"
    main(["predict", run, "--data", data, "--threshold", "0", "--draw", str(pictures)])
    lines = capsys.readouterr().out.splitlines()
    name, answer = lines[0].split("\t")
    assert len(lines) == 12 and name.endswith("0.png")
    assert json.loads(answer).keys() == {"boxes", "labels", "scores"}
    assert len(list(pictures.glob("*.png"))) == 12
    with PIL.Image.open(pictures / "0.png") as picture:
        assert picture.size == (320, 240) and picture.mode == "RGB"  # ten times as large, for the names
        colours = np.asarray(picture)
        assert (colours.min(-1) < colours.max(-1)).any()  # a box in colour over greys
    with pytest.raises(SystemExit):
        main(["predict", run, "--data", data, "--threshold", "2"])
    assert "--threshold: must be at most 1; it is 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: [[[0, 0, 1, 1]]]}, "one length, got 2, 1 and 2"),
        ({2: [["bright"], ["cat"]]}, r"`labels` must be among \['bright', 'dark'\]; 'cat' is not"),
        ({1: [[[0, 0, 1, 1]] * 5, [[0, 0, 1, 1]] * 10_000], 2: [["dark"] * 5, ["dark"] * 10_000]},
         r"at most 4, the model's queries, in an image; image 0 has 5 \(1 more images have too many\)"),
        ({1: [[[0, 0, 1]], []], 2: [["dark"], []]}, "image 0: expected a box of four numbers"),
        ({0: np.zeros((2, 8, 8, 3), "uint8")}, "`images` must have the shape"),
    ],
)  # fmt: skip
def test_examples_that_are_refused(task, change, message):
    given = list(examples(2))
    for place, value in change.items():
        given[place] = value
    with pytest.raises(ValueError, match=message):
        task.check_examples(tuple(given))


def test_boxes_that_are_none_are_counted(task, caplog):
    images, boxes, labels = examples(2)
    boxes[0].append([5.0, 5.0, 5.0, 9.0])
    labels[0].append("dark")
    with caplog.at_level(logging.WARNING):
        checked = task.check_examples((images, boxes, labels))
    assert [len(x) for x in checked.boxes] == [1, 1]
    assert caplog.messages == ["1 of 3 boxes are skipped: image 0, box 2 (of no area)"]


def test_names_can_be_read_on_the_colours_of_boxes():
    """The contrast of WCAG is at least 4.5, its bound for texts."""

    def luminance(red, green, blue):
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (red, green, blue)]
        return np.dot([0.2126, 0.7152, 0.0722], linear)

    for colour in COLOURS:
        ground = luminance(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))
        ink = {"black": 0.0, "white": 1.0}[ink_on(colour)]
        assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 4.5, colour


def test_refusals(task, tmp_path):
    for names in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="`class_names` must be different strings"):
            Detector(DETR(SMALL), names)
    with pytest.raises(ValueError, match="`class_names` must be 2, as the head has them; they are 1"):
        Detector(task.model, ["a"])
    with pytest.raises(ValueError, match="DeformableDETR has no size '52'; it has tiny, 50, 50-refined"):
        DetectorOptions(size="52").base()
    known = "deformable-detr, conditional-detr, detr, smca, rt-detr, ped, tsp-fcos, tsp-rcnn"
    with pytest.raises(ValueError, match=f"There is no family 'yolo'; there are {known}"):
        DetectorOptions(family="yolo").base()
    with pytest.raises(ValueError, match=r"expected a backbone with maps, BiT, .*; got ViT"):
        vit = ImageClassifier.from_size("tiny", ["a", "b"], image_size=8, patch_size=4, num_layers=1)
        Detector.adopt(vit, (None, None, [["cat"]]))
    task.save(tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    content = json.loads(path.read_text())
    content["model"]["config"]["backbone_config"]["depths"] = [5_000, 5_000]
    path.write_text(json.dumps(content))
    with pytest.raises(tasks.TaskError, match="`depths` is 5,000, and there are"):
        tasks.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("box", "place"),
    [
        ((20, 30, 60, 70), (20, 20)),  # above
        ((20, 5, 60, 70), (20, 70)),  # below
        ((20, 5, 60, 95), (20, 5)),  # inside
        ((80, 30, 95, 70), (60, 20)),  # moved to the left
        ((0, 0, 100, 100), (0, 0)),
    ],
)
def test_names_stand_beside_their_boxes(box, place):
    assert beside((40, 10), box, (100, 100)) == place
