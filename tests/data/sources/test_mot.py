"""MOT's files: what is read, written and refused."""

import numpy as np
import pytest

from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.sources.mot import MOTBoxes, read_mot, read_mot_video, write_mot

TRUTH = """1,1,10,20,30,40,1,1,1
1,2,5,5,10,10,0,7,0.5
2,1,12.5,20,30,40,1,1,0.9

2,3,-4,0,10,10,1,2,1
"""
FOUND = "1,-1,10,20,30,40,0.75\n1,-1,1,1,2,2,-3.5,-1,-1,-1\n"
INFO = """[Sequence]
name=MOT17-02
imDir=img1
frameRate=30
seqLength=600
imWidth=1920
imHeight=1080
imExt=.jpg
"""


def file_of(folder, text, name="boxes.txt"):
    path = folder / name
    path.write_text(text)
    return path


def test_truth(tmp_path):
    """Boxes that do not count are left out; all is read of other files."""
    boxes = read_mot(file_of(tmp_path, TRUTH), is_truth=True)
    assert boxes.frames.tolist() == [1, 2, 2] and boxes.ids.tolist() == [1, 1, 3]
    np.testing.assert_array_equal(boxes.boxes, [[10, 20, 40, 60], [12.5, 20, 42.5, 60], [-4, 0, 6, 10]])
    assert boxes.scores.tolist() == [1, 1, 1] and boxes.classes.tolist() == [1, 1, 2]
    assert boxes.of_frame(2).ids.tolist() == [1, 3] and len(boxes.of_frame(9).ids) == 0
    assert len(read_mot(file_of(tmp_path, TRUTH)).ids) == 4
    assert read_mot(file_of(tmp_path, "")).boxes.shape == (0, 4)


def test_detections(tmp_path):
    """Their identity, -1, may stand several times in a frame."""
    boxes = read_mot(file_of(tmp_path, FOUND))
    assert boxes.ids.tolist() == [-1, -1] and boxes.scores.tolist() == [0.75, -3.5]


def test_answers_are_read_as_they_were_written(tmp_path):
    rng = np.random.default_rng(0)
    corners = rng.integers(0, 100, (6, 2)).astype("float64")
    boxes = np.concatenate([corners, corners + rng.integers(1, 50, (6, 2))], axis=1)
    answers = MOTBoxes(np.array([3, 1, 2, 1, 3, 2]), np.arange(1, 7), boxes, rng.random(6), np.ones(6, int))
    write_mot(tmp_path / "answers.txt", answers)
    found, order = read_mot(tmp_path / "answers.txt"), [1, 3, 2, 5, 0, 4]
    for ours, theirs in zip(answers, found, strict=True):
        np.testing.assert_allclose(theirs, ours[order], atol=1e-5)
    first = (tmp_path / "answers.txt").read_text().splitlines()[0].split(",")
    assert first[:2] == ["1", "2"] and first[-3:] == ["-1"] * 3


def test_a_video(tmp_path):
    file_of(tmp_path, INFO, "seqinfo.ini")
    video = read_mot_video(tmp_path)
    assert video.path_of(7) == tmp_path / "img1" / "000007.jpg"
    assert (video.length, video.rate, video.size) == (600, 30.0, (1080, 1920))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("1,2,3,4,5", "expected at least 6 numbers with commas, got 5"),
        ("1,2,a,4,5,6", "expected a number for the left side, got 'a'"),
        ("1.5,2,3,4,5,6", r"expected a whole number for the frame, got '1\.5'"),
        ("1,2,3,4,nan,6", "expected a finite number for the width, got 'nan'"),
        ("inf,2,3,4,5,6", "expected a whole number for the frame, got 'inf'"),
        ("0,2,3,4,5,6", "frames count from 1, got 0"),
        ("1,2,3,4,5,0", "expected a box with an area, got 5 x 0"),
        ("1,1,3,4,5,6", "identity 1 stands in frame 1 already, line 1"),
    ],
)
def test_lines_that_are_refused(tmp_path, line, problem):
    path = file_of(tmp_path, f"1,1,10,20,30,40\n{line}\n")
    with pytest.raises(DataError, match=rf"boxes\.txt, line 2: {problem}"):
        read_mot(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read"),
        (INFO.replace("imExt=.jpg\n", ""), "expected an entry 'imExt' in \\[Sequence\\], there is none"),
        (INFO.replace("=600", "=many"), "expected MOT's entries: invalid literal"),
        ("frames", "expected MOT's entries: File contains no section headers"),
    ],
)
def test_videos_that_are_refused(tmp_path, text, problem):
    if text is not None:
        file_of(tmp_path, text, "seqinfo.ini")
    with pytest.raises(DataError, match=rf"seqinfo\.ini: {problem}"):
        read_mot_video(tmp_path)
