"""Objects that hide each other: what PED learns from and other families do not, measures, files."""

import json
import logging

import keras
import numpy as np
import PIL.Image
import pytest

from keras_tfm import heads
from keras_tfm.cli import main
from keras_tfm.data import CrowdedObjects, Objects
from keras_tfm.data.batches.targets import NO_OBJECT
from keras_tfm.models import DETR, PED
from keras_tfm.tasks import Detector
from keras_tfm.tasks.images.average_precision import average_precision
from keras_tfm.tasks.images.detector import DETECTORS, targets_of, tell_skipped
from keras_tfm.tasks.images.miss_rate import miss_rate
from tests.contract import randomise
from tests.models.test_ped import SMALL
from tests.tasks.images.test_detector import SMALL as OTHER

WHOLE, VISIBLE, CROWD = [2.0, 4.0, 12.0, 16.0], [2.0, 4.0, 12.0, 8.0], [14.0, 0.0, 24.0, 10.0]


def examples(*further):
    """Two pictures, of an object whose lower part is hidden, and of the same beside a crowd."""
    boxes, labels = [[WHOLE], [WHOLE, CROWD]], [["a"], ["a", "a"]]
    return np.zeros((2, 20, 24), "uint8"), boxes, labels, *further


def make(family, config, **changes):
    keras.utils.set_random_seed(0)
    made = Detector(family(type(config)(**{**vars(config), **changes})), ["a"])
    randomise(made.model, 1)
    return made


def batch(task, given):
    (parts,) = task.batches(task.check_examples(given), task.training, is_validation=True).dataset()
    return parts


def test_only_ped_learns_from_visible_boxes_and_crowds(caplog):
    given = examples([[VISIBLE], [None, CROWD]], [[0], [0, 1]])
    _, targets = batch(make(PED, SMALL), given)
    assert targets.shape == (2, 2, 9) and targets[..., 0].numpy().tolist() == [[0, -1], [0, -2]]
    shares = np.array([24, 20, 24, 20])
    np.testing.assert_allclose(targets[0, 0, 1:5] * shares, [7, 10, 10, 12], atol=1e-5)
    np.testing.assert_allclose(targets[0, 0, 5:] * shares, [7, 6, 10, 4], atol=1e-5)
    np.testing.assert_array_equal(targets[1, :, 5:], targets[1, :, 1:5])
    assert batch(make(PED, SMALL), examples())[1].shape == (2, 2, 5)
    other = make(DETR, OTHER, image_size=(20, 24))
    with caplog.at_level(logging.WARNING):
        other.batches(other.check_examples(given), other.training)
    assert caplog.messages == [
        "1 boxes around crowds and visible boxes are skipped: DETR learns whole objects alone"
    ]
    plain = batch(other, (given[0], [[WHOLE]] * 2, [["a"]] * 2))
    for one, two in zip(batch(other, given), plain, strict=True):
        keras.tree.map_structure(np.testing.assert_array_equal, one, two)
    assert not any(kind.takes_visible for kind in DETECTORS) and heads.CrowdDetector.takes_visible


def test_the_loss_of_one_object_and_one_query_by_hand():
    """All blocks but the last two learn the visible box; of a step through Keras alike."""
    task = make(PED, SMALL, num_queries=1, num_neighbours=1, num_decoder_layers=3, dropout=0.0)
    images, *_ = examples()
    given = images[:1], [[WHOLE]], [["a"]], [[VISIBLE]]
    inputs, targets = batch(task, given)
    learner, loss = task.learner(task.training), task.objective(task.training)["loss"]
    predictions = learner(inputs)
    box = predictions[0, 0, 0, -4:].numpy()

    def badness(target):
        """5 times the distance and 2 times 1 - GIoU of the first block's box."""
        (a, b), (c, d) = ((x[:2] - x[2:] / 2, x[:2] + x[2:] / 2) for x in (box, target))
        common = np.maximum(np.minimum(b, d) - np.maximum(a, c), 0).prod()
        union = box[2:].prod() + target[2:].prod() - common
        hull = (np.maximum(b, d) - np.minimum(a, c)).prod()
        return 5 * np.abs(box - target).sum() + 2 * (1 - common / union + (hull - union) / hull)

    whole, visible = targets[0, 0, 1:5].numpy(), targets[0, 0, 5:].numpy()
    difference = loss(targets, predictions) - loss(targets[..., :5], predictions)
    assert abs(badness(visible) - badness(whole)) > 0.01
    np.testing.assert_allclose(difference, badness(visible) - badness(whole), rtol=1e-3, atol=1e-4)
    learner.compile("sgd", loss, run_eagerly=True, jit_compile=False)
    np.testing.assert_allclose(learner.train_on_batch(inputs, targets), loss(targets, predictions), rtol=1e-4)


