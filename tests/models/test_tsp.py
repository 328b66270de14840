"""TSP-FCOS and TSP-RCNN's head: the published count, which cells are chosen, padding, order; their numbers
are compared by tests.parity.golden.
"""

import dataclasses
import math

import numpy as np
import pytest

from keras_tfm.models import TSPFCOS, TSPFCOSConfig, TSPRCNNHead, TSPRCNNHeadConfig
from tests import contract
from tests.contract import Case, floats, mask, randomise
from tests.models import test_detr

FIELDS = {"num_groups": 2, "dim": 8, "num_layers": 1, "num_heads": 2, "intermediate_dim": 8}
SMALL = TSPFCOSConfig(
    (20, 24),
    1,
    backbone_config=test_detr.RESNET,
    num_classes=2,
    num_queries=4,
    num_coarse_levels=1,
    pyramid_dim=4,
    num_convolutions=1,
    **FIELDS,
)
HEAD = TSPRCNNHeadConfig(2, 3, 16, num_layers=2, num_heads=2, intermediate_dim=8)
REGIONS = {"regions": floats("S", 2, 2, 3), "boxes": floats("S", 4), "region_mask": mask("S")}

test_contract = contract.check_family(
    Case(
        "TSPFCOS",
        lambda: TSPFCOS(dataclasses.replace(SMALL, num_queries=2)),
        test_detr.INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        chooses=True,  # few cells: which, is learnt by the dense scores alone
    ),
    Case("TSPRCNNHead", lambda: TSPRCNNHead(HEAD), REGIONS, attends=True),
)


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 20, 24, 1)).astype("float32")


# zoo2: the encoder alone, of six blocks and a norm.
def test_parameters_of_the_published_sizes(no_allocation):
    model = TSPRCNNHead.from_size("base")
    encoder = [w for w in model.weights if w.path.startswith(("encoder_block", "norm/"))]
    assert sum(math.prod(weight.shape) for weight in encoder) == 18_915_328
    projection = [w for w in model.weights if w.path.startswith("region_projection")]
    assert sum(math.prod(weight.shape) for weight in projection) == 6_423_040
    fcos = TSPFCOSConfig()
    sizes = ("dim", "num_layers", "num_heads", "intermediate_dim")
    assert [getattr(fcos, name) for name in sizes] == [getattr(model.config, name) for name in sizes]


def test_the_cells_of_the_highest_scores_are_chosen():
    model = TSPFCOS(SMALL)
    randomise(model, 1)
    outputs = {name: np.asarray(x) for name, x in model({"images": draw()}).items()}
    levels = [(5, 6, 4), (3, 3, 8), (2, 2, 16)]  # rows, columns, stride
    places = [
        (x * stride + stride // 2, y * stride + stride // 2, stride)
        for rows, columns, stride in levels
        for y in range(rows)
        for x in range(columns)
    ]
    assert outputs["dense_logits"].shape == (2, len(places), 2)
    best = np.argsort(-outputs["dense_logits"].max(-1), axis=-1)[:, :4]
    expected = np.array(places)[best]
    np.testing.assert_array_equal(outputs["centres"], expected[..., :2])
    np.testing.assert_array_equal(outputs["strides"], expected[..., 2:])
    assert outputs["logits"].shape == (2, 4, 2) and outputs["centredness"].shape == (2, 4, 1)
    assert outputs["distances"].shape == (2, 4, 4) and np.any(outputs["distances"])


def test_all_cells_may_be_chosen_and_no_more():
    model = TSPFCOS(dataclasses.replace(SMALL, num_queries=43))
    centres = np.asarray(model({"images": draw()})["centres"])
    assert len({(*centre,) for centre in centres[0]}) == 43
    with pytest.raises(ValueError, match="`num_queries` must be at most 43, the cells of all levels"):
        TSPFCOS(dataclasses.replace(SMALL, num_queries=44))


def test_proposals_are_a_set_and_padding_changes_nothing():
    model = TSPRCNNHead(HEAD)
    randomise(model, 1)
    rng = np.random.default_rng(0)
    inputs = {"regions": rng.normal(size=(1, 5, 2, 2, 3)), "boxes": rng.uniform(0.1, 0.9, (1, 5, 4))}
    inputs = {name: x.astype("float32") for name, x in inputs.items()}
    expected = np.asarray(model(inputs)["sequence_output"])
    order = [3, 0, 4, 2, 1]
    mixed = model({name: x[:, order] for name, x in inputs.items()})["sequence_output"]
    np.testing.assert_allclose(mixed, expected[:, order], atol=1e-5)
    padded = {name: np.concatenate([x, x[:, :2] + 1], axis=1) for name, x in inputs.items()}
    padded["region_mask"] = np.arange(7)[None] < 5
    np.testing.assert_allclose(model(padded)["sequence_output"][:, :5], expected, atol=1e-5)
    moved = model({**inputs, "boxes": inputs["boxes"][:, ::-1]})["sequence_output"]
    assert np.abs(moved - expected).max() > 0.01


def test_refusals():
    with pytest.raises(ValueError, match="`num_groups` must be a divisor of `pyramid_dim`, 4; it is 3"):
        dataclasses.replace(SMALL, num_groups=3)
    with pytest.raises(ValueError, match="`dim` must be a multiple of 16"):
        TSPRCNNHeadConfig(dim=24)
