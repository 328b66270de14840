"""Videos by every way in: which frames are chosen, what is decoded, and what is refused."""

import csv
import logging
import os
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import DataError, Preprocessing, Sampling, VideoFiles, read_labelled_videos
from keras_tfm.data.sources.videos import read_videos
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.video_files import clip_of, frames_in, opened, places_of
from tests.data.sources.made_videos import CODECS, grey_frames, spoil, turn, write_sound, write_video
from tests.fresh_process import run_fresh

VALUES = list(range(0, 240, 10))  # of 24 frames


def levels(frames):
    """The grey level of each frame."""
    return [int(frame[-16:, -16:].mean().round()) for frame in frames]


@pytest.mark.parametrize("suffix", CODECS)
def test_frames_are_found_wherever_they_stand(tmp_path, suffix):
    path = tmp_path / f"video{suffix}"
    write_video(path, grey_frames(VALUES))
    video = opened(str(path))
    assert len(video) == 24 and video.end == pytest.approx(2.4, abs=0.05)
    np.testing.assert_allclose(video.times, np.arange(24) / 10, atol=0.011)
    tolerance = 20 if suffix == ".gif" else 4  # a GIF has few colours
    for places in (range(24), [0, 5, 7, 21], [23], [13]):
        expected = [VALUES[place] for place in places]
        for source in (video, opened(path.read_bytes())):
            np.testing.assert_allclose(levels(source.frames(places)), expected, atol=tolerance)
            assert source.num_lost == 0


def test_far_frames_are_sought_not_passed_over(tmp_path, monkeypatch):
    path = tmp_path / "video.mp4"
    write_video(path, grey_frames(VALUES * 5, (32, 32)), key_every=12)
    video = opened(str(path))
    passed = []
    place = video._place
    monkeypatch.setattr(video, "_place", lambda *a: passed.append(0) or place(*a))
    assert levels(video.frames([1, 110])) == pytest.approx([10, VALUES[110 % 24]], abs=4)
    assert len(passed) < 20


def test_a_variable_rate_goes_by_time(tmp_path):
    path = tmp_path / "video.mkv"
    write_video(path, grey_frames([0, 50, 100, 150, 200, 250]), times=[0, 10, 20, 100, 110, 200])
    video = opened(str(path))
    np.testing.assert_allclose(video.times, [0, 0.1, 0.2, 1, 1.1, 2])
    assert places_of(video.times, 2.1, 4).tolist() == [2, 2, 4, 4]  # at 0.26, 0.79, 1.31 and 1.84 seconds
    assert places_of(video.times, 2.1, 4, seconds=0.15, share=0.0).tolist() == [0, 1, 2, 2]


def test_a_corrupt_packet_is_skipped_and_counted(tmp_path, caplog):
    path = tmp_path / "video.mkv"
    write_video(path, grey_frames(VALUES))
    spoil(path, 10)
    video = opened(str(path))
    expected = [*VALUES[:10], VALUES[9], *VALUES[11:]]
    np.testing.assert_allclose(levels(video.frames(range(24))), expected, atol=4)
    assert video.num_lost == 1
    with caplog.at_level(logging.WARNING):
        VideoFiles([path], (24, 8, 8, 3)).frames()
    assert "1 parts of 1 videos cannot be decoded" in caplog.text and "video.mkv (1)" in caplog.text


def test_a_video_of_a_phone_is_turned(tmp_path):
    path = tmp_path / "video.mp4"
    write_video(path, grey_frames([0] * 3))
    turn(path)
    (frame,) = opened(str(path)).frames([1])
    assert frame.shape == (48, 32, 3)
    assert frame[2, -3].min() > 200 and frame[2, 2].max() < 50  # the bright corner has turned clockwise


@pytest.mark.parametrize("suffix", [".avi", ".mp4", ".mkv"])
def test_a_title_may_be_in_any_encoding(tmp_path, suffix):
    path = tmp_path / f"video{suffix}"
    write_video(path, grey_frames(VALUES), title="a title")
    data = path.read_bytes()
    assert b"a title" in data
    path.write_bytes(data.replace(b"a title", b"\x8c\xa8\xff\xfe\x80 b"))
    assert levels(opened(str(path)).frames([5])) == pytest.approx([VALUES[5]], abs=4)


def test_pictures_without_a_decoder_are_refused(tmp_path):
    path = tmp_path / "video.avi"
    write_video(path, grey_frames(VALUES))
    path.write_bytes(path.read_bytes().replace(b"FMP4", b"QQ7Q"))
    with pytest.raises(Refused, match=r"expected a video .*, FFmpeg has no decoder for its pictures"):
        opened(str(path))


