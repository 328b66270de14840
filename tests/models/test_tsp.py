"""TSP-FCOS and TSP-RCNN: the published count, which places are chosen, padding, order, what is trained; their
numbers are compared by tests.parity.golden.
"""

import dataclasses

import numpy as np
import pytest

from keras_tfm import heads
from keras_tfm.models import (
    TSPFCOS,
    TSPRCNN,
    TSPFCOSConfig,
    TSPRCNNConfig,
    TSPRCNNHead,
    TSPRCNNHeadConfig,
)
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
    num_maps=2,
    num_coarse_levels=1,
    pyramid_dim=4,
    num_convolutions=1,
    **FIELDS,
)
RCNN = TSPRCNNConfig(
    (20, 24),
    1,
    backbone_config=test_detr.RESNET,
    num_queries=4,
    num_candidates=20,
    anchor_cells=2,
    region_size=2,
    region_dim=4,
    dim=16,
    num_layers=1,
    num_heads=2,
    intermediate_dim=8,
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
    Case(
        "TSPRCNN",
        lambda: TSPRCNN(RCNN),
        test_detr.INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
        chooses=True,  # few proposals: which, is learnt by the anchors alone
        deviation=0.1,  # of corrections, whose exponentials are sides
        left_loss=0.25,  # proposals are others than the target's until their scores are the same
    ),
)


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 20, 24, 1)).astype("float32")


# zoo2: the encoder alone, of six blocks and a norm.
def test_parameters_of_the_published_sizes(no_allocation):
    model = TSPRCNNHead.from_size("base")
    encoder = [w for w in model.weights if w.path.startswith(("encoder_block", "norm/"))]
    assert contract.num_parameters(encoder) == 18_915_328
    projection = [w for w in model.weights if w.path.startswith("region_projection")]
    assert contract.num_parameters(projection) == 6_423_040
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


def test_boxes_of_cells_are_parts_of_the_image_and_levels_have_their_ranges():
    """An image of 20 x 16 pixels on a canvas of 20 x 24; strides of 4, 8 and 16 pixels."""
    model = TSPFCOS(SMALL)
    randomise(model, 1)
    shown = np.ones((2, 20, 24), bool)
    shown[:, :, 16:] = False
    outputs = {key: np.asarray(x) for key, x in model({"images": draw(), "pixel_mask": shown}).items()}
    centres, distances, sides = outputs["centres"], outputs["distances"], [16, 20, 16, 20]
    corners = np.concatenate([centres - distances[..., :2], centres + distances[..., 2:]], axis=-1) / sides
    np.testing.assert_allclose(heads.corners_of(outputs["boxes"]), corners, atol=1e-5)
    for cell, stride in ((0, 4), (30, 8), (39, 16)):
        least, most = outputs["dense_cells"][0, cell, 2:4], outputs["dense_cells"][0, cell, 4:]
        np.testing.assert_allclose(least * sides[:2], 4 * stride if stride > 4 else 0)
        assert (most > 1000).all() if stride == 16 else np.allclose(most * sides[:2], 8 * stride)


@pytest.fixture(scope="module")
def regions():
    made = heads.RegionSetDetector(TSPRCNN(RCNN), 2)
    randomise(made, 1)
    return made


def test_proposals_lie_apart_in_the_image_and_the_likeliest_first(regions):
    outputs = {key: np.asarray(x) for key, x in regions.backbone({"images": draw()}).items()}
    boxes, mask = outputs["proposals"], outputs["proposal_mask"]
    corners = np.asarray(heads.corners_of(boxes))
    mask = mask > 0
    assert mask.any() and (corners >= -1e-6).all() and (corners <= 1 + 1e-6).all()
    overlaps = np.asarray(heads.box_iou(boxes[:, :, None], boxes[:, None]))
    both = mask[:, :, None] & mask[:, None] & ~np.eye(4, dtype=bool)
    assert overlaps[both].max() <= 0.7
    is_image = (outputs["dense_proposals"][..., 2:] > 0).all(-1)
    likeliest = np.where(is_image, outputs["dense_logits"][..., 0], -np.inf).argmax(-1)
    np.testing.assert_allclose(boxes[:, 0], outputs["dense_proposals"][np.arange(2), likeliest])
    widths, heights = (outputs["dense_anchors"][0, :9, i] * side for i, side in ((2, 24), (3, 20)))
    np.testing.assert_allclose((widths * heights) ** 0.5, np.repeat([8, 10.0794, 12.6992], 3), rtol=1e-4)
    np.testing.assert_allclose(heights / widths, [0.5, 1, 2] * 3, rtol=1e-4)


