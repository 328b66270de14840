"""Instances by codes of masks: the code is made before training and kept, answers, an export, refusals."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.heads import CodedSegmenter, MaskClassifier
from keras_tfm.models import ISTR, ISTRConfig, MaskFormer
from keras_tfm.tasks import Segmenter
from keras_tfm.tasks.segmentation.models import for_classes
from tests.contract import randomise
from tests.tasks.segmentation.test_set_runs import coco
from tests.tasks.segmentation.test_sets import NAMES, examples
from tests.tasks.segmenting import MASK_FORMER, RESNET, SIZE

SIZES = {"num_queries": 6, "dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
SMALL = ISTRConfig(
    SIZE, 1, backbone_config=RESNET, frozen_norms=False, **SIZES, dynamic_dim=4, region_size=2,
    mask_region_size=4, code_dim=4, num_class_layers=1, num_box_layers=1,
)  # fmt: skip


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A task that has begun to learn, and its RUN."""
    keras.utils.set_random_seed(0)
    task = Segmenter(ISTR(SMALL), NAMES, segments="instances", threshold=0.0)
    assert not task.model.codec.is_fitted
    run = tmp_path_factory.mktemp("coded") / "run"
    task.fit(examples(16), examples(4, seed=1), epochs=1, batch_size=8, least_area=1.0, flip=False, run=run)
    return task, run


def test_the_code_is_of_the_masks_that_are_learnt_and_is_kept(task):
    task, run = task
    codec, again = task.model.codec, tasks.load(run).model.codec
    assert codec.is_fitted
    np.testing.assert_array_equal(again.mean, codec.mean)
    full = np.ones((1, 16, 16))  # the masks are rectangles, all of their boxes
    np.testing.assert_allclose(np.asarray(codec.code.decode(codec.encode(full))), 0.97, atol=0.02)
    before = np.array(codec.mean)
    others = task.check_examples(examples(8, seed=2))
    task.kind.before_training(task.batches(others, task.training))
    np.testing.assert_array_equal(codec.mean, before)  # what was learnt is of this code
    other = for_classes(task.model, 2)
    assert isinstance(other, CodedSegmenter) and other.num_classes == 2
    np.testing.assert_array_equal(other.codec.mean, before)


def test_answers_are_masks_in_boxes(task):
    task = Segmenter(task[0].model, NAMES, segments="instances", threshold=0.0)
    outputs = {
        "logits": np.array([[9.0, -9, -9], [-9, -9, 3], [-9, 2, -9]] + [[-9.0] * 3] * 3),
        "boxes": np.array(
            [[0.25, 0.5, 0.5, 1.0], [0.75, 0.75, 0.5, 0.5], [0.1, 0.1, 0.2, 0.2]] + [[0.5] * 4] * 3
        ),
        "masks": np.array(
            [np.full((16, 16), 9.0), np.tri(16) * 18 - 9, np.full((16, 16), -9.0)]
            + [np.full((16, 16), 9.0)] * 3
        ),
    }
    outputs = {name: tf.constant(x, tf.float32) for name, x in outputs.items()}
    found = task.kind.found(**outputs, size=tf.constant([8, 12]), threshold=tf.constant(0.1))
    answer = task.kind.answer({name: x.numpy() for name, x in found.items()})
    assert answer["labels"] == ["bright", "ground"]  # the third has no pixels, others are no objects
    np.testing.assert_allclose(answer["scores"], 1 / (1 + np.exp([-9.0, -3.0])), rtol=1e-5)
    expected = np.zeros((2, 8, 12), bool)
    expected[0, :, :6] = True
    expected[1, 4:, 6:] = np.arange(4)[:, None] + 0.5 >= (np.arange(6) + 0.5) * 4 / 6
    np.testing.assert_array_equal(answer["masks"][0], expected[0])
    assert (answer["masks"][1] != expected[1]).sum() <= 2 and answer["areas"][0] == 48
    assert answer["boxes"][1].tolist() == [6, 4, 11, 8]


def test_codes_are_of_instances_alone(task):
    with pytest.raises(ValueError, match="panoptic segments need --family detr, mask2former, maskformer or "):
        Segmenter(task[0].model, NAMES, segments="panoptic", stuff=["ground"])
    with pytest.raises(ValueError, match="CodedSegmenter predicts instances"):
        Segmenter(task[0].model, NAMES)
    assert isinstance(Segmenter(MaskFormer(MASK_FORMER), NAMES, segments="instances").model, MaskClassifier)
    empty = [np.zeros((0, *SIZE), bool)] * 4
    fresh = Segmenter(ISTR(SMALL), NAMES, segments="instances")
    with pytest.raises(ValueError, match="masks: expected some"):
        fresh.fit((examples(4)[0], empty, [[]] * 4), epochs=1)


@pytest.mark.slow
@pytest.mark.parametrize("keep_aspect", [False, True])
def test_the_export_answers_as_the_task(task, keep_aspect, tmp_path):
    fields = {"segments": "instances", "threshold": 0.0, "keep_aspect": keep_aspect}
    task = Segmenter(task[0].model, NAMES, **fields)
    randomise(task.model.get_layer("class_head_0"), 1)
    task.export(tmp_path / "served")
    files = [tf.io.encode_png(examples(1, size)[0][0][..., None]).numpy() for size in (SIZE, (30, 20))]
    served = serving.load(tmp_path / "served")(files)
    for row, answer in enumerate(task.predict(files)):
        count = len(answer["labels"])
        np.testing.assert_allclose(served["scores"][row][:count], answer["scores"], rtol=1e-3)
        np.testing.assert_array_equal(served["areas"][row][:count], answer["areas"])
        assert not served["scores"][row][count:].any()


@pytest.mark.slow
def test_the_command_line(tmp_path, capsys):
    path, run = str(coco(tmp_path / "data", "instances", 6)), str(tmp_path / "run")
    config = {"image_size": SIZE, "num_channels": 1, "backbone_config": RESNET, **SIZES, "code_dim": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    train = ["train", "segment", "--family", "istr", "--data", path, "--out", run, "--batch-size", "3"]
    main([*train, "--config", str(tmp_path / "config.json"), "--epochs", "1"])
    main([*train[:2], "--data", path, "--out", run, "--resume", "--epochs", "1"])
    capsys.readouterr()
    main(["evaluate", run, "--data", path])
    assert {"ap", "ap50", "ap75"} <= json.loads(capsys.readouterr().out).keys()
    main(["predict", run, "--data", path, "--threshold", "0", "--draw", str(tmp_path / "drawn")])
    assert len(list((tmp_path / "drawn").iterdir())) == 6