def test_names_have_digits_that_are_no_numbers(tmp_path):
    for name in ("1²3.png", "10.png", "2.png", "٣.png"):
        (tmp_path / name).write_text("")
    names = [os.path.basename(path) for path in frames_in(tmp_path)]
    assert names == ["1²3.png", "2.png", "٣.png", "10.png"]


def test_a_folder_of_frames_has_its_natural_order_and_one_size(tmp_path):
    for number in range(12):
        image = np.full((6, 8, 3), number * 20, "uint8")
        keras.utils.save_img(tmp_path / f"frame{number}.png", image, scale=False)
    (tmp_path / ".hidden").write_text("")
    files = VideoFiles([tmp_path], (4, 6, 8, 3))
    assert np.asarray(files)[0, :, 0, 0, 0].tolist() == [20, 80, 140, 200]
    keras.utils.save_img(tmp_path / "frame7.png", np.zeros((6, 9, 3)), scale=False)
    problem = r"frame7\.png: expected a frame of 8 x 6 pixels, as the first, got 9 x 6"
    with pytest.raises(DataError, match=problem):
        _ = VideoFiles([tmp_path], (4, 6, 8, 3)).videos
    (tmp_path / "frame7.png").write_text("text")
    with pytest.raises(Refused, match=r"frame7\.png: expected a whole PNG or JPEG image"):
        opened(tmp_path)


@pytest.mark.parametrize(
    "make, problem",
    [
        (lambda path: write_sound(path.with_suffix(".mp4")), "got sound alone"),
        (
            lambda path: write_video(path.with_suffix(".mp4"), grey_frames([9])),
            "got one: a still image",
        ),
        (lambda path: path.with_suffix(".mp4").write_bytes(b""), "got none that can be read"),
        (lambda path: path.with_suffix(".mp4").write_text("a text"), "got none that can be read"),
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.with_suffix(".mp4").mkdir(), "two frames or more, there are none"),
        (lambda path: os.mkfifo(path.with_suffix(".mp4")), "expected a regular file"),
    ],
)
def test_what_is_no_video_is_refused(tmp_path, make, problem):
    make(tmp_path / "video")
    with pytest.raises(Refused, match=problem):
        opened(str(tmp_path / "video.mp4"))


def test_playlists_are_not_followed(tmp_path):
    write_video(tmp_path / "video.mp4", grey_frames(VALUES))
    (tmp_path / "list.mp4").write_text("#EXTM3U\n#EXTINF:2,\nvideo.mp4\n#EXT-X-ENDLIST\n")
    with pytest.raises(Refused, match="got none that can be read"):
        opened(str(tmp_path / "list.mp4"))


@pytest.mark.parametrize(
    "options, places",
    [
        ({}, [1, 3, 6, 8]),
        ({"share": 0.0}, [0, 2, 5, 7]),
        ({"every": 2}, [2, 4, 6, 8]),
        ({"every": 2, "share": 0.0}, [0, 2, 4, 6]),
        ({"every": 2, "share": 0.99}, [3, 5, 7, 9]),
        ({"every": 5}, [0, 5, 9, 9]),
        ({"seconds": 1.0, "share": 1.0}, [6, 7, 8, 9]),
        ({"seconds": 2.5, "share": 0.0}, [0, 2, 5, 7]),
    ],
)
def test_clips_by_hand(options, places):
    assert places_of(np.arange(10.0), 10.0, 4, **options).tolist() == places
    assert places_of(np.arange(4.0), 4.0, 4, **options).tolist() == [0, 1, 2, 3]


def test_repeated_frames_are_decoded_once():
    ramp = np.arange(3)
    taken = []
    clip = clip_of(opened(np.array(ramp)), np.array([0, 1, 1, 2, 2]), lambda frame: taken.append(0) or frame)
    assert clip.tolist() == [0, 1, 1, 2, 2] and len(taken) == 3


def test_frames_are_resized_as_images_are(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), "uint8")
    videos = VideoFiles([image[None].repeat(2, 0)], (2, 8, 8, 1), Preprocessing(keep_aspect=True))
    tf.io.write_file(str(tmp_path / "image.png"), tf.io.encode_png(image))
    decoded = Preprocessing(keep_aspect=True).decoded(tf.io.read_file(str(tmp_path / "image.png")), 8, 8, 1)
    np.testing.assert_array_equal(np.asarray(videos)[0, 1], decoded)


