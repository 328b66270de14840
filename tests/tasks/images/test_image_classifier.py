"""The image classifier: from raw images to class names, kept, exported and asked."""

import copy
import dataclasses
import io
import json

import keras
import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.data import ImageFiles
from keras_tfm.heads import Classifier
from keras_tfm.models import Swin, ViT
from keras_tfm.private.keras import shapes_alone
from keras_tfm.tasks import ImageClassifier, ImageClassifierConfig, TaskError
from keras_tfm.tasks.images.image_families import FAMILIES, ImageOptions
from tests.contract import randomise
from tests.fresh_process import ask
from tests.tasks.interrupting import interrupted_at

NAMES = ["top", "bottom", "left"]
SMALL = {
    "image_size": 8,
    "patch_size": 4,
    "num_channels": 1,
    "num_layers": 1,
    "dim": 16,
    "num_heads": 2,
    "intermediate_dim": 16,
}


def examples(size, seed=0):
    """Images (N, 8, 8) with one bright half, and which half it is."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 100, (size, 8, 8), "uint8")
    labels = rng.integers(0, 3, size)
    halves = np.array([np.s_[:4, :], np.s_[4:, :], np.s_[:, :4]], dtype="object")
    for image, label in zip(images, labels, strict=True):
        image[tuple(halves[label])] += 120
    return images, labels


@pytest.fixture(scope="module")
def task():
    keras.utils.set_random_seed(0)
    task = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    task.history = task.fit(examples(320), epochs=12, batch_size=32, learning_rate=1e-2, max_shift=1)
    return task


@pytest.fixture(scope="module")
def exported(task, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "halves"
    task.export(folder)
    return folder


def test_a_class_of_a_folder_whose_name_is_no_utf_8_is_kept(tmp_path):
    names = ["caf\udce9", "tea"]
    ImageClassifier.from_size("tiny", names, **SMALL).save(tmp_path / "run")
    assert tasks.load(tmp_path / "run").class_names.tolist() == names


def test_it_learns_and_keeps_the_best_epoch(task):
    images, labels = examples(100, seed=1)
    measures = task.evaluate((images, labels))
    assert measures["accuracy"] == 1 and measures["loss"] < 0.1 and measures["images"] == 100
    measures = {"accuracy", "loss", "val_accuracy", "val_loss", "examples_per_second", "gradient_norm"}
    assert task.history.keys() == measures
    kept = task.evaluate(examples(320))["loss"]
    assert kept < task.history["loss"][0]


@pytest.mark.parametrize(("count", "expected"), [(320, 20), (7, 1), (16, 1), (64 * 16 + 5, 64)])
def test_an_epoch_has_sixteen_batches_where_nobody_asks_for_a_size(count, expected):
    usual = ImageClassifier.training
    assert usual.settled(count).batch_size == expected
    assert dataclasses.replace(usual, batch_size=5).settled(count).batch_size == 5


def test_answers_agree_with_each_other(task):
    images, labels = examples(70, seed=2)
    logits = keras.ops.convert_to_numpy(task(images))
    probabilities = task.probabilities(images, batch_size=32)
    np.testing.assert_allclose(
        probabilities, np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), atol=1e-6
    )
    np.testing.assert_array_equal(task.predict(images), np.array(NAMES)[logits.argmax(-1)])
    np.testing.assert_allclose(
        task.evaluate((images, labels))["loss"],
        -np.log(probabilities[np.arange(70), labels]).mean(),
        atol=1e-4,
    )
    assert task.evaluate((images, np.array(NAMES)[labels])) == task.evaluate((images, labels))
    assert task.predict(images[:0]).shape == (0,)


def test_images_come_in_many_forms(task):
    images, _ = examples(5, seed=3)
    expected = task.probabilities(images)
    for form in (images[..., None], images / 255, (images / 255).astype("float32")[..., None]):
        np.testing.assert_allclose(task.probabilities(form), expected, atol=1e-6)
    np.testing.assert_array_equal(task({"images": images}), task(images))
    larger = images.repeat(3, axis=1).repeat(3, axis=2)  # averaged again by the antialiased filter
    np.testing.assert_array_equal(task.predict(larger), task.predict(images))


def test_image_files_are_answered_too(task, tmp_path):
    images, _ = examples(3, seed=8)
    files = [tf.io.encode_png(image[..., None]).numpy() for image in images]
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    expected = task.probabilities(images)
    for form in (files, paths, list(map(str, paths)), ImageFiles(paths, (99, 9, 1))):
        np.testing.assert_allclose(task.probabilities(form, batch_size=2), expected, atol=1e-6)
    assert task.predict(paths[1]).tolist() == task.predict(images[1:2]).tolist()
    assert not task.refusals(paths[1]) and task.inspect(str(paths[1])).examples == [str(paths[1])]
    paths[2].write_bytes(b"")
    mixed = [files[0], images[0], paths[2]]
    assert task.refusals(mixed) == {2: "expected a whole PNG or JPEG image"} and not task.refusals(images)
    with pytest.raises(ValueError, match="row 2: expected a whole PNG or JPEG image"):
        task.predict(paths, batch_size=2)


@pytest.mark.slow
def test_preprocessing_is_in_the_export(tmp_path):
    """Files of any size, in a process without this package, answer as the task does."""
    keras.utils.set_random_seed(2)
    backbone = ViT.from_size("tiny", **SMALL | {"num_channels": 3, "image_size": (8, 12)})
    options = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25), "interpolation": "bicubic"}
    task = ImageClassifier(backbone, NAMES, **options, crop_fraction=0.8, keep_aspect=True)
    task.save(tmp_path / "task")
    task.export(tmp_path / "served")
    generator = np.random.default_rng(0)
    sizes = ((8, 12), (30, 20), (9, 50), (1, 1))
    pictures = [generator.integers(0, 256, (*size, 3), "uint8") for size in sizes]
    files = [tf.io.encode_png(picture).numpy() for picture in pictures]
    files.append(tf.io.encode_jpeg(pictures[1]).numpy())
    answers = tasks.load(tmp_path / "task").probabilities(files)
    served = ask(tmp_path / "served", of_text=False, image_bytes=files)
    np.testing.assert_allclose(served["probabilities"], answers, atol=1e-5)
    one = ask(tmp_path / "served", of_text=False, image_bytes=files[2:3])
    np.testing.assert_allclose(one["probabilities"], answers[2:3], atol=1e-5)
    stretched = ImageClassifier(task.model, NAMES).probabilities(files)
    assert np.abs(stretched - answers).max() > 1e-3


def test_another_image_size_stretches_positions():
    keras.utils.set_random_seed(3)
    small = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    for weight in small.model.weights:
        weight.assign(np.random.default_rng(0).normal(0, 0.3, weight.shape))
    images, labels = examples(4)
    large = ImageClassifier.adopt(small, (images, np.array(NAMES)[labels]), image_size=16)
    assert large.image_shape == (16, 16, 1) and large.model.backbone.config.image_size == 16
    for name in ("head/output/kernel", "patch_encoder/embedding/kernel"):
        one, other = (
            {weight.path.rpartition("classifier/")[2]: weight for weight in task.model.weights}
            for task in (small, large)
        )
        if name in one:
            np.testing.assert_array_equal(one[name], other[name])
    np.testing.assert_array_equal(large.model.head.get_weights()[0], small.model.head.get_weights()[0])
    positions = small.model.backbone.with_image_size(16).position.embedding.embeddings
    np.testing.assert_array_equal(large.model.backbone.position.embedding.embeddings, positions)
    assert ImageClassifier.adopt(small, (images, np.array(NAMES)[labels])).model is small.model
    other = ImageClassifier.adopt(small, (images, np.array(["x", "y", "x", "y"])), interpolation="bicubic")
    assert other.config.class_names == ("x", "y") and other.model.backbone is small.model.backbone
    assert other.config.interpolation == "bicubic"
    with pytest.raises(ValueError, match="not divisible into patches"):
        ImageClassifier(small.model, NAMES, image_size=10)


def test_families_share_their_options():
    assert {"vit", "deit", "swin", "levit", "xcit"} <= FAMILIES.keys()
    options = ImageOptions(family="swin")
    config = options.base()
    assert config == Swin.sizes["tiny"]
    changes = {
        "depths": (1, 1),
        "dim": 8,
        "num_heads": (1, 2),
        "num_channels": 1,
        "patch_size": 2,
        "window": 2,
    }
    images, labels = examples(4)
    task = ImageClassifier.make((images, np.array(NAMES)[labels]), options, changes, image_size=8)
    assert isinstance(task.model.backbone, Swin) and task.image_shape == (8, 8, 1)
    assert len(task.predict(images)) == 4
    with pytest.raises(ValueError, match=r"There is no family 'x'; there are .*deit"):
        ImageOptions(family="x").base()
    with pytest.raises(ValueError, match="Swin has no size 'x'; it has tiny, T, S"):
        ImageOptions(family="swin", size="x").base()
    with pytest.raises(
        ValueError, match=r"no size 'Ti/16'; it has tiny, 18.* Families with such a size: vit\."
    ):
        ImageOptions(family="resnet", size="Ti/16").base()
    assert list(FAMILIES) == sorted(FAMILIES)


@pytest.mark.slow  # some seconds each
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_classifies(name):
    with shapes_alone():
        task = ImageClassifier.make((None, np.array(NAMES)), ImageOptions(family=name), {})
    assert task.model.output.shape == (None, 3) and set(task.model.input) == {"images"}


@pytest.mark.slow
def test_soft_labels_are_learnt_from_images_on_the_disk(tmp_path):
    images, labels = examples(64, seed=9)
    paths = [tmp_path / f"{number}.png" for number in range(64)]
    for path, image in zip(paths, images, strict=True):
        path.write_bytes(tf.io.encode_png(image[..., None]).numpy())
    task = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    files = ImageFiles(paths, task.image_shape)
    options = {"mixup": 0.2, "label_smoothing": 0.1, "flip": False, "augment": "light", "least_area": 0.9}
    history = task.fit(
        (files, labels), (images, labels), epochs=3, batch_size=16, learning_rate=1e-2, **options
    )
    assert history["val_loss"][-1] < history["val_loss"][0] and history["val_accuracy"][-1] > 0.4
    assert task.evaluate((files, labels)) == task.evaluate((images, labels))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "still"),
    [
        ({"num_frozen": 1}, {"patch_encoder", "block_0"}),
        ({"lora_rank": 2}, {"patch_encoder"}),
        ({"layer_decay": 1e-6}, {"patch_encoder", "block_0"}),
    ],
)
def test_parts_of_a_model_learn(options, still):
    keras.utils.set_random_seed(4)
    task = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    before = {weight.path: np.array(weight) for weight in task.model.weights}
    task.fit(examples(48), examples(16), epochs=1, batch_size=16, learning_rate=1e-2, **options)
    after = {weight.path: np.array(weight) for weight in task.model.weights}
    moved = {path.partition("/")[0] for path in before if np.abs(after[path] - before[path]).max() > 1e-5}
    assert moved == {"patch_encoder", "block_0", "norm", "head"} - still


def test_what_is_gone_on_with_learns_slower():
    usual = ImageClassifier.training
    assert ImageClassifier.training_of(is_given=False) == usual
    expected = dataclasses.replace(usual, learning_rate=1e-4, label_smoothing=0.0)
    assert ImageClassifier.training_of(is_given=True) == expected
    assert usual.learning_rate == 1e-3 and usual.label_smoothing == 0.1


def test_save_and_load(task, tmp_path):
    task.save(tmp_path / "task")
    names = ["README.md", "config.json", "model.safetensors", "training.json"]
    assert sorted(path.name for path in (tmp_path / "task").iterdir()) == names
    other = tasks.load(tmp_path / "task")
    assert type(other) is ImageClassifier and other.config == task.config
    images, _ = examples(20, seed=4)
    for kept, weight in zip(other.model.weights, task.model.weights, strict=True):
        np.testing.assert_array_equal(kept, weight)
    # Where other processes take the cores, the parts of a sum are others.
    np.testing.assert_allclose(other.probabilities(images), task.probabilities(images), rtol=1e-5)
    with pytest.raises(FileExistsError):
        task.save(tmp_path / "task")
    config = json.loads((tmp_path / "task/config.json").read_text("utf-8"))
    config["config"]["nonsense"] = 1
    (tmp_path / "task/config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(TaskError, match="not a configuration of 'classify-images'"):
        tasks.load(tmp_path / "task")


def test_the_export_answers_alike_where_keras_and_this_package_are_missing(task, exported):
    files, shown = [], []
    for number, image in enumerate(examples(30, seed=5)[0]):
        picture, exif, buffer = PIL.Image.fromarray(image), PIL.Image.Exif(), io.BytesIO()
        exif[0x0112] = number % 8 + 1  # the orientation
        picture.save(buffer, "PNG", exif=exif)
        files.append(buffer.getvalue())
        shown.append(np.asarray(PIL.ImageOps.exif_transpose(PIL.Image.open(buffer))))
    images = np.stack(shown)
    served = ask(exported, of_text=False, image_bytes=files)
    assert served["label"].tolist() == task.predict(images).tolist()
    np.testing.assert_allclose(served["probabilities"], task.probabilities(images), atol=5e-6)
    served = ask(exported, "images", of_text=False, images=(images[..., None] / 255).astype("float32"))
    np.testing.assert_allclose(served["probabilities"], task.probabilities(images), atol=5e-6)


def test_the_exports_signatures(exported):
    assert {"saved_model.pb", "variables"} <= {path.name for path in exported.iterdir()}
    signatures = tf.saved_model.load(exported).signatures
    assert set(signatures) == {"serving_default", "images"}
    expected = {
        "serving_default": ("image_bytes", [None], tf.string),
        "images": ("images", [None, 8, 8, 1], tf.float32),
    }
    for name, (argument, shape, dtype) in expected.items():
        specs = signatures[name].structured_input_signature[1]
        assert [(spec.shape.as_list(), spec.dtype) for spec in [specs[argument]]] == [(shape, dtype)]
        outputs = signatures[name].structured_outputs
        assert {key: spec.dtype for key, spec in outputs.items()} == {
            "label": tf.string,
            "labels": tf.string,
            "probabilities": tf.float32,
        }


@pytest.mark.slow
def test_a_resumed_run_is_the_unbroken_one(tmp_path):
    def classifier(run, resume=False):
        keras.utils.clear_session()  # a checkpoint names seed generators, which Keras numbers in a process
        keras.utils.set_random_seed(1)
        task = ImageClassifier.from_size("tiny", NAMES, **SMALL, dropout=0.1)
        options = {"epochs": 3, "batch_size": 32, "max_shift": 1, "run": tmp_path / run, "resume": resume}
        options |= {"augment": "light", "cutmix": 0.5}
        task.fit(examples(96), examples(32, seed=6), **options)
        return task

    whole = classifier("whole")
    with interrupted_at(2):
        classifier("broken")
    resumed = classifier("broken", resume=True)
    images, _ = examples(20, seed=7)
    for task in (resumed, tasks.load(tmp_path / "broken"), tasks.load(tmp_path / "whole")):
        np.testing.assert_array_equal(task.probabilities(images), whole.probabilities(images))


def test_integer_classes_keep_their_type():
    task = ImageClassifier(ViT.from_size("tiny", **SMALL), np.array([7, 3]))
    images, _ = examples(4)
    assert task.config.class_names == (7, 3)
    assert set(task.predict(images).tolist()) <= {7, 3}
    measures = task.evaluate((images, [7, 3, 3, 7]))
    assert measures["images"] == 4
    assert task.evaluate((images, ["7", "3", "3", "7"])) == measures  # as files have them
    with pytest.raises(ValueError, match=r"`labels` must be among \[7, 3\]; 0 is not"):
        task.evaluate((images, [0, 1, 0, 1]))


@pytest.mark.parametrize(
    ("class_names", "options", "message"),
    [
        (["one"], {}, "`class_names` must be different"),
        (["one", "one"], {}, "`class_names` must be different"),
        ([1.0, 2.0], {}, "`class_names` must be different"),
        (NAMES, {"std": (0.0,)}, "`std` must be positive"),
        (NAMES, {"mean": (0.1, 0.2, 0.3)}, "`mean` must have 1 or 1 values"),
    ],
)
def test_impossible_configurations_are_refused(class_names, options, message):
    with pytest.raises(ValueError, match=message):
        ImageClassifier(ViT.from_size("tiny", **SMALL), class_names, **options)


@pytest.mark.parametrize(
    ("examples", "options", "message"),
    [
        ((np.zeros((2, 8, 8, 3), "uint8"), [0, 1]), {}, r"`images` must have the shape \(B, H, W\)"),
        ((np.zeros((0, 8, 8), "uint8"), []), {}, "`images` must not be empty"),
        (
            (np.zeros((2, 8, 8), "uint8"), [0]),
            {},
            r"`labels` must be one for each of 2 images; the shape is \(1,\)",
        ),
        ((np.zeros((2, 8, 8), "uint8"), [0, 3]), {}, "3 is not"),
        ((np.zeros((2, 8, 8), "uint8"), ["top", "right"]), {}, "'right' is not"),
        ((np.zeros((2, 8, 8), "uint8"), [0, 1]), {"validation": 1.5}, "the share is 1.5"),
        ((np.zeros((1, 8, 8), "uint8"), [0]), {}, "At least 2 examples"),
        (np.zeros((2, 8, 8), "uint8"), {}, r"expected \(images, labels\), got ndarray of the shape"),
    ],
)
def test_training_refuses_what_it_cannot_use(examples, options, message):
    task = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    with pytest.raises(ValueError, match=message):
        task.fit(examples, **options)


@pytest.mark.parametrize("head", [{"pooling": "mean"}, {"hidden_dim": 16, "activation": "relu"}])
def test_the_head_of_a_given_model_is_kept(head, tmp_path):
    """Also by a copy, and for images of another size."""
    model = Classifier(ViT.from_size("B/16", **SMALL), 3, **head)
    randomise(model, 1)
    task = ImageClassifier(model, NAMES)
    task.save(tmp_path / "run")
    images, _ = examples(4)
    for again in (tasks.load(tmp_path / "run"), copy.deepcopy(task)):
        np.testing.assert_allclose(again.probabilities(images), task.probabilities(images), atol=1e-5)
    larger = ImageClassifier.adopt(task, (images, np.array(NAMES)), image_size=12)
    assert larger.model.head_arguments == model.head_arguments
    with pytest.raises(ValueError, match="`class_names` must be 3 different names, as the head has them"):
        ImageClassifier(model, ["a", "b"])


def test_configurations_survive_json():
    config = ImageClassifierConfig(NAMES, mean=0.5, std=[0.1, 0.2, 0.3])
    assert config.class_names == tuple(NAMES) and config.mean == (0.5,)
    assert ImageClassifierConfig(**json.loads(json.dumps(vars(config)))) == config


@pytest.mark.slow
def test_a_published_folder_gets_a_head_for_other_classes(tmp_path):
    """What `--from` does: its own head where it has the classes of the examples, else a new one."""
    published = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    published.save_huggingface(tmp_path / "published")
    images, _ = examples(3)
    for names in (NAMES, ["bird", "cat", "dog"]):
        task = ImageClassifier.start_from(tmp_path / "published", (images, np.array(names)))
        assert task.class_names.tolist() == names
        pairs = zip(task.model.weights, published.model.weights, strict=True)
        same = all(x.shape == y.shape and np.allclose(x, y) for x, y in pairs)
        assert same == (names == NAMES)
