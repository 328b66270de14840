"""Segmenting by Mask2Former: the command line, folders, the export, what is learnt."""

import dataclasses
import json

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.cli import main
from keras_tfm.heads import PointMaskClassifier
from keras_tfm.models import Mask2Former, Mask2FormerConfig
from keras_tfm.tasks import Segmenter
from tests.contract import randomise
from tests.tasks.test_segmenter import NAMES, VALUES, examples

pytestmark = pytest.mark.slow
RESNET = {"stem_dim": 8, "dims": (8, 8), "depths": (1, 1), "block": "basic"}
SMALL = Mask2FormerConfig(
    image_size=(16, 24),
    num_channels=1,
    backbone_config=RESNET,
    frozen_norms=False,
    num_levels=1,
    num_queries=6,
    dim=16,
    num_layers=2,
    num_heads=2,
    intermediate_dim=16,
    pyramid_dim=32,
    num_encoder_layers=1,
    encoder_intermediate_dim=16,
    mask_dim=16,
)
# As transformers has it: four maps, of which three are encoded.
FOUR = dataclasses.replace(
    SMALL,
    image_size=64,
    num_levels=3,
    num_layers=3,
    backbone_config={**RESNET, "dims": (8,) * 4, "depths": (1,) * 4},
)


def test_the_command_line(tmp_path, capsys):
    images, masks = examples(6)
    for name, arrays in (("images", images), ("masks", masks)):
        (tmp_path / "data" / name).mkdir(parents=True)
        for row, array in enumerate(arrays):
            PIL.Image.fromarray(array).save(tmp_path / "data" / name / f"{row}.png")
    (tmp_path / "config.json").write_text(json.dumps(dataclasses.asdict(SMALL)))
    data, run, config = (str(tmp_path / name) for name in ("data", "run", "config.json"))
    train = ["train", "segment", "--train", data, "--out", run, "--family", "mask2former", "--config", config]
    with pytest.raises(SystemExit, match="2"):
        main([*train, "--decoder", "pup"])
    assert "mask2former has its own decoder" in capsys.readouterr().err
    main([*train, "--epochs", "1", "--batch-size", "3"])
    main(["evaluate", run, "--data", data])
    assert json.loads(capsys.readouterr().out).keys() >= {"miou", "pixel_accuracy", "images"}
    task = tasks.load(run)
    assert type(task.model) is PointMaskClassifier and task.class_names == ["0", "7", "200"]
    others = Segmenter.adopt(task, (None, None, np.array([0, 9])), image_size=32)
    for name, is_kept in (("mask_head", True), ("class_head", False)):
        a, b = (x.model.get_layer(name).get_weights()[0] for x in (others, task))
        assert np.array_equal(a, b) == is_kept
    assert others.image_shape == (32, 32, 1)


def test_folders_and_the_export(tmp_path):
    keras.utils.set_random_seed(0)
    task = Segmenter(PointMaskClassifier(Mask2Former(FOUR), 3), NAMES)
    randomise(task.model, 1)
    task.save_huggingface(tmp_path / "theirs")
    again = tasks.from_huggingface(tmp_path / "theirs")
    assert type(again) is Segmenter and again.class_names == NAMES
    images, _ = examples(2, (64, 64))
    for a, b in zip(again.predict(images), task.predict(images), strict=True):
        np.testing.assert_array_equal(a["mask"], b["mask"])
    entries = json.loads((tmp_path / "theirs" / "preprocessor_config.json").read_text())
    assert entries["image_processor_type"] == "Mask2FormerImageProcessor"
    task.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    files = [tf.io.encode_png(image[..., None]).numpy() for image in images]
    for row, answer in enumerate(task.predict(files)):
        np.testing.assert_array_equal(served(image_bytes=files)["masks"][row], answer["mask"])


def test_it_learns():
    keras.utils.set_random_seed(0)
    task = Segmenter(PointMaskClassifier(Mask2Former(SMALL), 3), NAMES, class_values=VALUES)
    task.fit(examples(96), 0.25, epochs=30, batch_size=12, learning_rate=3e-3)
    assert task.evaluate(examples(6, seed=1))["miou"] > 50
