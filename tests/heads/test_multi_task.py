"""The two-headed classifier of videos: a query per task, class conversion by hand, losses that add."""

import keras
import numpy as np
import pytest

from keras_tfm.heads import ClassConversion, MultiTaskClassifier, classification_loss
from keras_tfm.models import ViViT, ViViTConfig
from tests import contract
from tests.contract import Case, floats, randomise

CONFIG = ViViTConfig(
    num_frames=4,
    image_size=4,
    tubelet_size=(2, 2, 2),
    num_channels=1,
    num_layers=1,
    dim=6,
    num_heads=2,
    intermediate_dim=6,
)
TASKS = {"scene": 3, "action": 5}


def make(**options):
    return MultiTaskClassifier(ViViT(CONFIG), TASKS, num_layers=1, dim=8, **options)


test_contract = contract.check_family(
    Case("MultiTaskClassifier", make, {"videos": floats(4, 4, 4, 1)}, attends=True)
)


def test_class_conversion_by_hand():
    rng = np.random.default_rng(0)
    logits = {task: rng.normal(size=(2, size)).astype("float32") for task, size in TASKS.items()}
    layer = ClassConversion()
    for task, y in layer(logits).items():
        np.testing.assert_allclose(y, logits[task], rtol=1e-6)  # the matrices start at zero
    randomise(layer, 1)
    matrices = {weight.name: np.asarray(weight) for weight in layer.weights}
    scenes, actions = (np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in logits.values())
    y = layer(logits)
    np.testing.assert_allclose(
        y["action"], logits["action"] + scenes @ matrices["scene_to_action"], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        y["scene"], logits["scene"] + actions @ matrices["action_to_scene"], rtol=1e-5, atol=1e-6
    )


def test_tasks_share_the_trunk_alone_and_their_losses_add():
    model = make(converts=False)
    randomise(model, 1)
    videos = {"videos": np.random.default_rng(0).normal(size=(2, 4, 4, 4, 1)).astype("float32")}
    before = {task: np.asarray(y) for task, y in model(videos).items()}
    assert {task: y.shape for task, y in before.items()} == {"scene": (2, 3), "action": (2, 5)}
    queries = model.get_layer("queries").embedding
    queries.assign(np.asarray(queries) * [[[1.0], [3.0]]])  # the second task's query
    after = {task: np.asarray(y) for task, y in model(videos).items()}
    np.testing.assert_allclose(after["scene"], before["scene"], atol=1e-6)
    assert np.abs(after["action"] - before["action"]).max() > 1e-3
    labels = {"scene": np.array([0, 2]), "action": np.array([4, 1])}
    model.compile(loss={task: classification_loss() for task in TASKS})
    total = model.evaluate(videos, labels, verbose=0, return_dict=True)["loss"]
    parts = [keras.ops.sparse_categorical_crossentropy(labels[t], after[t], True) for t in TASKS]
    np.testing.assert_allclose(total, sum(np.mean(part) for part in parts), rtol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match="`num_classes` must have at least two tasks with classes"):
        MultiTaskClassifier(ViViT(CONFIG), {"scene": 3})
