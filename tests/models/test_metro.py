"""METRO: the count of its encoders, what each token sees, its masking; its numbers are compared by
tests.parity.golden.
"""

import math

import numpy as np
import pytest

from keras_tfm.models import METRO, METROConfig
from keras_tfm.models.pose.metro import VertexMasking
from tests import contract
from tests.contract import Case, floats, randomise

BACKBONE = {"stem_dim": 4, "dims": (6,), "depths": (1,), "block": "basic"}
SMALL = METROConfig(
    (12, 16),
    1,
    "ResNet",
    BACKBONE,
    False,
    2,
    3,
    (8, 4),
    (6,),
    (10, 8),
    1,
    2,
    7,
    (4, 9),
    dropout=0.0,
    epsilon=1e-6,
)
INPUTS = {"images": floats(12, 16, 1), "template": floats(5, 3)}

test_contract = contract.check_family(
    Case("METRO", lambda: METRO(SMALL), INPUTS, attends=True, convolves=True)
)


# The three encoders, without word embeddings and poolers, which nothing uses: of the body as in zoo2, of the
# hand by the same formula. Camera: `cam_param_fc2` of the authors' modeling_metro.py.
@pytest.mark.parametrize(
    ("size", "expected", "camera"), [("body", 57_423_238, (431, 250)), ("hand", 58_347_398, (216, 150))]
)
def test_parameters_of_the_published_sizes(size, expected, camera, no_allocation):
    model = METRO.from_size(size)
    assert model.get_layer("camera_hidden").kernel.shape == camera
    weights = [weight for weight in model.weights if weight.path.startswith("encoder_")]
    assert sum(math.prod(weight.shape) for weight in weights if "seed" not in weight.path) == expected


def draw(seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(2, *spec.shape)).astype("float32") for name, spec in INPUTS.items()}


@pytest.fixture(scope="module")
def model():
    model = METRO(SMALL)
    randomise(model, 1)
    return model


def test_outputs_are_joints_vertices_and_a_finer_mesh(model):
    outputs = model(draw())
    shapes = {"sequence_output": (2, 5, 3), "mesh_output": (2, 9, 3), "camera": (2, 3)}
    assert {name: x.shape for name, x in outputs.items()} == shapes
    first, second = model.get_layer("mesh_0"), model.get_layer("mesh_1")
    vertices = np.asarray(outputs["sequence_output"])[:, 2:].swapaxes(1, 2)
    expected = np.asarray(second(first(vertices))).swapaxes(1, 2)
    np.testing.assert_allclose(outputs["mesh_output"], expected, rtol=1e-4, atol=1e-5)


def test_image_and_template_count_for_every_point(model):
    inputs = draw()
    expected = np.asarray(model(inputs)["sequence_output"])
    for name in INPUTS:
        changed = model({**inputs, name: inputs[name] + 1})["sequence_output"]
        assert (np.abs(np.asarray(changed) - expected).max(-1) > 1e-4).all()


def test_masking_hides_whole_tokens_in_training_alone():
    layer, x = VertexMasking(0.3), np.random.default_rng(0).normal(size=(200, 50, 4)).astype("float32")
    np.testing.assert_array_equal(layer(x), x)
    y = np.asarray(layer(x, training=True))
    hidden = (y == np.float32(0.01)).all(-1)
    np.testing.assert_array_equal(y[~hidden], x[~hidden])
    assert 0.12 < hidden.mean() < 0.18 and hidden.mean(1).max() < 0.6


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"output_dims": (8,)}, r"`output_dims` must be 2 widths; it is \(8,\)"),
        ({"num_heads": 3}, "`num_heads` must be a divisor of all of"),
        ({"max_length": 100}, "`max_length` must be at least the number of tokens, 445; it is 100"),
    ],
)
def test_refusals(fields, message):
    with pytest.raises(ValueError, match=message):
        METROConfig(**fields)