def crowded(**changes):
    """Two pictures of 100 x 100 with one and two objects of one class, and a crowd in the first."""
    boxes = [
        np.array([[0.1, 0.1, 0.3, 0.5], [0.5, 0.0, 1.0, 1.0]]),
        np.array([[0, 0, 0.2, 0.2], [0.6, 0.6, 0.9, 1]]),
    ]
    parts = {
        "images": np.zeros(2),
        "sizes": np.array([[100, 100]] * 2),
        "boxes": boxes,
        "labels": [["a", "a"]] * 2,
        "visible": boxes,
        "is_crowd": [np.array([False, True]), np.array([False, False])],
        "is_difficult": [np.zeros(2, "bool")] * 2,
    }
    return CrowdedObjects(**parts | changes)


def answer(*rows):
    boxes, scores = [row[:4] for row in rows], [row[4] for row in rows]
    return {"boxes": np.array(boxes, "float64").reshape(-1, 4), "labels": ["a"] * len(rows), "scores": scores}


RIGHT, OTHER_RIGHT = (10, 10, 30, 50, 0.9), (0, 0, 20, 20, 0.7)
IN_CROWD, HALF_OUT = (60, 10, 80, 40, 0.8), (45, 20, 55, 40, 0.8)  # half of its area is in the crowd
OUT = (40, 60, 55, 90, 0.8)  # a third of it is


def test_average_precision_ignores_what_lies_in_a_crowd():
    """Of three objects two are found; with one wrong between them, the precision of the second is 2/3."""
    right = average_precision(crowded(), [answer(RIGHT), answer(OTHER_RIGHT)])
    assert average_precision(crowded(), [answer(RIGHT, IN_CROWD), answer(OTHER_RIGHT)]) == right
    wrong = average_precision(crowded(), [answer(RIGHT, OUT), answer(OTHER_RIGHT)])
    assert (right["ap50"], wrong["ap50"]) == pytest.approx((100 * 67 / 101, 100 * (34 + 33 * 2 / 3) / 101))
    plain = crowded().objects
    assert type(plain) is Objects and [len(x) for x in plain.boxes] == [1, 2]
    assert average_precision(plain, [answer(RIGHT, IN_CROWD), answer(OTHER_RIGHT)]) == wrong
    nothing = crowded(is_crowd=[np.ones(2, "bool")] * 2)
    assert average_precision(nothing, [answer(RIGHT), answer()]) == {"ap": 0, "ap50": 0, "ap75": 0}


def test_difficult_objects_need_not_be_found_and_may_be():
    """Any number of boxes that fit one are neither right nor wrong, as in VOC; what fits none is wrong."""
    difficult = {"is_crowd": [np.zeros(2, "bool")] * 2, "is_difficult": crowded().is_crowd}
    data, fitting, part = crowded(**difficult), (50, 0, 100, 100, 0.8), (50, 0, 70, 100, 0.8)
    right = average_precision(data.objects, [answer(RIGHT), answer(OTHER_RIGHT)])
    for more in ([], [fitting], [fitting, fitting]):
        assert average_precision(data, [answer(RIGHT, *more), answer(OTHER_RIGHT)]) == right
    wrong = average_precision(data.objects, [answer(RIGHT, part), answer(OTHER_RIGHT)])
    assert wrong["ap50"] < right["ap50"]
    assert average_precision(data, [answer(RIGHT, part), answer(OTHER_RIGHT)]) == wrong
    none = crowded(is_crowd=difficult["is_crowd"], is_difficult=[np.ones(2, "bool")] * 2)
    assert average_precision(none, [answer(RIGHT), answer()]) == {"ap": 0, "ap50": 0, "ap75": 0}
    assert miss_rate(data, [answer(RIGHT, fitting), answer(OTHER_RIGHT)]) == pytest.approx(100 / 3)