def test_answers_of_one_class_that_overlap_say_nothing(regions):
    outputs = {key: np.asarray(x) for key, x in regions({"images": draw()}).items()}
    p = np.asarray(regions.probabilities(outputs["logits"]))
    says = p.max(-1) > 0
    pairs = says[:, :, None] & says[:, None] & (p.argmax(-1)[:, :, None] == p.argmax(-1)[:, None])
    overlaps = np.asarray(heads.box_iou(outputs["boxes"][:, :, None], outputs["boxes"][:, None]))
    assert says.any() and not (overlaps > 0.7)[pairs & ~np.eye(4, dtype=bool)].any()


@pytest.mark.parametrize("family", ["cells", "regions"])
def test_the_learner_computes_the_loss_of_what_is_answered(family, regions):
    """Outside training nothing is lifted or dropped: the boxes that learn are the boxes that are answered."""
    if family == "regions":
        model = regions
    else:
        model = heads.CellSetDetector(TSPFCOS(SMALL), 2)
        randomise(model, 1)
    objects = np.array([[[0, 0.5, 0.5, 0.4, 0.6], [-1, 0, 0, 0, 0]]] * 2, "float32")
    learner, loss = model.learner(), model.loss_of_training()
    predictions = np.asarray(learner({"images": draw(), "objects": objects}))
    queries, dense = loss.parts_of(predictions)
    outputs = model({"images": draw()})
    np.testing.assert_allclose(np.asarray(queries)[..., -4:], outputs["boxes"], atol=1e-5)
    assert dense.shape[1] == model.backbone.output["dense_logits"].shape[1]
    assert np.isfinite(float(loss(objects, predictions)))
    assert not {*map(id, learner.trainable_weights)} - {*map(id, model.trainable_weights)}


def test_true_cells_are_chosen_in_training():
    """All cells score alike, so that the first ones are chosen; and the object's own, which is not."""
    model = heads.CellSetDetector(TSPFCOS(SMALL), 2)
    head = model.get_layer("dense_class_head")
    head.kernel.assign(0 * head.kernel)
    learner, loss = model.learner(), model.loss_of_training()
    objects = np.array([[[0, 0.92, 0.9, 0.05, 0.05]]] * 2, "float32")  # around the centre of cell 29
    chosen = []
    for training in (False, True):
        rows = learner({"images": draw(), "objects": objects}, training=training)
        places = np.asarray(loss.places_of(loss.parts_of(np.asarray(rows))[0]))
        chosen.append(np.asarray(heads.cells_fit(places, objects[..., 1:]))[..., 0].any(-1).tolist())
    assert chosen == [[False, False], [True, True]]


def test_refusals():
    with pytest.raises(ValueError, match="`num_candidates` must be at least `num_queries`, 4; it is 3"):
        dataclasses.replace(RCNN, num_candidates=3)
    with pytest.raises(ValueError, match="`num_candidates` must be at most 351, the anchors of all levels"):
        TSPRCNN(dataclasses.replace(RCNN, num_candidates=400))
    with pytest.raises(ValueError, match="`num_classes` must be 2, as the backbone has them; it is 3"):
        heads.CellSetDetector(TSPFCOS(SMALL), 3)
    assert heads.detector_around(TSPFCOS(SMALL), 3).num_classes == 3
    with pytest.raises(ValueError, match="`num_groups` must be a divisor of `pyramid_dim`, 4; it is 3"):
        dataclasses.replace(SMALL, num_groups=3)
    with pytest.raises(ValueError, match="`num_maps` must be at most 2; it is 3"):
        TSPFCOS(dataclasses.replace(SMALL, num_maps=3))
    with pytest.raises(ValueError, match="`dim` must be a multiple of 16"):
        TSPRCNNHeadConfig(dim=24)
