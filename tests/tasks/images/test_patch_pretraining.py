"""Pre-training a detector on images without labels: what is learnt, kept, resumed, and gone on with."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.heads import PatchDetector
from keras_tfm.models import ResNet
from keras_tfm.tasks import Detector, ImageClassifier, ImagePretrainer
from keras_tfm.tasks.images.image_pretrainer import PretrainerOptions
from tests.contract import randomise
from tests.tasks.images.test_detector import NAMES, SMALL
from tests.tasks.interrupting import interrupted_at

SIDE = 40
CONFIG = dataclasses.replace(SMALL, image_size=SIDE, num_queries=6)
OPTIONS = {"batch_size": 16, "learning_rate": 3e-3}


def images(count, seed=0):
    """Noise with a light square: places differ."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 100, (count, SIDE, SIDE), "uint8")
    for image in found:
        top, left = rng.integers(0, 20, 2)
        image[top : top + 16, left : left + 16] += 120
    return found


def fresh(**fields):
    keras.utils.clear_session()  # a checkpoint names seed generators, which Keras numbers in a process
    keras.utils.set_random_seed(0)
    options = PretrainerOptions(family="detr")
    return ImagePretrainer.make(None, options, dataclasses.asdict(CONFIG), method="updetr", **fields)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(The task that has learnt, its RUN, the weights before)."""
    task, folder = fresh(), tmp_path_factory.mktemp("updetr") / "run"
    before = {weight.path: weight.numpy() for weight in task.model.backbone.weights}
    task.history = task.fit(images(64), images(16, seed=1), epochs=3, run=folder, **OPTIONS)
    return task, folder, before


def test_the_loss_falls_and_the_backbone_stays(run):
    task, folder, before = run
    assert (
        isinstance(task.model, PatchDetector) and task.model.num_patches == 6 and task.model.patch_size == 32
    )
    assert task.history["val_loss"][-1] < task.history["val_loss"][0]
    of_images = {weight.path for weight in ResNet(CONFIG.of_backbone).weights}
    for weight in task.model.backbone.weights:
        is_same = np.array_equal(weight, before[weight.path])
        assert (
            is_same if weight.path in of_images else weight.path.startswith("decoder_block_0") or not is_same
        )
    kept = tasks.load(folder)
    assert type(kept) is ImagePretrainer and kept.config == task.config and kept.is_trained
    for one, other in zip(kept.model.weights, task.model.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_detector_starts_from_a_run(run):
    task, folder, _ = run
    detector = Detector.start_from(folder, (None, None, [["dark"], ["bright"]]))
    assert detector.class_names == NAMES and detector.image_shape == (SIDE, SIDE, 1)
    learnt = {weight.path: weight.numpy() for weight in task.model.weights}
    for weight in detector.model.weights:
        if "class_head" not in weight.path and weight.path in learnt:
            np.testing.assert_array_equal(weight, learnt[weight.path])
    missing = {weight.path for weight in detector.model.weights} - learnt.keys()
    assert not {path for path in missing if "seed" not in path}
    of_images = {weight.path for weight in ResNet(CONFIG.of_backbone).trainable_weights}
    assert of_images <= {weight.path for weight in detector.model.trainable_weights}  # which the task froze


def test_vectors_are_the_backbone_s(run):
    task, _, _ = run
    given = images(3)
    backbone = ResNet(CONFIG.of_backbone)
    weights = {weight.path: weight for weight in task.model.backbone.weights}
    for weight in backbone.weights:
        weight.assign(weights[weight.path])
    vectors = backbone({"images": task.prepare(given[..., None])})["pooled_output"]
    vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    np.testing.assert_allclose(task.predict(given), vectors, atol=1e-5)


@pytest.mark.slow
def test_a_classifier_s_backbone_goes_on():
    classifier = ImageClassifier(ResNet(CONFIG.of_backbone), ["x", "y"])
    randomise(classifier.model, 1)
    task = ImagePretrainer.adopt(classifier, None, method="updetr")
    assert task.model.num_patches == 10 and task.model.backbone.config.num_queries == 100
    found = {weight.path: weight.numpy() for weight in task.model.weights}
    for weight in classifier.model.backbone.weights:
        np.testing.assert_array_equal(weight, found[weight.path])


def test_arrays_of_another_size_are_resized():
    task = fresh()
    larger = images(4).repeat(2, 1).repeat(2, 2)
    (inputs, _), *_ = task.batches(task.check_examples(larger), task.training, True).dataset()
    np.testing.assert_allclose(inputs["images"], task.prepare(larger[..., None]), atol=1e-5)


@pytest.mark.slow
def test_another_number_of_patches():
    task = fresh(num_patches=2)
    (inputs, targets), *_ = task.batches(task.check_examples(images(4)), task.training).dataset()
    assert inputs["patches"].shape == (4, 2, 32, 32, 1) and targets.shape == (4, 2, 5)
    assert task.model(inputs).shape == (4, 1, 6, 2 + 2 + 4)
    other = ImagePretrainer.adopt(task, None, num_patches=3)
    assert other.model.num_patches == 3
    again = ImagePretrainer.adopt(task, None)
    assert again is task


@pytest.mark.slow
def test_a_resumed_run_is_the_unbroken_one(tmp_path):
    given = images(48)

    def pretrained(run, resume=False):
        task = tasks.load(tmp_path / run) if resume else fresh()
        options = OPTIONS | {"epochs": 2, "run": tmp_path / run, "resume": resume}
        task.fit(given, given[:16], **options)
        return task

    whole = pretrained("whole")
    with interrupted_at(1):
        pretrained("broken")
    resumed = pretrained("broken", resume=True)
    for one, two in zip(whole.model.weights, resumed.model.weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_refusals():
    with pytest.raises(ValueError, match="`num_patches` must divide the 6 queries; it is 4"):
        fresh(num_patches=4)
    with pytest.raises(ValueError, match=r"updetr needs a DETR, or for its backbone BiT, .*; it is a ViT"):
        vit = ImageClassifier.from_size("tiny", NAMES, image_size=8, patch_size=4, num_layers=1)
        ImagePretrainer.adopt(vit, None, method="updetr")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--method updetr", "--method updetr needs --family detr; it is 'vit'"),
        ("--method dino --family detr", "--family detr needs --method updetr; it is 'dino'"),
        ("--method mae --family detr", "--method mae needs --family vit; it is 'detr'"),
        ("--method updetr --family detr --patches 3", "--patches must divide the 16 queries; it is 3"),
        ("--method updetr --family detr --size 3", "DETR has no size '3'; it has tiny, 50, 101"),
    ],
)
def test_the_command_line_refuses(options, told, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        words = ["--data", str(tmp_path / "images"), "--out", str(tmp_path / "run"), *options.split()]
        main(["train", "pretrain-images", *words])
    assert stopped.value.code == 2 and not (tmp_path / "run").exists()
    assert told in capsys.readouterr().err
