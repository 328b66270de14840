"""TrTr: the published counts, what sees what; its head and loss are in tests/heads."""

import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.models import TrTr, TrTrConfig
from tests import contract
from tests.contract import Case, randomise
from tests.models import test_transt

SMALL = TrTrConfig((20, 24), 1, template_size=(12, 16), **test_transt.FIELDS)


def detector():
    return heads.HeatmapDetector(TrTr(SMALL))


test_contract = contract.check_family(
    Case(
        "HeatmapDetector",
        detector,
        test_transt.INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
    )
)


# zoo2: of the Transformer.
@pytest.mark.parametrize(("size", "expected"), [("50", 2_894_336)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = TrTr.from_size(size)
    weights = [weight for weight in model.weights if weight.path.startswith(("encoder_", "decoder_"))]
    assert contract.num_parameters(weights) == expected
    assert model.grid == (32, 32)


def test_cells_and_boxes():
    """A cell's centre is its place in the map and what the head adds, from 0 to 1 of a cell."""
    model = detector()
    randomise(model, 1)
    inputs = test_transt.draw()
    outputs, predictions = model(inputs), np.asarray(model.learner()(inputs))
    np.testing.assert_allclose(outputs["scores"], 1 / (1 + np.exp(-predictions[..., 0])), atol=1e-6)
    boxes = np.asarray(outputs["boxes"]).reshape(2, 5, 6, 4)
    cells = boxes[..., :2] * [6, 5]
    rows, columns = np.indices((5, 6))
    offsets = predictions[..., 1:3].reshape(2, 5, 6, 2)
    np.testing.assert_allclose(cells[..., 0] - columns, offsets[..., 0], atol=1e-5)
    np.testing.assert_allclose(cells[..., 1] - rows, offsets[..., 1], atol=1e-5)
    np.testing.assert_array_equal(boxes[..., 2:].reshape(2, 30, 2), predictions[..., 3:])


def test_the_template_is_encoded_alone():
    model = TrTr(SMALL)
    randomise(model, 1)
    inputs = test_transt.draw()
    one, other = (model(inputs | {"images": inputs["images"] + change}) for change in (0, 1))
    np.testing.assert_array_equal(one["encoder_sequence_output"], other["encoder_sequence_output"])
    assert np.abs(np.asarray(one["sequence_output"]) - np.asarray(other["sequence_output"])).max() > 1e-3
