"""Drawn holes, and what the frames around say of them."""

import numpy as np
import pytest

from keras_tfm.data.batches.video_holes import drawn_holes, known_of, num_hints, seen_in


@pytest.mark.parametrize("motion", ["still", "moving", "both"])
def test_holes_are_rectangles_of_a_quarter_to_half_of_each_side(motion):
    holes = drawn_holes((40, 5, 16, 24), [1, 2], motion).numpy()[..., 0]
    moves = (holes != holes[:, :1]).any((1, 2, 3))
    assert {"still": not moves.any(), "moving": moves.all(), "both": 0 < moves.mean() < 1}[motion]
    rows, columns = holes.any(3).sum(2), holes.any(2).sum(2)  # (B, T)
    np.testing.assert_array_equal(rows * columns, holes.sum((2, 3)))
    assert (rows == rows[:, :1]).all() and (columns == columns[:, :1]).all()  # moved, never cut
    assert rows.min() >= 4 and rows.max() <= 8 and columns.min() >= 6 and columns.max() <= 12
    again, others = (drawn_holes((40, 5, 16, 24), [1, key], motion).numpy()[..., 0] for key in (2, 3))
    np.testing.assert_array_equal(holes, again)
    assert (holes != others).any()


def test_what_is_known_by_hand():
    rng = np.random.default_rng(0)
    videos = rng.integers(0, 256, (2, 4, 6, 6, 3)).astype("float32") / 255
    holes = (rng.random((2, 4, 6, 6, 1)) < 0.5).astype("float32")
    holes[:, :, 0, 0] = 1  # never seen
    known = known_of(videos, holes)
    assert known.hints.shape[-1] == num_hints(3)
    made, hints = known.videos.numpy(), known.hints.numpy()
    for b, t, y, x in np.ndindex(2, 4, 6, 6):
        seen = [s for s in range(4) if not holes[b, s, y, x, 0]]
        if t in seen:
            np.testing.assert_array_equal(made[b, t, y, x], videos[b, t, y, x])
        elif seen:
            np.testing.assert_allclose(made[b, t, y, x], videos[b, seen, y, x].mean(0), atol=0.51 / 255)
        filling = made[b, 0, y, x] if holes[b, 0, y, x, 0] else None
        for first, near in ((1, [s for s in seen if s <= t][-1:]), (6, [s for s in seen if s >= t][:1])):
            *colours, hidden, is_any = hints[b, t, y, x, first : first + 5]
            assert is_any == len(near)
            assert hidden == pytest.approx(abs(near[0] - t) / 4 if near else 0)
            if near:
                np.testing.assert_allclose(colours, 2 * videos[b, near[0], y, x] - 1, atol=1e-6)
            elif filling is not None:
                np.testing.assert_allclose(colours, 2 * filling - 1, atol=1e-6)
    np.testing.assert_array_equal(hints[..., :1], holes)


def test_what_is_in_a_hole_does_not_matter():
    rng = np.random.default_rng(0)
    videos, others = rng.random((2, 1, 3, 8, 8, 1)).astype("float32")
    holes = (rng.random((1, 3, 8, 8, 1)) < 0.4).astype("float32")
    changed = np.where(holes > 0, others, videos)
    for one, same in zip(known_of(videos, holes), known_of(changed, holes), strict=True):
        np.testing.assert_array_equal(one, same)


def test_holes_that_stay_are_filled_from_around():
    videos = np.full((1, 3, 8, 8, 1), 0.4, "float32")
    holes = np.zeros_like(videos)
    holes[:, :, 2:5, 2:5] = 1
    np.testing.assert_allclose(known_of(videos * (1 - holes), holes).videos, videos, atol=0.51 / 255)


def test_frames_elsewhere_count_where_these_show_nothing():
    rng = np.random.default_rng(0)
    videos, holes = rng.random((1, 6, 4, 4, 1)).astype("float32"), np.zeros((1, 6, 4, 4, 1), "float32")
    holes[:, :3, :2], holes[:, 4, 0] = 1, 1
    known = known_of(videos[:, :3], holes[:, :3], seen_in(videos, holes)).videos.numpy()
    np.testing.assert_allclose(known[0, 1, 0], videos[0, [3, 5], 0].mean(0), atol=0.51 / 255)
    np.testing.assert_allclose(known[0, 1, 1], videos[0, 3:, 1].mean(0), atol=0.51 / 255)
    np.testing.assert_array_equal(known[:, :, 2:], videos[:, :3, 2:])
