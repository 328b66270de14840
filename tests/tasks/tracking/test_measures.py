"""Measures of tracking by small worked examples."""

import numpy as np
import pytest

from keras_tfm.tasks.tracking.measures import (
    Frame,
    multiple_object_measures,
    single_object_measures,
)


def box(x, y=0.0, side=10.0):
    return [x, y, x + side, y + side]


def frame(**boxes):
    """The objects "a1", "a2", ... by their numbers."""
    return Frame([int(name[1:]) for name in boxes], np.reshape([*boxes.values()], (-1, 4)))


def test_one_object_by_hand():
    """IoU 1, 1/3 and 0: above 20, 7 and 0 of 21 thresholds; centres 0, 5 and 30 pixels off."""
    truth = [box(0), box(0), box(0), [0, 0, 0, 0]]
    measures = single_object_measures(truth, [box(0), box(5), box(30), box(0)])
    assert measures["auc"] == pytest.approx(100 * (20 + 7 + 0) / 63)
    assert measures["precision"] == pytest.approx(200 / 3)


TRUTH = [frame(a1=box(0), a2=box(100)) for _ in range(4)]


def test_perfect_tracks_under_other_names():
    found = [frame(a8=box(100), a9=box(0)) for _ in range(4)]
    measures = multiple_object_measures([(TRUTH, found)])
    assert measures.pop("id_switches") == 0
    assert all(x == pytest.approx(100) for x in measures.values())


def test_identities_that_are_exchanged_half_way():
    """Both objects switch once. IDF1: each identity fits half of its frames. HOTA: all is detected, and each
    pair has 2 frames of 4 + 4 - 2.
    """
    found = [frame(a1=box(0), a2=box(100))] * 2 + [frame(a2=box(0), a1=box(100))] * 2
    measures = multiple_object_measures([(TRUTH, found)])
    assert measures["id_switches"] == 2
    assert measures["mota"] == pytest.approx(100 * (1 - 2 / 8))
    assert measures["idf1"] == pytest.approx(50)
    assert measures["detection_accuracy"] == pytest.approx(100)
    assert measures["association_accuracy"] == pytest.approx(100 / 3)
    assert measures["hota"] == pytest.approx(100 * np.sqrt(1 / 3))


def test_misses_and_false_positives():
    """Of 8 objects 6 are found, and 2 where nothing is."""
    found = [frame(a1=box(0), a2=box(100)), frame(a1=box(0), a2=box(100)), frame(a1=box(0), a7=box(500)),
             frame(a1=box(0), a7=box(500))]  # fmt: skip
    measures = multiple_object_measures([(TRUTH, found)])
    assert measures["mota"] == pytest.approx(100 * (1 - 4 / 8))
    assert measures["idf1"] == pytest.approx(100 * 2 * 6 / 16)
    assert measures["detection_accuracy"] == pytest.approx(100 * 6 / 10)
    # Object 1 has all 4 frames, object 2 2 of 4 + 2 - 2.
    assert measures["association_accuracy"] == pytest.approx(100 * (4 * 1 + 2 * 0.5) / 6)
    assert measures["id_switches"] == 0


def test_a_gap_is_a_switch_if_another_track_comes_after_it():
    found = [frame(a1=box(0)), frame(), frame(a3=box(0)), frame(a3=box(0))]
    measures = multiple_object_measures([([frame(a1=box(0))] * 4, found)])
    assert measures["id_switches"] == 1
    assert measures["mota"] == pytest.approx(100 * (1 - 2 / 4))
    assert measures["idf1"] == pytest.approx(100 * 2 * 2 / 7)


def test_a_pair_stays_though_another_track_fits_better():
    """CLEAR MOT keeps the pair of the frame before as long as it overlaps by half."""
    first = frame(a1=box(0), a2=box(50))
    second = frame(a1=box(3), a2=box(0))  # the IoU of track 1 with the object is 7 / 13
    truth = [frame(a1=box(0))] * 2
    assert multiple_object_measures([(truth, [first, second])])["id_switches"] == 0
    lost = frame(a1=box(4), a2=box(0))  # 6 / 14
    assert multiple_object_measures([(truth, [first, lost])])["id_switches"] == 1


def test_a_pair_stays_over_a_frame_without_objects_or_tracks():
    """As in TrackEval: track 1 overlaps by 7 / 13 after the gap, and track 2 fits better."""
    shown, gap = [frame(a1=box(0))], [frame()]
    found = [frame(a1=box(0)), frame(a1=box(3), a2=box(0))]
    assert multiple_object_measures([(shown + gap + shown, found[:1] + gap + found[1:])])["id_switches"] == 0
    assert multiple_object_measures([(shown * 3, found[:1] + gap + found[1:])])["id_switches"] == 0
    assert multiple_object_measures([(shown + gap + shown, found[:1] * 2 + found[1:])])["id_switches"] == 0


def test_hota_averages_over_overlaps():
    """An IoU of 7 / 13 counts at 10 of 19 thresholds, 0.05 to 0.5."""
    measures = multiple_object_measures([([frame(a1=box(0))], [frame(a1=box(3))])])
    assert measures["hota"] == pytest.approx(100 * 10 / 19)
    assert measures["mota"] == pytest.approx(100)


def test_videos_are_counted_together_and_their_identities_apart():
    one, other = ([frame(a1=box(0))] * 3, [frame(a5=box(0))] * 3), ([frame(a1=box(0))], [frame()])
    measures = multiple_object_measures([one, other])
    assert measures["mota"] == pytest.approx(75) and measures["idf1"] == pytest.approx(100 * 6 / 7)
    assert measures["id_switches"] == 0


def test_refusals():
    with pytest.raises(ValueError, match=r"an identity stands twice in frame 1: \[4, 4\]"):
        twice = Frame([4, 4], [box(0), box(9)])
        multiple_object_measures([([frame(a1=box(0))] * 2, [frame(), twice])])
    with pytest.raises(ValueError, match="a video of 2 frames has answers for 1"):
        multiple_object_measures([([frame(a1=box(0))] * 2, [frame()])])
    with pytest.raises(ValueError, match="at least one object"):
        multiple_object_measures([([frame()], [frame(a1=box(0))])])
    with pytest.raises(ValueError, match="a box for each of 2 frames; it has 1"):
        single_object_measures([box(0)] * 2, [box(0)])
    with pytest.raises(ValueError, match="a box with an area"):
        single_object_measures([[0, 0, 0, 0]], [box(0)])
