"""LSTR: the published count; its numbers are compared by tests.parity.golden, its loss in tests/heads."""

import pytest

from keras_tfm.heads import LaneDetector
from keras_tfm.models import LSTR, LSTRConfig
from tests import contract
from tests.contract import Case
from tests.models import test_detr

FIELDS = {"num_queries": 3, "dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
SMALL = LSTRConfig((20, 24), 1, backbone_config=test_detr.RESNET, **FIELDS)

test_contract = contract.check_family(
    Case(
        "LaneDetector",
        lambda: LaneDetector(LSTR(SMALL)),
        test_detr.INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        without_effect=test_detr.WITHOUT_EFFECT,
    )
)


# As the authors' page has it: with two kinds of lanes, and less the norm of the stem, frozen in theirs.
@pytest.mark.parametrize(("size", "expected"), [("base", 765_787)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = LaneDetector(LSTR.from_size(size), num_classes=2)
    weights = [weight for weight in model.trainable_weights if not weight.path.startswith("stem/norm")]
    assert contract.num_parameters(weights) == expected
