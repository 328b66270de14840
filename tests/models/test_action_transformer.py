"""Action Transformer: its unit by hand, persons apart from each other, where and when cells are."""

import dataclasses

import numpy as np
import pytest

from keras_tfm.heads import TokenTagger
from keras_tfm.models import ActionTransformer, ActionTransformerConfig
from keras_tfm.models.video.action_transformer import MemoryProjections, PlaceEmbedding, RegionQuery, unit
from keras_tfm.visualize import record_attention
from tests import contract
from tests.contract import Case, floats, randomise
from tests.parity.references import action_transformer

SMALL = ActionTransformerConfig(
    num_frames=9,
    image_size=(34, 50),
    num_channels=1,
    stem_dims=(4, 4, 4),
    dims=((3,) * 6,) * 7,
    region_size=2,
    dim=12,
    num_layers=2,
    num_heads=2,
    intermediate_dim=10,
    position_dim=4,
)
INPUTS = {"videos": floats(9, 34, 50, 1), "boxes": floats("T", 4)}

test_contract = contract.check_family(
    Case("ActionTransformer", lambda: ActionTransformer(SMALL), INPUTS, attends=True, convolves=True)
)


@pytest.fixture(scope="module")
def model():
    model = TokenTagger(ActionTransformer(SMALL), 5)
    randomise(model, 1)
    return model


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    boxes = [[0, 0, 20, 30], [30, 2, 48, 34], [10, 8, 20, 20]]
    videos = rng.normal(size=(2, 9, 34, 50, 1)).astype("float32")
    return {"videos": videos, "boxes": np.array([boxes, boxes[::-1]], "float32")}


def test_persons_do_not_see_each_other(model, inputs):
    together = np.asarray(model(inputs))
    assert together.shape == (2, 3, 5)
    alone = np.asarray(model({**inputs, "boxes": inputs["boxes"][:, 1:2]}))
    np.testing.assert_allclose(together[:, 1:2], alone, rtol=1e-5, atol=1e-5)
    moved = inputs["boxes"] + [[[12, 0, 12, 0]], [[0, 0, 0, 0]]]
    changes = np.abs(np.asarray(model({**inputs, "boxes": moved.astype("float32")})) - together).max((1, 2))
    assert changes[0] > 1e-3 and changes[1] == 0


def test_a_moved_person_attends_elsewhere_among_all_cells(model, inputs):
    moved = {**inputs, "boxes": inputs["boxes"] + np.float32([12, 0, 12, 0])}
    weights = []
    for x in (inputs, moved):
        with record_attention(model) as records:
            model(x)
        weights.append([np.asarray(y) for y in records.values()])
    assert [x.shape for x in weights[0]] == [(2, 1, 3, 3 * 3 * 4)] * 4  # two heads in each of two layers
    np.testing.assert_allclose(weights[0][0].sum(-1), 1, atol=1e-5)
    assert max(np.abs(a - b).max() for a, b in zip(*weights, strict=True)) > 1e-2


def test_the_unit_by_hand():
    """Section 3.2 of Girdhar et al. 2019."""
    rng = np.random.default_rng(0)
    x, context = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 6))
    layer = unit(7, 0.3, MemoryProjections(), name="unit")
    layer(x, context_attention={"context": context})
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    weights = {weight.path.removeprefix("unit/"): np.asarray(weight, "float64") for weight in layer.weights}

    def linear(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def norm(x, name):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * weights[f"{name}/norm/gamma"] + weights[f"{name}/norm/beta"]

    key, value = np.split(linear(context, "context_attention/branch/projections/key_value"), 2, axis=-1)
    scores = np.exp(x @ key.swapaxes(1, 2) / 2)
    y = norm(x + scores / scores.sum(-1, keepdims=True) @ value, "context_attention")
    hidden = np.maximum(linear(y, "feedforward/branch/hidden"), 0)
    expected = norm(y + linear(hidden, "feedforward/branch/output"), "feedforward")
    actual = layer(x.astype("float32"), context_attention={"context": context.astype("float32")})
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_where_and_when_cells_are():
    layer = PlaceEmbedding(2)
    x = np.random.default_rng(0).normal(size=(2, 3, 1, 5, 4)).astype("float32")
    y = np.asarray(layer(x))
    np.testing.assert_array_equal(y[..., :4], x)
    place = np.stack([np.linspace(-1, 1, 5), np.zeros(5)], axis=-1).astype("float32")
    np.testing.assert_allclose(y[0, 0, 0, :, 4:6], layer.where(place), atol=1e-6)
    np.testing.assert_allclose(y[1, :, 0, 3, 6:], layer.when(np.float32([[-1], [0], [1]])), atol=1e-6)


def test_queries_of_regions():
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 2, 4)).astype("float32")
    coarse, fine = RegionQuery(6, is_fine=False), RegionQuery(6)
    np.testing.assert_allclose(coarse(x), coarse.projection(x.mean((2, 3))), atol=1e-6)
    shuffled = x[:, :, ::-1]
    assert np.abs(np.asarray(coarse(x)) - coarse(shuffled)).max() < 1e-5
    assert np.abs(np.asarray(fine(x)) - fine(shuffled)).max() > 1e-2
    assert ActionTransformer.sizes["LowRes"] == dataclasses.replace(
        ActionTransformer.sizes["HighRes"], query="low"
    )


