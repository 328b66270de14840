"""Classes of pixels by models of sets of masks: the command line, folders, the export, what is learnt."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.heads import MaskClassifier, PointMaskClassifier
from keras_tfm.models import Mask2Former, MaskFormer
from keras_tfm.tasks import Segmenter
from keras_tfm.training.safetensors import CheckpointError
from tests.contract import randomise
from tests.models.test_max_deeplab import COARSE
from tests.tasks.segmenting import (
    MASK2FORMER,
    MASK2FORMER_OF_FOUR,
    MASK_FORMER,
    NAMES,
    VALUES,
    examples,
    write_examples,
)

pytestmark = pytest.mark.slow
HEADS = {
    "maskformer": (MASK_FORMER, MaskClassifier),
    "mask2former": (MASK2FORMER, PointMaskClassifier),
    "maxdeeplab": (dataclasses.replace(COARSE, frozen_norms=False), MaskClassifier),
}
MODELS = [
    pytest.param(lambda: MaskClassifier(MaskFormer(MASK_FORMER), 3), id="MaskFormer"),
    pytest.param(lambda: PointMaskClassifier(Mask2Former(MASK2FORMER), 3), id="Mask2Former"),
]
MODELS_OF_FOLDERS = [
    MODELS[0],
    pytest.param(lambda: PointMaskClassifier(Mask2Former(MASK2FORMER_OF_FOUR), 3), id="Mask2Former"),
]


@pytest.mark.parametrize("family", HEADS)
def test_the_command_line(family, tmp_path, capsys):
    config, head = HEADS[family]
    images, _ = write_examples(tmp_path / "data", 6)
    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(config)))
    data, run, file = (str(tmp_path / name) for name in ("data", "run", "config.json"))
    train = ["train", "segment", "--data", data, "--out", run, "--family", family, "--config", file]
    with pytest.raises(SystemExit, match="2"):
        main([*train, "--decoder", "pup"])
    assert f"{family} has its own decoder" in capsys.readouterr().err
    main([*train, "--epochs", "1", "--batch-size", "3"])
    main(["evaluate", run, "--data", data])
    assert json.loads(capsys.readouterr().out).keys() == {"miou", "pixel_accuracy", "images"}
    task, again = tasks.load(run), tasks.load(run)
    assert type(task.model) is head and type(task.model.backbone.config) is type(config)
    assert task.class_names == ["0", "7", "200"]
    for a, b in zip(task.predict(images), again.predict(images), strict=True):
        assert a["mask"].shape == (16, 24) and set(np.unique(a["mask"])) <= {*VALUES}
        assert all(0 <= score <= 1 for score in a["scores"].values())
        np.testing.assert_array_equal(a["mask"], b["mask"])


@pytest.mark.parametrize("make", MODELS)
def test_a_task_for_other_classes_keeps_what_knows_none(make):
    task = Segmenter(make(), NAMES)
    others = Segmenter.adopt(task, (None, None, np.array([0, 9])), image_size=32)
    for name, is_kept in (("mask_head", True), ("class_head", False)):
        a, b = (x.model.get_layer(name).get_weights()[0] for x in (others, task))
        assert np.array_equal(a, b) == is_kept
    assert others.image_shape == (32, 32, 1)


@pytest.mark.parametrize("make", MODELS_OF_FOLDERS)
def test_folders_and_the_export(make, tmp_path):
    keras.utils.set_random_seed(0)
    task = Segmenter(make(), NAMES)
    randomise(task.model, 1)
    task.save_huggingface(tmp_path / "theirs")
    again = tasks.from_huggingface(tmp_path / "theirs")
    assert type(again) is Segmenter and again.class_names == NAMES
    images, _ = examples(2, task.image_shape[:2])
    for a, b in zip(again.predict(images), task.predict(images), strict=True):
        np.testing.assert_array_equal(a["mask"], b["mask"])
    entries = json.loads((tmp_path / "theirs" / "preprocessor_config.json").read_text())
    assert entries["image_processor_type"] == f"{type(task.model.backbone).__name__}ImageProcessor"
    task.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    files = [tf.io.encode_png(image[..., None]).numpy() for image in images]
    for row, answer in enumerate(task.predict(files)):
        np.testing.assert_array_equal(served(image_bytes=files)["masks"][row], answer["mask"])


def test_the_sizes_of_published_folders(tmp_path):
    """Images whose shortest side is given stand whole on a square canvas of this side."""
    Segmenter(MaskClassifier(MaskFormer(MASK_FORMER), 3), NAMES).save_huggingface(tmp_path / "theirs")
    path = tmp_path / "theirs" / "preprocessor_config.json"
    entries = json.loads(path.read_text())
    for side, message in ((32, None), (10**9, "1 to 4096"), ("32", "1 to 4096")):
        path.write_text(json.dumps(entries | {"size": {"shortest_edge": side}, "do_center_crop": False}))
        if message is None:
            whole = tasks.from_huggingface(tmp_path / "theirs")
            assert whole.image_shape == (32, 32, 1) and whole.config.keep_aspect
        else:
            with pytest.raises(CheckpointError, match=message):
                tasks.from_huggingface(tmp_path / "theirs")


@pytest.mark.parametrize("make", MODELS)
def test_a_training_learns(make):
    keras.utils.set_random_seed(0)
    task = Segmenter(make(), NAMES, class_values=VALUES)
    task.fit(examples(96), 0.25, epochs=30, batch_size=12, learning_rate=3e-3)
    assert task.evaluate(examples(6, seed=1))["miou"] > 50