def test_no_family_learns_difficult_objects(caplog):
    data = crowded(is_crowd=[np.zeros(2, "bool")] * 2, is_difficult=crowded().is_crowd)
    assert targets_of(data, ["a"])[..., 0].tolist() == [[0, NO_OBJECT], [0, 0]]
    tell_skipped(data, None)
    assert caplog.messages == ["1 boxes of difficult objects are skipped"]


def test_the_miss_rate_by_hand():
    """One of three objects is never found; 2/3 are missed up to half a false box per image, then 1/3."""
    found = [answer(RIGHT, IN_CROWD, HALF_OUT), answer(OTHER_RIGHT)]
    assert miss_rate(crowded(), found) == pytest.approx(100 / 3)
    with_wrong = 100 * ((2 / 3) ** 7 * (1 / 3) ** 2) ** (1 / 9)  # 0.316 is the seventh of nine references
    assert miss_rate(crowded(), [answer(RIGHT, OUT), answer(OTHER_RIGHT)]) == pytest.approx(with_wrong)
    twice = answer(RIGHT, (10, 10, 30, 49, 0.8))  # an object is found once
    assert miss_rate(crowded(), [twice, answer(OTHER_RIGHT)]) == pytest.approx(with_wrong)
    assert miss_rate(crowded(), [answer(), answer()]) == pytest.approx(100)


def test_examples_that_are_refused():
    task = make(PED, SMALL)
    for further, message in (
        (([[VISIBLE], [VISIBLE]],), 'image 1: expected a list of 2 as "visible", one for each label'),
        (([[VISIBLE], [VISIBLE, 3]],), "image 1, visible box: expected a box of four numbers, got 3"),
        (([[VISIBLE]],), "one length, got 2, 2, 2 and 1"),
        (([[None], [None] * 2], [[0], [1]]), 'image 1: expected a list of 2 as "iscrowd"'),
    ):
        with pytest.raises(ValueError, match=message):
            task.check_examples(examples(*further))


@pytest.mark.slow
def test_the_command_line_learns_and_measures_crowds(tmp_path, capsys, caplog):
    rng = np.random.default_rng(0)
    lines = []
    for number in range(12):
        picture = rng.integers(0, 90, (20, 24), "uint8")
        picture[4:8, 2:12] = 255
        PIL.Image.fromarray(picture).save(tmp_path / f"{number}.png")
        person = {"tag": "person", "fbox": [2, 4, 10, 12], "vbox": [2, 4, 10, 4], "extra": {"box_id": 0}}
        mask = {"tag": "mask", "fbox": [14, 0, 10, 10], "vbox": [14, 0, 10, 10], "extra": {"ignore": 1}}
        lines.append(json.dumps({"ID": str(number), "gtboxes": [person, mask]}))
    (tmp_path / "train.odgt").write_text("\n".join(lines))
    config = {name: getattr(SMALL, name) for name in ("num_channels", "image_size", "backbone_config", "dim",
              "num_layers", "num_decoder_layers", "num_heads", "intermediate_dim", "num_maps", "num_levels",
              "num_neighbours")}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    data, run = str(tmp_path / "train.odgt"), str(tmp_path / "run")
    main(["train", "detect", "--family", "ped", "--data", data, "--out", run, "--epochs", "1",
          "--config", str(tmp_path / "config.json"), "--queries", "16", "--batch-size", "4"])  # fmt: skip
    assert "12 images with 12 objects read" in capsys.readouterr().err and "skipped" not in caplog.text
    main(["evaluate", run, "--data", data])
    measures = json.loads(capsys.readouterr().out)
    assert measures.keys() == {"ap", "ap50", "ap75", "mr", "images"} and 0 <= measures["mr"] <= 100
    main(["predict", run, "--data", data])
    assert len(capsys.readouterr().out.splitlines()) == 12
