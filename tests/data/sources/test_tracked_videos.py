"""Videos with boxes: MOT's folders, one object's, arrays; what is clipped, left out and refused."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, VideoFiles, checked_tracks, read_tracked_videos
from keras_tfm.data.worlds.movements import tracked_clips, write_tracked_clips

SHAPE = (1, 8, 8, 3)
INFO = """[Sequence]
imDir=frames
frameRate=30
seqLength=2
imWidth=8
imHeight=8
imExt=.png
"""


def video(folder, truth, frames="img1", file="gt/gt.txt", length=2):
    """A folder with frames of 8 x 8 pixels and a file of boxes."""
    for number in range(1, length + 1):
        path = folder / frames / f"{number:06}.png"
        tf.io.write_file(str(path), tf.io.encode_png(np.zeros((8, 8, 3), "uint8")))
    if truth is not None:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(truth)
    return folder


def test_three_layouts_in_folders_of_folders(tmp_path):
    video(tmp_path / "set" / "a", "1,7,0,0,4,4,1,1,1\n2,7,1,1,4,4,1,1,1\n")
    (video(tmp_path / "set" / "b", "2,1,0,0,8,8\n", "frames") / "seqinfo.ini").write_text(INFO)
    video(tmp_path / "set" / "c", "NaN,NaN,NaN,NaN\n1;2;3;4\n\n", "img", "groundtruth.txt")
    found = read_tracked_videos(tmp_path / "set", SHAPE)
    assert [boxes.frames.tolist() for boxes in found.boxes] == [[1, 2], [2], [2]]
    assert found.boxes[2].boxes.tolist() == [[1, 2, 4, 6]] and found.videos.num_frames == [2, 2, 2]
    assert len(read_tracked_videos(tmp_path / "set" / "c", SHAPE).boxes) == 1


def test_the_made_world_is_read_as_it_was_drawn(tmp_path):
    write_tracked_clips(tmp_path / "made", 2, num_frames=3)
    found = read_tracked_videos(tmp_path / "made", (3, 64, 64, 3))
    videos, rows = tracked_clips(2, num_frames=3)
    np.testing.assert_array_equal(np.asarray(found.videos), videos)
    for boxes, expected in zip(found.boxes, rows, strict=True):
        np.testing.assert_array_equal(boxes.frames, expected[:, 0])
        np.testing.assert_allclose(boxes.boxes[:, 2:], expected[:, 2:4] + expected[:, 4:])


def test_boxes_are_clipped_and_those_outside_are_left_out(caplog):
    videos = VideoFiles([np.zeros((2, 8, 8, 3), "uint8")], SHAPE)
    rows = [[1, 1, -2, 4, 4, 9], [2, 1, 8, 0, 3, 3], [2, 2, -5, -5, 4, 4]]
    with caplog.at_level(logging.WARNING):
        (found,) = checked_tracks(videos, [rows])
    assert found.boxes.tolist() == [[0, 4, 2, 8]]
    assert "2 boxes lie outside of the image and are left out: video 0 (2)" in caplog.text


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "expected boxes in the frames, there are none"),
        ([[1, 1, 9, 9, 2, 2]], "expected boxes in the frames, all lie outside of 8 x 8 pixels"),
        ([[1, 1, 0, 0, 2, 2]] * 2, "identity 1 stands twice in frame 1"),
        (
            [[2, 1, 0, 0, 2, 2], [1, -1, 0, 0, 2, 2]],
            "expected identities from 0, got -1 in frame 1",
        ),
        ([[3, 1, 0, 0, 2, 2]], "expected frames from 1 to 2, the video's, got 3"),
        ([[0, 1, 0, 0, 2, 2]], "expected frames from 1 to 2, the video's, got 0"),
        (
            [[1, 1, 0, 0, 0, 2]],
            "expected rows of frame, identity, left, .*, with an area, got 1, 1, 0, 0, 0, 2",
        ),
        ([[1, 1.5, 0, 0, 2, 2]], "with an area, got 1, 1.5"),
        ([[1, 1, 0, 0, 2]], r"got an array of the shape \(1, 5\)"),
        ([["a"] * 6], "expected rows of frame, identity, left, top, width, height, got"),
    ],
)
def test_rows_that_are_no_tracks(rows, message):
    videos = VideoFiles([np.zeros((2, 8, 8, 3), "uint8")], SHAPE)
    with pytest.raises(DataError, match=f"video 0: .*{message}"):
        checked_tracks(videos, [rows])


def test_folders_that_are_none(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "truth" / "gt").mkdir(parents=True)
    (tmp_path / "truth" / "gt" / "gt.txt").write_text("")
    for folder, message in (
        (tmp_path / "empty", "expected a folder in MOT's layout"),
        (tmp_path / "missing", "cannot be read: No such file or directory"),
        (tmp_path / "truth", "expected a folder of frames, img1 or img, beside gt.txt"),
        (video(tmp_path / "bare", None), "expected gt/gt.txt or groundtruth.txt, there is neither"),
        (video(tmp_path / "words", "a b c d\n", "img", "groundtruth.txt"), "line 1: expected left, top"),
        (video(tmp_path / "gap", "1 2 3 4\n\n1 2 3 4\n", "img", "groundtruth.txt"), "line 2: expected left"),
        (
            video(tmp_path / "begun", "1 2 3 4\n", "img", "groundtruth.txt"),
            "groundtruth.txt: expected a line for each of the 2 frames, got 1",
        ),
        (video(tmp_path / "few", "1,1,0,0,2,2\n", length=1), "expected two frames or more, got one"),
        (video(tmp_path / "late", "5,1,0,0,2,2\n"), "gt.txt: expected frames from 1 to 2"),
    ):
        with pytest.raises(DataError, match=message):
            read_tracked_videos(folder, SHAPE)