def test_the_unit_as_a_repository_uses_it_again():
    """Three frames of 2 x 3 cells, two heads; the numbers of `tests.parity.golden` are larger ones."""
    arguments = {"num_features": 8, "num_frames": 3, "head": 2, "spatial": [2, 3], "num_classes": 5}
    rng, shapes = np.random.default_rng(0), {"Qpr.weight": (4, 8, 2, 3), "classifier.weight": (5, 4)}
    shapes |= {"classifier.bias": (5,), "bn2.alpha": (4,), "bn2.bias": (4,)}
    shapes |= {f"bn1.{name}": (8,) for name in ("weight", "bias", "running_mean", "running_var")}
    for unit_name in (f"list_layers.{head}.T{i}" for head in range(2) for i in (1, 2, 3)):
        shapes |= {f"{unit_name}.norm_{i}.{name}": (2,) for i in (1, 2) for name in ("alpha", "bias")}
        shapes |= {f"{unit_name}.ff.linear_1.weight": (1, 2), f"{unit_name}.ff.linear_1.bias": (1,)}
        shapes |= {f"{unit_name}.ff.linear_2.weight": (2, 1), f"{unit_name}.ff.linear_2.bias": (2,)}
    weights = {name: rng.uniform(0.5, 1.5, shape).astype("float32") for name, shape in shapes.items()}
    read, outputs = action_transformer.read(arguments, weights)
    x = rng.normal(size=(2, 3, 2, 3, 8)).astype("float32")
    y = read({"features_in": x})
    mean, variance = weights["bn1.running_mean"], weights["bn1.running_var"]
    normalized = (x - mean) / np.sqrt(variance + 1e-5) * weights["bn1.weight"] + weights["bn1.bias"]
    angles = np.arange(3)[:, None] / 10_000 ** (np.arange(8) / 4)
    waves = np.where(np.arange(8) % 2, np.cos(angles), np.sin(angles))[:, None, None]
    raw = np.einsum("bthwc,dchw->btd", normalized * np.sqrt(8) + waves, weights["Qpr.weight"])
    np.testing.assert_allclose(y["features/frames_before_relu"], raw, rtol=1e-4)
    frames = np.maximum(raw, 0)
    frames = (frames - frames.mean(-1, keepdims=True)) / (frames.std(-1, ddof=1, keepdims=True) + 1e-6)
    frames = frames * weights["bn2.alpha"] + weights["bn2.bias"]
    np.testing.assert_allclose(y["features/frames"], frames, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(y["output"], axis=-1), 1, atol=1e-5)
    assert outputs["logits"].shape == (None, 5)


def test_refusals(model, inputs):
    with pytest.raises(ValueError, match="`num_heads` must divide `dim`, 128; it is 3"):
        ActionTransformerConfig(num_heads=3)
    with pytest.raises(ValueError, match="`dims` must be the widths of 7 blocks; it is of 9"):
        ActionTransformerConfig(dims=SMALL.dims + SMALL.dims[:2])
    with pytest.raises(ValueError, match="boxes"):
        model({**inputs, "boxes": inputs["boxes"][..., :3]})
