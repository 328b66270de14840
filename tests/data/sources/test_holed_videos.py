"""Videos with masks of their holes: files, folders, arrays, what does not fit."""

import numpy as np
import PIL.Image
import pytest

from keras_tfm.data import DataError, HoledVideos, read_holed_videos
from keras_tfm.data.sources.holed_videos import masks_beside, named_as
from keras_tfm.data.sources.lines import by_stem
from keras_tfm.serving.examples import Refused

RNG = np.random.default_rng(0)
VIDEO = RNG.integers(0, 256, (5, 6, 8, 3)).astype("uint8")
MASKS = RNG.random((5, 6, 8)) < 0.3


def write(folder, frames):
    """Frames as a folder of PNG files."""
    folder.mkdir(parents=True)
    for number, frame in enumerate(frames):
        PIL.Image.fromarray(frame).save(folder / f"{number}.png")


def test_a_clip_has_its_holes_as_the_last_channel(tmp_path):
    write(tmp_path / "videos" / "a", VIDEO)
    write(tmp_path / "masks" / "a", np.where(MASKS, 255, 0).astype("uint8"))
    (tmp_path / "videos" / "b").mkdir()
    write(tmp_path / "videos" / "b" / "c", VIDEO[::-1])
    (tmp_path / "videos" / "b" / "c").rename(tmp_path / "videos" / "c")
    (tmp_path / "videos" / "b").rmdir()
    PIL.Image.fromarray(np.where(MASKS[0], 90, 20).astype("uint8")).save(tmp_path / "masks" / "c.png")
    read = read_holed_videos(tmp_path, (5, 6, 8, 4))
    arrays = HoledVideos([(VIDEO, MASKS), (VIDEO[::-1], MASKS[0])], (5, 6, 8, 4))
    for videos in (read, arrays, arrays[np.array([0, 1])], arrays[:2]):
        clips = np.asarray(videos)
        np.testing.assert_array_equal(clips[0, ..., :3], VIDEO)
        np.testing.assert_array_equal(clips[0, ..., 3], np.where(MASKS, 255, 0))
        np.testing.assert_array_equal(clips[1, ..., 3], np.where(MASKS[:1], 255, 0).repeat(5, 0))
    assert len(set(arrays.identity())) == 5 and list(read.identity()) == list(read.identity())
    videos = [tmp_path / "videos" / "c", str(tmp_path / "videos" / "a"), VIDEO, tmp_path / "masks" / "c.png"]
    assert (
        masks_beside(videos)
        == [str(tmp_path / "masks" / "c.png"), str(tmp_path / "masks" / "a")] + [None] * 2
    )
    assert named_as(tmp_path / "b", by_stem(tmp_path / "masks")) is None
    assert read_holed_videos(tmp_path / "videos", (5, 6, 8, 4)) is None


def test_the_smallest_part_of_a_hole_makes_a_larger_pixel_one():
    mask = np.zeros((6, 8), bool)
    mask[3, 5] = True
    holes = np.asarray(HoledVideos([(VIDEO, mask)], (5, 3, 4, 4)))[0, ..., 3]
    assert (holes[:, 1, 2] == 255).all()
    whole = np.asarray(HoledVideos([(VIDEO, np.zeros((6, 8)))], (5, 3, 4, 4)))[0, ..., 3]
    assert not whole.any()


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        (MASKS[:4], "expected masks of 5 frames, as the video's, or of one, got 4"),
        (MASKS[:, :, :6], "expected masks of 8 x 6 pixels, as the video's frames, got 6 x 6"),
        (MASKS[0, 0], r"expected masks, an array \(T, H, W\) or \(H, W\), got \(8,\)"),
        ("no.png", "cannot be read"),
    ],
)
def test_masks_that_do_not_fit_are_refused(masks, message):
    with pytest.raises(Refused, match=message):
        HoledVideos.open((VIDEO, masks))


def test_a_video_without_masks_is_named(tmp_path):
    write(tmp_path / "videos" / "a", VIDEO)
    (tmp_path / "masks").mkdir()
    with pytest.raises(DataError, match=r"videos/a: expected masks of this name in masks/"):
        read_holed_videos(tmp_path, (5, 6, 8, 4))
