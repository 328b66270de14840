"""RelTR's set loss by hand: each term, triplets matched as wholes, ties, spared sides; proposals of pairs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.heads import RelationSetLoss, SetPredictionLoss, best_pairs, pair_overlaps
from keras_tfm.heads.relation_loss import triplets_of
from keras_tfm.heads.set_prediction import smallest_of

LEFT, RIGHT = [0.25, 0.5, 0.2, 0.2], [0.75, 0.5, 0.2, 0.2]
NOWHERE = [0.5, 0.1, 0.1, 0.1]
SURE = 40.0
NONE = [-1.0] + [0.0] * 4


def side(label, box, of=3):
    """Sure logits of `of` classes, the last of them none, and a box."""
    return [*(SURE * (2 * np.eye(of)[label] - 1)), *box]


def packed(entities, triplets, num_predicates=2):
    """Predictions (1, 1, .) of one block: entities, and (subject, object, predicate) of triplets."""
    subjects, others, predicates = zip(*triplets, strict=True)
    logits = [SURE * (2 * np.eye(num_predicates + 1)[each] - 1) for each in predicates]
    rows = [np.concatenate(part) for part in (entities, subjects, others, logits)]
    return np.concatenate(rows)[None, None].astype("float32")


# Two objects of the classes 0 and 1; the first is in the relation 0 to the second; row 2 is padding.
TARGETS = np.array([[[0, *LEFT, 0, 1, 0], [1, *RIGHT, -1, -1, -1], [*NONE, -1, -1, -1]]], "float32")
ENTITIES = [side(0, LEFT), side(1, RIGHT), side(2, NOWHERE)]
RIGHT_TRIPLET = (side(0, LEFT), side(1, RIGHT), 0)
NO_TRIPLET = (side(2, NOWHERE), side(2, NOWHERE), 2)


def loss_of(**options):
    return RelationSetLoss(num_classes=2, num_predicates=2, num_queries=3, **options)


def test_perfect_predictions_in_any_order():
    for triplets in ([RIGHT_TRIPLET, NO_TRIPLET], [NO_TRIPLET, RIGHT_TRIPLET]):
        for entities in (ENTITIES, ENTITIES[::-1]):
            assert float(loss_of()(TARGETS, packed(entities, triplets))) == pytest.approx(0, abs=1e-5)


def test_each_term_by_hand():
    """One wrong thing at a time; its entropy is 2 x 40. A query without a target weighs 0.1."""
    weight = 2.1 + 1.1 + 1.1  # of classes: entities, subjects, objects
    predicates = 1 + 0.1
    wrong = {
        # The class of an entity, and of a subject, which weighs half.
        "entity": ([side(1, LEFT), *ENTITIES[1:]], [RIGHT_TRIPLET, NO_TRIPLET], 80 / weight),
        "subject": (ENTITIES, [(side(1, LEFT), *RIGHT_TRIPLET[1:]), NO_TRIPLET], 0.5 * 80 / weight),
        # A predicate, of the triplet and of none.
        "predicate": (ENTITIES, [(*RIGHT_TRIPLET[:2], 1), NO_TRIPLET], 80 / predicates),
        "no relation": (ENTITIES, [RIGHT_TRIPLET, (*NO_TRIPLET[:2], 1)], 0.1 * 80 / predicates),
        # A box, half of its width to the right, GIoU 1/3, over two objects and a relation.
        "box": (
            ENTITIES,
            [(side(0, LEFT), side(1, [0.85, *RIGHT[1:]]), 0), NO_TRIPLET],
            (5 * 0.1 + 2 * 2 / 3) / 3,
        ),
    }
    for name, (entities, triplets, expected) in wrong.items():
        found = float(loss_of()(TARGETS, packed(entities, triplets)))
        assert found == pytest.approx(expected, rel=1e-4), name
    weighed = loss_of(weights=(2.0, 1.0, 1.0), predicate_weights=(3.0, 0.5), no_object=0.5)
    entities, triplets, _ = wrong["entity"]
    expected = 2 * 80 / (2.5 + 1.5 + 1.5)
    assert float(weighed(TARGETS, packed(entities, triplets))) == pytest.approx(expected, rel=1e-4)
    entities, triplets, _ = wrong["no relation"]
    expected = 3 * 0.5 * 80 / 1.5
    assert float(weighed(TARGETS, packed(entities, triplets))) == pytest.approx(expected, rel=1e-4)


def test_a_side_that_finds_an_object_is_not_taught_that_nothing_is_there():
    """An unmatched triplet whose subject is the right object, there; or elsewhere, or of another class."""
    weight = 2.1 + 1.1 + 1.1
    for label, box, expected in (
        (1, RIGHT, 0.0),
        (1, [0.78, *RIGHT[1:]], 0.0),  # 17/23 of both boxes is common to them
        (1, [0.80, *RIGHT[1:]], 0.5 * 0.1 * 80 / weight),  # 3/5
        (0, RIGHT, 0.5 * 0.1 * 80 / weight),
    ):
        triplets = [RIGHT_TRIPLET, (side(label, box), side(2, NOWHERE), 2)]
        found = float(loss_of()(TARGETS, packed(ENTITIES, triplets)))
        assert found == pytest.approx(expected, abs=1e-4), (label, box)
    always = loss_of(good_overlap=1.01)(TARGETS, packed(ENTITIES, [RIGHT_TRIPLET, (*RIGHT_TRIPLET[:2], 2)]))
    assert float(always) == pytest.approx(2 * 0.5 * 0.1 * 80 / weight, rel=1e-4)


def test_ties_of_boxes_and_classes_are_decided_by_predicates():
    """Two relations of the same two objects: equal subjects and objects, and the predicates 1 and 0."""
    targets = TARGETS.copy()
    targets[0, 1, 5:] = [0, 1, 1]
    ends = RIGHT_TRIPLET[:2]
    predictions = packed(ENTITIES, [(*ends, 1), (*ends, 0)])
    assert float(loss_of()(targets, predictions)) == pytest.approx(0, abs=1e-5)
    ignored = loss_of(predicate_weights=(1.0, 0.0))  # a tie: either matching costs the same
    entities, sides, predicates = ignored.parts_of(predictions)
    triplets = triplets_of(targets)
    _, of_triplet = ignored.matches(targets[..., :5], triplets, entities, sides, predicates)
    assert sorted(of_triplet.numpy()[0].tolist()) == [0, 1]


def test_a_triplet_is_matched_as_a_whole():
    """The first triplet has the better subject, and a wrong object; the second has both, nearly."""
    near, far = [0.26, *LEFT[1:]], [0.45, 0.2, 0.2, 0.2]
    triplets = [(side(0, LEFT), side(1, far), 0), (side(0, near), side(1, RIGHT), 0)]
    loss, predictions = loss_of(), packed(ENTITIES, triplets)
    entities, sides, predicates = loss.parts_of(predictions)
    _, of_triplet = loss.matches(TARGETS[..., :5], triplets_of(TARGETS), entities, sides, predicates)
    np.testing.assert_array_equal(of_triplet, [[-1, 0]])


def test_relations_to_padding_are_none():
    targets = TARGETS.copy()
    targets[0, 1, 5:] = [1, 2, 1]  # row 2 is padding, as what a crop has cut off
    triplets = np.asarray(triplets_of(targets))[0]
    assert triplets[:, -1].tolist() == [0, -1, -1]
    np.testing.assert_allclose(triplets[0], [0, *LEFT, 1, *RIGHT, 0])
    predictions = packed(ENTITIES, [RIGHT_TRIPLET, NO_TRIPLET])
    assert float(loss_of()(targets, predictions)) == pytest.approx(0, abs=1e-5)


def test_cells_learn_the_objects_around_them_by_hand():
    """Cells in both objects, beside them and beside the image; the loss of the blocks is 0."""
    centres = [[0.25, 0.5], [0.72, 0.5], [0.5, 0.9], [0.25, 1.0]]
    right = [side(0, LEFT), side(1, RIGHT), side(2, NOWHERE), side(0, RIGHT)]
    block = packed(ENTITIES, [RIGHT_TRIPLET, NO_TRIPLET])
    weight = 1 + 1 + 0.1  # the last one has none
    for row, wrong, expected in (
        (3, None, 0.0),
        (0, side(1, LEFT), 80 / weight),
        (2, side(0, NOWHERE), 0.1 * 80 / weight),
        (1, side(1, [0.85, *RIGHT[1:]]), (5 * 0.1 + 2 * 2 / 3) / 2),
    ):
        cells = [[*(wrong if wrong and i == row else cell), *centres[i]] for i, cell in enumerate(right)]
        row_of_cells = np.array(cells, "float32").reshape(1, 1, -1)
        predictions = np.concatenate([block, row_of_cells], axis=-1)
        for num_blocks in (1, 2):
            found = float(loss_of(num_cells=4)(TARGETS, np.repeat(predictions, num_blocks, axis=1)))
            assert found == pytest.approx(num_blocks * expected, rel=1e-4, abs=1e-5), row
    with pytest.raises(ValueError, match="3 queries and 5 cells with 2 classes"):
        loss_of(num_cells=5)(TARGETS, predictions)


def test_the_smallest_object_that_fits():
    objects = np.array([[[0, 0.5, 0.5, 0.8, 0.8], [1, 0.3, 0.5, 0.2, 0.2], [-1, 0.7, 0.5, 0.1, 0.1]]])
    fits = np.array([[[True, True, True], [True, False, True], [False, False, True]]])
    np.testing.assert_array_equal(smallest_of(fits, objects), [[1, 0, -1]])


def test_entities_alone_learn_as_those_of_detr_but_for_the_cost_of_classes():
    rng = np.random.default_rng(0)
    targets = np.full((2, 3, 8), -1.0, "float32")
    targets[:, :2, 0], targets[:, :2, 1:5] = rng.integers(0, 2, (2, 2)), rng.uniform(0.1, 0.4, (2, 2, 4))
    logits, boxes = rng.normal(size=(2, 2, 4, 3)), rng.uniform(0.1, 0.4, (2, 2, 4, 4))
    entities = np.concatenate([logits, boxes], axis=-1).astype("float32")
    loss = RelationSetLoss(2, 2, num_queries=4, costs=(0.0, 5.0, 2.0))
    alone = SetPredictionLoss(costs=(0.0, 5.0, 2.0)).means(targets[..., :5], entities)
    nothing = np.concatenate([SURE * np.array([-1, -1, 1]), NOWHERE, SURE * np.array([-1, -1, 1]), NOWHERE])
    nothing = np.concatenate([nothing, SURE * np.array([-1, -1, 1])]).astype("float32")
    rows = np.concatenate([entities.reshape(2, 2, -1), np.broadcast_to(nothing, (2, 2, 17))], axis=-1)
    (total, count), (boxes, num_targets), (of_predicates, _) = loss.means(targets, rows)
    np.testing.assert_allclose(total, alone[0][0], rtol=1e-5)
    np.testing.assert_allclose(count, alone[0][1] + 2 * 2 * 0.1, rtol=1e-5)
    np.testing.assert_allclose((boxes, num_targets), alone[1], rtol=1e-5)
    assert float(of_predicates) == 0


def test_blocks_add_up_and_nothing_at_all_is_finite():
    rng = np.random.default_rng(0)
    loss = loss_of()
    width = 3 * 7 + 4 * (7 + 7 + 3)
    predictions = rng.uniform(0.1, 0.9, (2, 3, width)).astype("float32")
    targets = np.concatenate([TARGETS, TARGETS])
    parts = [float(loss(targets, predictions[:, [i]])) for i in range(3)]
    assert float(loss(targets, predictions)) == pytest.approx(sum(parts), rel=1e-5)
    variable = tf.Variable(predictions)
    with tf.GradientTape() as tape:
        nothing = loss(np.full((2, 1, 8), -1.0, "float32"), variable)
    assert np.isfinite(float(nothing)) and np.isfinite(tape.gradient(nothing, variable)).all()
    with pytest.raises(ValueError, match="`predictions` must hold 3 queries and 0 cells with 2 classes"):
        loss(targets, predictions[..., :-1])
    clone = keras.losses.deserialize(keras.losses.serialize(loss_of(good_overlap=0.5)))
    assert clone.get_config()["good_overlap"] == 0.5


@pytest.mark.slow
def test_xla_compiles_the_loss_and_the_choice_of_pairs():
    rng = np.random.default_rng(0)
    predictions = rng.uniform(0.1, 0.9, (2, 3, 3 * 7 + 4 * 17)).astype("float32")
    targets = np.concatenate([TARGETS, TARGETS])
    compiled = tf.function(loss_of(), jit_compile=True)(targets, predictions)
    assert float(compiled) == pytest.approx(float(loss_of()(targets, predictions)), rel=1e-5)
    related, boxes = rng.random((2, 5, 5), "float32"), rng.uniform(0.1, 0.9, (2, 5, 4)).astype("float32")
    for ours, expected in zip(
        tf.function(best_pairs, jit_compile=True)(related, boxes, 9),
        best_pairs(related, boxes, 9),
        strict=True,
    ):
        np.testing.assert_allclose(ours, expected, rtol=1e-5)


def test_overlaps_of_pairs_by_hand():
    # Squares of 0.2: at the left; half of it to the right; far away.
    boxes = np.array([[[0.2, 0.5, 0.2, 0.2], [0.3, 0.5, 0.2, 0.2], [0.8, 0.5, 0.2, 0.2]]], "float32")
    pairs = np.array([[[0, 2], [1, 2], [2, 0], [0, 0]]])
    half, whole = 0.02 / (0.06 + 0.04), 1.0  # common to the subjects alone: 0.02 of 0.06, with 0.04 of 0.04
    half += 0.04 / (0.06 + 0.04)
    third = 0.04 / (0.04 + 0.08)
    row = [whole, half, 0.0, third]
    np.testing.assert_allclose(np.asarray(pair_overlaps(boxes, pairs))[0, 0], row, rtol=1e-5)
    empty = np.zeros((1, 3, 4), "float32")
    np.testing.assert_array_equal(pair_overlaps(empty, pairs), np.zeros((1, 4, 4)))


def test_pairs_over_better_ones_are_dropped():
    boxes = np.array([[[0.2, 0.5, 0.2, 0.2], [0.21, 0.5, 0.2, 0.2], [0.8, 0.5, 0.2, 0.2]]] * 2, "float32")
    related = np.zeros((2, 3, 3), "float32")
    related[0, 0, 2], related[0, 1, 2], related[0, 2, 1] = 0.9, 0.8, 0.3  # (1, 2) lies over (0, 2)
    related[1, 1, 0] = 0.5
    pairs, scores = best_pairs(related, boxes, count=4)
    np.testing.assert_array_equal(pairs[0], [[0, 2], [2, 1], [-1, -1], [-1, -1]])
    np.testing.assert_array_equal(pairs[1], [[1, 0], [-1, -1], [-1, -1], [-1, -1]])
    np.testing.assert_allclose(scores, [[0.9, 0.3, 0, 0], [0.5, 0, 0, 0]], rtol=1e-6)
    pairs, _ = best_pairs(related, boxes, count=2, most_overlap=1.0)
    np.testing.assert_array_equal(pairs[0], [[0, 2], [1, 2]])
    # A pair that was dropped covers no other: 0 covers 1, and 1 would cover 2.
    steps = np.array([[[x, 0.5, 0.2, 0.2] for x in (0.2, 0.24, 0.28, 0.8)]], "float32")
    related = np.zeros((1, 4, 4), "float32")
    related[0, :3, 3] = 0.9, 0.8, 0.7
    pairs, _ = best_pairs(related, steps, 3, most_overlap=0.8)
    np.testing.assert_array_equal(pairs[0], [[0, 3], [2, 3], [-1, -1]])
    with pytest.raises(ValueError, match="`count` must be at least 1; it is 0"):
        best_pairs(related, steps, 0)