@pytest.fixture
def classes(tmp_path):
    """A folder of two classes with a file and a folder of frames each."""
    for name, base in (("run", 0), ("a jump", 100)):
        folder = tmp_path / "videos" / name
        folder.mkdir(parents=True)
        write_video(folder / "one.mp4", grey_frames([base, base + 50, base + 100], (16, 16)))
        (folder / "two").mkdir()
        for number in range(3):
            keras.utils.save_img(folder / "two" / f"{number}.png", grey_frames([base])[0], scale=False)
    return tmp_path / "videos"


def test_class_folders_tables_and_lists(classes, tmp_path, caplog):
    shape = (3, 8, 8, 3)
    expected = np.asarray(read_labelled_videos(classes, shape).videos)
    paths = [f"videos/{name}/{video}" for name in ("a jump", "run") for video in ("one.mp4", "two")]
    names = ["a jump", "a jump", "run", "run"]
    with open(tmp_path / "table.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *zip(paths, names, strict=True)])
    (tmp_path / "list.txt").write_text(
        "".join(f"{path} {name[0]}\n" for path, name in zip(paths, names, strict=True))
    )
    for file in (classes, tmp_path / "table.csv", tmp_path / "list.txt"):
        found = read_labelled_videos(file, shape)
        assert found.labels.tolist() == [0, 0, 1, 1] and len(found.class_names) == 2
        np.testing.assert_array_equal(np.asarray(found.videos), expected)
    unlabelled = [path for path, _ in read_videos(tmp_path / "list.txt")]
    assert unlabelled == [path for path, _ in read_videos(tmp_path / "table.csv")]
    assert (
        unlabelled == [path for path, _ in read_videos(classes)] == [str(tmp_path / path) for path in paths]
    )
    (tmp_path / "bare.txt").write_text("\n".join(paths))
    assert [path for path, _ in read_videos(tmp_path / "bare.txt")] == unlabelled
    with pytest.raises(DataError, match="line 1: expected a label, got ''"):
        read_labelled_videos(tmp_path / "bare.txt", shape)


def test_broken_videos_are_skipped_unless_a_class_has_no_other(classes, caplog):
    (classes / "run" / "three.mp4").write_text("no video")
    with caplog.at_level(logging.WARNING):
        assert len(read_labelled_videos(classes, (2, 8, 8, 3)).labels) == 4
    assert "1 of 5 videos are skipped" in caplog.text and "three.mp4" in caplog.text
    (classes / "run" / "one.mp4").unlink()
    shutil.rmtree(classes / "run" / "two")
    with pytest.raises(DataError, match=r"three.mp4: expected a video .*got none that can be read"):
        read_labelled_videos(classes, (2, 8, 8, 3))
    with pytest.raises(DataError, match=r"nowhere: cannot be read: No such file or directory"):
        read_labelled_videos(classes / "nowhere", (2, 8, 8, 3))
    with pytest.raises(DataError, match=r"expected a folder of videos by class"):
        read_labelled_videos(classes / "a jump" / "one.mp4", (2, 8, 8, 3))


def test_changed_videos_are_recognised(classes, tmp_path):
    def identity(folder=classes, **options):
        videos = [
            folder / "run" / "one.mp4",
            folder / "run" / "two",
            np.zeros((3, 4, 4, 3), "uint8"),
            b"data",
        ]
        return list(VideoFiles(videos, (2, 8, 8, 3), **options).identity())

    first = identity()
    assert identity() == first != identity(sampling=Sampling(frame_step=2))
    shutil.copytree(classes, tmp_path / "staged", copy_function=shutil.copyfile)  # with times of their own
    (tmp_path / "staged" / "run" / "two" / "Thumbs.db").touch()
    assert identity(tmp_path / "staged") == first
    keras.utils.save_img(classes / "run" / "two" / "1.png", np.ones((9, 9, 3)), scale=False)
    assert sum(x != y for x, y in zip(identity(), first, strict=True)) == 1


def test_seconds_need_a_clock():
    with pytest.raises(DataError, match="expected a video file to choose frames by seconds"):
        _ = VideoFiles(
            [np.zeros((5, 4, 4, 3), "uint8")], (2, 4, 4, 3), sampling=Sampling(seconds_per_frame=1)
        ).videos
    with pytest.raises(
        ValueError, match="`frame_step` says which frames are taken: leave out `seconds_per_frame`"
    ):
        Sampling(frame_step=2, seconds_per_frame=1.0)


def test_without_pyav_one_line_names_it(tmp_path):
    (tmp_path / "video.mp4").write_bytes(b"-")
    code = f"""
from keras_tfm.serving.video_files import opened
try:
    opened({str(tmp_path / "video.mp4")!r})
except ImportError as error:
    print(error)
"""
    printed = run_fresh(code, blocked=["av"]).stdout.strip()
    assert printed == 'Videos need PyAV: pip install av, or "keras-tfm[video]"'
