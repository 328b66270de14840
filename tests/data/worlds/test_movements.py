"""What scenes say of themselves is checked against their pixels."""

import itertools

import numpy as np

from keras_tfm.data.worlds.movements import ACTIONS, SIDE, action_clips, moving_shapes


def centres(scene):
    """The centre (T, 2) and the area (T,) of the actor's box."""
    left, top, right, bottom = np.moveaxis(scene.boxes[:, 0], -1, 0)
    return np.stack([left + right, top + bottom], axis=1) / 2, (right - left) * (bottom - top)


def seen(scene):
    """The action, as the actor's boxes show it."""
    places, areas = centres(scene)
    if abs(areas[-1] / areas[0] - 1) > 0.5:
        return "grows" if areas[-1] > areas[0] else "shrinks"
    dx, dy = places[-1] - places[0]
    if np.hypot(dx, dy) > 10:
        return "moves " + (
            ("right" if dx > 0 else "left") if abs(dx) > abs(dy) else "down" if dy > 0 else "up"
        )
    around = places - places.mean(0)
    turned = np.unwrap(np.arctan2(around[:, 1], around[:, 0]))
    return "circles clockwise" if turned[-1] > turned[0] else "circles anticlockwise"


def test_boxes_show_the_action_and_stay_inside():
    for number, scene in enumerate(moving_shapes(32, seed=5, bounce=True)):
        assert scene.action == ACTIONS[number % 8] == seen(scene)
        assert scene.sentence.startswith(f"the {scene.names[0]} {scene.action}")
        assert scene.boxes.min() >= 0 and scene.boxes.max() <= SIDE
        assert len(scene.ids) == len(set(scene.ids.tolist())) == scene.boxes.shape[1] == len(scene.names)


def test_masks_are_disjoint_lie_in_their_boxes_and_have_one_colour():
    hides = False
    for scene in moving_shapes(24, seed=3, num_objects=(2, 3), bounce=True):
        assert scene.masks.sum(1).max() == 1
        for moment, number in itertools.product(range(16), range(len(scene.ids))):
            rows, columns = np.nonzero(scene.masks[moment, number])
            left, top, right, bottom = scene.boxes[moment, number]
            if len(rows):
                assert left <= columns.min() and columns.max() < right
                assert top <= rows.min() and rows.max() < bottom
                assert len(np.unique(scene.frames[moment, rows, columns], axis=0)) == 1
            height = bottom - top
            hides |= len(rows) == 0 or rows.max() + 1 - rows.min() < height
    assert hides  # some object is behind another


def test_the_background_is_still():
    (scene,) = moving_shapes(1, seed=1)
    is_background = ~scene.masks.any((0, 1))
    assert np.ptp(scene.frames[:, is_background], axis=0).max() == 0


def test_sentences_name_the_objects_that_meet():
    for scene in moving_shapes(24, seed=9, num_objects=(2, 2)):
        first, second = np.moveaxis(scene.boxes, 1, 0)
        overlap = np.minimum(first[:, 2:], second[:, 2:]) > np.maximum(first[:, :2], second[:, :2])
        if "crosses" in scene.sentence:
            assert scene.sentence.endswith(f"and crosses the {scene.names[1]}") and overlap.all(1).any()
        elif not overlap.all(1).any():
            assert "crosses" not in scene.sentence


def test_seeds_draw_other_scenes_and_the_same_again():
    videos, actions = action_clips(8, seed=1, num_frames=3)
    again, _ = action_clips(9, seed=1, num_frames=3)
    others, _ = action_clips(8, seed=2, num_frames=3)
    np.testing.assert_array_equal(videos, again[:8])
    assert (videos != others).any((1, 2, 3, 4)).all() and actions.tolist() == list(ACTIONS)


def test_the_middle_frame_does_not_say_the_action():
    """At time 0, reversed actions draw the same: only the frames before and after differ."""
    middles = {name: [] for name in ACTIONS}
    for scene in moving_shapes(800, seed=0, num_frames=3, num_objects=(1, 1)):
        places, areas = centres(scene)
        middles[scene.action].append([*places[1], areas[1]])
    means = np.array([np.mean(rows, 0) for rows in middles.values()])
    errors = np.array([np.std(rows, 0) / 10 for rows in middles.values()])
    assert (abs(means - means.mean(0)) < 4 * errors).all()
