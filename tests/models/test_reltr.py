"""RelTR: the published count, its maps, padding; its numbers are compared by tests.parity.golden."""

import numpy as np
import pytest

from keras_tfm.heads import RelationDetector
from keras_tfm.models import RelTR, RelTRConfig
from tests import contract
from tests.contract import Case, randomise
from tests.models import test_detr

FIELDS = {"num_queries": 3, "num_triplets": 4, "dim": 8, "num_heads": 2, "intermediate_dim": 8}
SMALL = RelTRConfig(
    (20, 24), 1, backbone_config=test_detr.RESNET, num_layers=1, num_decoder_layers=2, **FIELDS
)
SIZES = {"map_filters": (3, 2), "map_widths": (5, 4)}


def detector(config=SMALL):
    return RelationDetector(RelTR(config), 2, 3, **SIZES)


test_contract = contract.check_family(
    Case(
        "RelationDetector",
        detector,
        test_detr.INPUTS,
        attends=True,
        convolves=True,
        mixes_padding=True,  # the backbone's convolutions do
    )
)


def draw(seed=0):
    return np.random.default_rng(seed).normal(size=(2, 20, 24, 1)).astype("float32")


@pytest.fixture(scope="module")
def model():
    drawn = detector()
    randomise(drawn, 1)
    return drawn


# 150 classes of entities and one that is not used, 51 of predicates likewise; a frozen norm has no weights.
@pytest.mark.parametrize(("size", "expected"), [("50", 63_901_928)])
def test_parameters_of_the_published_sizes(size, expected, no_allocation):
    model = RelationDetector(RelTR.from_size(size), 151, 51)
    assert contract.num_parameters(model.trainable_weights) == expected


def test_maps_are_where_subjects_and_objects_look(model):
    """Weights of cells that are no padding, 3 x 3 cells of 20 x 24 pixels: one column is hidden."""
    shown = np.ones((2, 20, 24), bool)
    shown[1, :, 16:] = False
    outputs = model.backbone({"images": draw(), "pixel_mask": shown})
    maps = np.asarray(outputs["triplet_maps"])
    assert maps.shape == (2, 2, 4, 2, 3, 3)
    np.testing.assert_allclose(maps.sum((-2, -1)), 1, atol=1e-5)
    assert not np.any(maps[1, ..., 2]) and np.all(maps[0, ..., 2] > 0)
    assert np.abs(maps[:, :, :, 0] - maps[:, :, :, 1]).max() > 0.01
    assert outputs["triplet_outputs"].shape == (2, 2, 4, 2, 8)


def test_entities_do_not_see_triplets_and_subjects_see_entities(model):
    inputs = {"images": draw(), "pixel_mask": np.ones((2, 20, 24), bool)}
    before, table = model(inputs), model.backbone.get_layer("triplet_queries").table
    value = np.asarray(table)
    table.assign(value + 1)
    after = model(inputs)
    table.assign(value)
    np.testing.assert_array_equal(before["logits"], after["logits"])
    assert np.abs(before["predicate_logits"] - after["predicate_logits"]).max() > 1e-4
    table = model.backbone.get_layer("decoder_queries").table
    value = np.asarray(table)
    table.assign(value + 1)
    after = model(inputs)
    table.assign(value)
    assert np.abs(before["subject_logits"] - after["subject_logits"]).max() > 1e-4


def test_sides_change_places_with_their_queries(model):
    """With equal roles and blocks of both sides, exchanged tables of subjects and objects exchange all."""
    backbone = RelTR(SMALL)
    backbone.set_weights(model.backbone.get_weights())
    roles = backbone.get_layer("triplet_roles").table
    roles.assign(np.zeros(roles.shape))
    for i in range(2):
        block = backbone.get_layer(f"triplet_block_{i}")
        block.object_block.set_weights(block.subject_block.get_weights())
    inputs = {"images": draw(), "pixel_mask": np.ones((2, 20, 24), bool)}
    before = np.asarray(backbone(inputs)["triplet_outputs"])
    table = backbone.get_layer("triplet_queries").table
    position, subject, object_ = np.split(np.asarray(table), 3, axis=-1)
    table.assign(np.concatenate([position, object_, subject], axis=-1))
    after = np.asarray(backbone(inputs)["triplet_outputs"])
    np.testing.assert_allclose(before[..., ::-1, :], after, atol=1e-5)
    assert np.abs(before - after).max() > 0.01


def test_fresh_states_copy_what_they_attend_to():
    """Of a context that is the same in all cells, attention gives just that, whatever the weights."""
    backbone, value = RelTR(SMALL), np.random.default_rng(0).normal(size=(1, 1, 8)).astype("float32")
    context, x = np.repeat(value, 9, axis=1), np.ones((1, 3, 8), "float32")
    last = backbone.get_layer("triplet_block_1")
    for block, names in (
        (backbone.get_layer("decoder_block_0"), ["context_attention"]),
        (last.subject_block, ["context_attention", "entity_attention"]),
        (last.object_block, ["context_attention", "entity_attention"]),
    ):
        for name in names:
            seen = block.parts[name].branch(x, context=context, context_position=context)
            np.testing.assert_allclose(seen, np.repeat(value, 3, axis=1), atol=1e-5)


def test_the_learner_reads_cells_as_entities_beside_their_centres(model):
    shown = np.ones((2, 20, 24), bool)
    shown[1, :, 12:] = False
    inputs = {"images": draw(), "pixel_mask": shown}
    rows = np.asarray(model.learner()(inputs))
    assert model.loss_of_training().num_cells == 9
    cells = rows[..., -9 * 9 :].reshape(2, 2, 9, 9)
    np.testing.assert_array_equal(cells[:, 0], cells[:, 1])
    context = model.backbone(inputs)["encoder_sequence_output"]
    np.testing.assert_allclose(cells[:, 0, :, :3], model.get_layer("class_head")(context), atol=1e-5)
    np.testing.assert_allclose(cells[:, 0, :, 3:7], model.get_layer("box_head")(context), atol=1e-5)
    np.testing.assert_allclose(cells[0, 0, 5, 7:], [2.5 / 3, 1.5 / 3], rtol=1e-6)
    np.testing.assert_allclose(cells[1, 0, 5, 7:], [2 * 2.5 / 3, 1.5 / 3], rtol=1e-6)  # in padding: above 1


def test_refusals():
    with pytest.raises(ValueError, match="`num_predicates` must be at least 1; it is 0"):
        RelationDetector(RelTR(SMALL), 2, 0)
    with pytest.raises(ValueError, match="`num_triplets`"):
        RelTRConfig(num_triplets=0)
