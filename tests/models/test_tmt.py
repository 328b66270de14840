"""TMT: its weights, what its label maps do, its normalisation."""

import numpy as np
import pytest

from keras_tfm.models import TMT, TMTConfig
from keras_tfm.models.tracking.tmt import CosineAttention, instance_norm
from tests import contract
from tests.contract import Case, floats, randomise

SMALL = TMTConfig(
    (20, 24),
    1,
    backbone_config={"stem_dim": 4, "dims": (8, 8), "depths": (1, 1), "block": "basic", "last_stride": 1},
    num_frames=2,
    dim=8,
    key_dim=4,
    temperature=3.0,
)
INPUTS = {"template_images": floats(2, 20, 24, 1), "images": floats(20, 24, 1), "labels": floats(2, 5, 6)}

test_contract = contract.check_family(
    Case("TMT", lambda: TMT(SMALL), INPUTS, attends=True, convolves=True),
)


# zoo2: 656,640 with two projections of values that nothing uses.
@pytest.mark.parametrize(("size", "expected"), [("50", 656_640)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = TMT.from_size(size)
    blocks = [weight for weight in model.weights if "_block/" in weight.path and "stage" not in weight.path]
    assert contract.num_parameters(blocks) + 2 * 262_656 == expected
    assert model.grid == (22, 22)


@pytest.fixture(scope="module")
def model():
    drawn = TMT(SMALL)
    randomise(drawn, 1)
    return drawn


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "template_images": rng.normal(size=(2, 2, 20, 24, 1)).astype("float32"),
        "images": rng.normal(size=(2, 20, 24, 1)).astype("float32"),
        "labels": rng.uniform(size=(2, 2, 5, 6)).astype("float32"),
    }


def test_outputs(model):
    outputs = model(draw())
    assert {name: x.shape for name, x in outputs.items()} == {
        "sequence_output": (2, 30, 8),
        "template_sequence_output": (2, 60, 8),
        "encoder_sequence_output": (2, 60, 8),
    }


def test_labels_reach_the_decoder_alone(model):
    inputs = draw()
    one, other = model(inputs), model(inputs | {"labels": 1 - inputs["labels"]})
    np.testing.assert_array_equal(one["encoder_sequence_output"], other["encoder_sequence_output"])
    for name in ("sequence_output", "template_sequence_output"):
        assert np.abs(np.asarray(one[name]) - np.asarray(other[name])).max() > 1e-4


def test_a_label_goes_to_the_cell_that_looks_alike():
    """zoo2's check: with one cell labelled, the labels received are highest at its twin."""
    layer = CosineAttention(16)
    cells = np.random.default_rng(0).normal(size=(1, 30, 16)).astype("float32")
    order = np.random.default_rng(1).permutation(30)
    layer(cells)
    for labelled in (0, 7, 29):
        labels = np.eye(30, dtype="float32")[None, :, labelled, None]
        received = np.asarray(layer(cells[:, order] * 2, cells, labels))[0, :, 0]  # whatever the length
        assert order[received.argmax()] == labelled and received.max() > 0.9


def test_frames_are_normalised_each_by_itself():
    x = np.random.default_rng(0).normal(size=(2, 12, 8)).astype("float32")
    x[:, 6:] *= 100
    y = np.asarray(instance_norm(x, 6)).reshape(2, 2, 48)
    np.testing.assert_allclose((y**2).mean(-1), 1 / (16 * 8), rtol=1e-4)
    np.testing.assert_allclose(instance_norm(7 * x, 6), instance_norm(x, 6), rtol=1e-4)


def test_the_order_of_the_templates_changes_nothing(model):
    inputs = draw()
    turned = {name: inputs[name][:, ::-1] for name in ("template_images", "labels")}
    one, other = model(inputs)["sequence_output"], model(inputs | turned)["sequence_output"]
    np.testing.assert_allclose(one, other, atol=1e-5)
