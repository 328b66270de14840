"""MEGA: the contract, its formulas in NumPy, pools as sets, what is hidden, a memory that is an argument."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_tfm.configs import Refusal
from keras_tfm.heads import TokenTagger
from keras_tfm.layers import roi_align
from keras_tfm.models import MEGA, MEGAConfig
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.layers.test_box_geometry import geometry

# Three frames of four boxes, of which two go on; two frames in the memory; two relations with places.
SMALL = MEGAConfig(3, 4, 2, 2, 2, 2, 3, 8, 2, 16, geometry_scale=2.0)
INPUTS = {
    "regions": floats(12, 2, 2, 3),
    "boxes": floats(12, 4),
    "region_mask": mask(12),
    "global_regions": floats("S", 2, 2, 3),
    "global_region_mask": mask("S"),
    "memory": floats(2, 4, 8),
    "memory_boxes": floats(4, 4),
}
KEY = slice(4, 8)  # the rows of the middle frame
# A number that is below 0 for all boxes, where the dense layers end, learns nothing.
CASE = Case("MEGA", lambda: MEGA(SMALL), INPUTS, attends=True, left_loss=0.1)
test_contract = contract.check_family(CASE)


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "regions": rng.normal(size=(2, 12, 2, 2, 3)).astype("float32"),
        "boxes": rng.uniform(0.2, 0.8, (2, 12, 4)).astype("float32"),
        "region_mask": np.ones((2, 12), "bool"),
        "global_regions": rng.normal(size=(2, 5, 2, 2, 3)).astype("float32"),
        "global_region_mask": np.ones((2, 5), "bool"),
        "memory": rng.normal(size=(2, 2, 4, 8)).astype("float32"),
        "memory_boxes": rng.uniform(0.2, 0.8, (2, 4, 4)).astype("float32"),
    }


@pytest.fixture(scope="module")
def model():
    model = MEGA(SMALL)
    randomise(model, 1)
    return model


def run(model, inputs):
    return {name: np.asarray(x) for name, x in model(inputs).items()}


def without(model, inputs, memory=True, pool=True):
    """The inputs without the memory, without the global pool."""
    nothing = {"global_region_mask": np.zeros_like(inputs["global_region_mask"])} if pool else {}
    return inputs | nothing | (model.first_memory(2) if memory else {})


def projected(model, name, x):
    layer = model.get_layer(name)
    return np.maximum(x @ np.asarray(layer.kernel) + np.asarray(layer.bias), 0)


def relation(model, number, x, context, bias):
    """x + the sums of the heads, side by side, and the dense layer: equations 2 to 6 of Hu et al. 2018."""
    heads = model.get_layer(f"block_{number}").context_attention.branch.projections
    weights = {weight.path.split(f"block_{number}/")[1]: np.asarray(weight) for weight in heads.weights}
    kernel = {name.split("/")[-2]: x for name, x in weights.items() if name.endswith("kernel")}
    offset = {name.split("/")[-2]: x for name, x in weights.items() if name.endswith("bias")}
    query = x @ kernel["query"] + offset["query"]
    key, value = np.split(context @ kernel["key_value"] + offset["key_value"], 2, axis=-1)
    parts = []
    for head in range(2):
        own = slice(4 * head, 4 * head + 4)
        scores = query[:, own] @ key[:, own].T / np.sqrt(4) + bias[head]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        parts.append(weights / weights.sum(-1, keepdims=True) @ value[:, own])
    return projected(model, f"projection_{number}", x + np.concatenate(parts, -1))


def test_without_pool_and_memory_it_is_relations_over_the_local_frames(model):
    inputs = draw()
    found = run(model, without(model, inputs))["sequence_output"]
    cells = inputs["regions"].reshape(2, 12, 12)
    for row in range(2):
        boxes = inputs["boxes"][row]
        x = projected(model, "projection_0", projected(model, "region_projection", cells[row]))
        first = [4, 5, 6, 7, 0, 1, 4, 5, 8, 9]  # the key frame's boxes, and the first two of each frame
        bias = geometry(model.get_layer("geometry_0"), boxes[first], boxes)
        x = relation(model, 1, x[first], x, bias)
        bias = geometry(model.get_layer("geometry_1"), boxes[KEY], boxes[first[4:]])
        expected = relation(model, 2, x[:4], x[4:], bias)
        np.testing.assert_allclose(found[row], expected, atol=1e-5)


def test_the_pool_is_a_set(model):
    inputs, order = draw(), [3, 1, 4, 0, 2]
    inputs["global_region_mask"][:, 4] = False
    names = ("global_regions", "global_region_mask")
    turned = inputs | {name: inputs[name][:, order] for name in names}
    before = run(model, inputs)["sequence_output"]
    np.testing.assert_allclose(run(model, turned)["sequence_output"], before, atol=1e-5)
    alone = run(model, without(model, inputs, memory=False))["sequence_output"]
    assert np.abs(alone - before).max() > 1e-2  # and it is read


def test_the_boxes_of_a_frame_are_two_sets(model):
    """Of each frame the two that go on, and the two that do not; the key frame's order is the outputs'."""
    inputs, order = draw(), [1, 0, 3, 2, 4, 5, 7, 6, 9, 8, 11, 10]
    turned = inputs | {name: inputs[name][:, order] for name in ("regions", "boxes", "region_mask")}
    before, after = (run(model, x)["sequence_output"] for x in (inputs, turned))
    np.testing.assert_allclose(after, before[:, [0, 1, 3, 2]], atol=1e-4)


def test_hidden_boxes_change_nothing_to_the_last_bit(model):
    inputs = draw()
    inputs["region_mask"][:, [0, 3, 9]] = inputs["global_region_mask"][:, 2] = False
    inputs["memory_boxes"][:, 1, 2:] = 0.0
    others = draw(seed=1)
    changed = {name: x.copy() for name, x in inputs.items()}
    for name, places in (("regions", [0, 3, 9]), ("boxes", [0, 3, 9]), ("global_regions", [2])):
        changed[name][:, places] = others[name][:, places]
    changed["memory"][:, :, 1], changed["memory_boxes"][:, 1, :2] = 9.0, 9.0
    before, after = run(model, inputs), run(model, changed)
    np.testing.assert_array_equal(after["sequence_output"], before["sequence_output"])
    np.testing.assert_array_equal(after["memory_boxes"], before["memory_boxes"])
    np.testing.assert_array_equal(after["memory_boxes"][:, 2], 0)  # hidden in the first frame


def test_the_memory_goes_from_key_frame_to_key_frame_as_an_argument(model):
    first = run(model, draw() | model.first_memory(2))
    kept = {name: first[name] for name in ("memory", "memory_boxes")}
    later = draw(seed=1)
    with_memory, again = (run(model, later | kept) for _ in range(2))
    for name, x in with_memory.items():
        np.testing.assert_array_equal(again[name], x)  # nothing stays behind in the model
    alone = run(model, later | model.first_memory(2))["sequence_output"]
    assert np.abs(alone - with_memory["sequence_output"]).max() > 1e-3
    other = run(model, later | {**kept, "memory": kept["memory"] + np.arange(8, dtype="float32")})
    assert np.abs(other["sequence_output"] - with_memory["sequence_output"]).max() > 1e-3
    assert all(weight.trainable for weight in model.weights)


def test_the_first_frame_takes_the_place_of_the_oldest(model):
    inputs = draw()
    found = run(model, inputs)
    np.testing.assert_array_equal(found["memory"][:, :, :2], inputs["memory"][:, :, 2:])
    np.testing.assert_array_equal(found["memory_boxes"][:, :2], inputs["memory_boxes"][:, 2:])
    np.testing.assert_array_equal(found["memory_boxes"][:, 2:], inputs["boxes"][:, :2])
    changed = {"regions": inputs["regions"].copy()}
    changed["regions"][:, :4] = 0.0  # the first frame
    differences = np.abs(run(model, inputs | changed)["memory"] - found["memory"])
    assert (differences.max(-1)[:, :, 2:] > 1e-3).all()


def test_classes_of_boxes_that_roi_align_reads(model):
    """From maps of frames to logits, key frame by key frame."""
    rng = np.random.default_rng(0)
    maps, corners = rng.normal(size=(2, 5, 6, 7, 3)).astype("float32"), draw()["boxes"].reshape(2, 3, 4, 4)
    tagger, state = TokenTagger(MEGA(SMALL), num_classes=3), model.first_memory(2)
    for start in range(3):
        regions = [roi_align(maps[:, start + i], 6 * corners[:, i], 2) for i in range(3)]
        inputs = draw() | {"regions": np.concatenate(regions, axis=1)} | state
        state = {name: tagger.backbone(inputs)[name] for name in state}
    assert tagger(inputs).shape == (2, 4, 3)
    assert (np.asarray(state["memory_boxes"])[..., 2:] > 0).all()  # filled by two frames


def seen(rng, classes, centres, is_clear):
    """Three frames of four boxes at these centres, in an order of their own, but in the key frame; their
    regions show the class, or noise alone.
    """
    regions, boxes = [], []
    for frame in range(3):
        order = np.argsort(rng.random(classes.shape), axis=1)
        order = np.broadcast_to(np.arange(4), order.shape) if frame == 1 else order
        places = np.take_along_axis(centres, order[..., None], axis=1) + rng.normal(0, 0.01, centres.shape)
        boxes.append(np.concatenate([places, np.full_like(places, 0.2)], axis=-1))
        shown = 2.0 * is_clear * np.eye(4)[np.take_along_axis(classes, order, axis=1)]
        regions.append(shown + rng.normal(0, 0.3, shown.shape))
    regions, boxes = (np.concatenate(x, axis=1).astype("float32") for x in (regions, boxes))
    nothing = np.zeros((len(classes), 1, 1, 1, 4), "float32")
    inputs = {"regions": regions[:, :, None, None], "boxes": boxes, "global_regions": nothing}
    return inputs | {"global_region_mask": np.zeros((len(classes), 1), "bool")}


@pytest.mark.slow
def test_it_learns_to_read_in_the_memory_what_no_frame_shows():
    """Classes of boxes that one key frame's frames show, and the next one's do not: by their places."""
    keras.utils.set_random_seed(0)
    rng, backbone = np.random.default_rng(0), MEGA(MEGAConfig(3, 4, 4, 1, 2, 1, 4, 32, 4, 32))
    model, none = TokenTagger(backbone, num_classes=4), backbone.first_memory(64)
    model.compile(keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for number in range(201):
        classes, centres = rng.integers(0, 4, (64, 4)), rng.uniform(0.1, 0.9, (64, 4, 2))
        first = backbone.predict_on_batch(seen(rng, classes, centres, True) | none)
        memory = {name: first[name] for name in none}
        later = seen(rng, classes, centres, False)
        if number < 200:
            model.train_on_batch(later | memory, classes)
    with_memory, without_it = (model.predict_on_batch(later | x).argmax(-1) for x in (memory, none))
    assert (with_memory == classes).mean() > 0.5 and (without_it == classes).mean() < 0.4  # 0.25 by chance


def test_the_published_size(no_allocation):
    """Counted by hand."""

    def dense(rows, columns):
        return rows * columns + columns

    relation = 3 * dense(1024, 1024) + dense(1024, 1024)
    count = sum(int(np.prod(weight.shape)) for weight in MEGA.from_size("base").weights)
    assert count == dense(7 * 7 * 256, 1024) + 4 * relation + 3 * dense(64, 16)


@pytest.mark.parametrize(("field", "value"), [("num_frames", 4), ("num_advanced", 5)])
def test_impossible_numbers_are_refused(field, value):
    with pytest.raises(Refusal, match=f"`{field}` must be .*; it is {value}"):
        dataclasses.replace(SMALL, **{field: value})
