"""Videos in tables, data sets of TFDS and Parquet files: frames, classes, texts, and where objects are."""

import io
import logging

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_tfm.data import (
    DataError,
    VideoFiles,
    read_labelled_videos,
    read_tracked_videos,
    read_unlabelled_videos,
    read_video_segments,
    read_video_texts,
)
from keras_tfm.data.sources.image_texts import identities
from keras_tfm.data.sources.videos import read_videos
from tests.data.sources.made_videos import grey_frames, write_video

Video, Sequence, Label = tfds.features.Video, tfds.features.Sequence, tfds.features.ClassLabel
SHAPE = (3, 6, 8, 3)


def clips(count, length=3):
    """Videos (N, T, 6, 8, 3) of noise."""
    return np.random.default_rng(0).integers(0, 256, (count, length, 6, 8, 3), "uint8")


def png(pixels):
    """The bytes of a file."""
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_labelled_videos(prepared, parquet, tmp_path):
    videos, names = clips(3), ["run", "jump"]
    frames = [[png(frame) for frame in video] for video in videos]
    features = {"video": Video(shape=(None, 6, 8, 3)), "label": Label(names=names)}
    rows = [{"video": video, "label": label} for video, label in zip(videos, [0, 1, 0], strict=True)]
    for source in (
        prepared("actions", features, rows),
        parquet("a.parquet", {"frames": frames, "label": [0, 1, 0]}, {"label": names}),
    ):
        found = read_labelled_videos(source, SHAPE)
        assert found.class_names == ["jump", "run"] and found.labels.tolist() == [1, 0, 1]
        np.testing.assert_array_equal(np.asarray(found.videos), videos)
        np.testing.assert_array_equal(np.asarray(read_unlabelled_videos(source, SHAPE)[1:]), videos[1:])
        assert [place for _, place in read_videos(source)][2].endswith(" 3")
        assert found.videos.place(1).startswith(str(source))
    write_video(tmp_path / "video.mp4", grey_frames([0, 100, 200]))
    data = {"bytes": (tmp_path / "video.mp4").read_bytes(), "path": None}  # as the library `datasets` has it
    found = read_unlabelled_videos(parquet("b.parquet", {"video": [data] * 2, "label": [0, 1]}), SHAPE)
    assert found.num_frames == [3, 3]


def test_a_video_alone_needs_no_known_name(prepared):
    videos = clips(2)[..., :1]
    path = prepared("digits", {"sequence": Video(shape=(3, 6, 8, 1))}, [{"sequence": x} for x in videos])
    np.testing.assert_array_equal(np.asarray(read_unlabelled_videos(path, (3, 6, 8, 1))), videos)


def test_texts_of_videos(prepared):
    features = {"video": Video(shape=(None, 6, 8, 3)), "captions": Sequence({"text": tfds.features.Text()})}
    texts = [["it runs", "it goes"], ["it jumps"]]
    rows = [
        {"video": video, "captions": [{"text": text} for text in some]}
        for video, some in zip(clips(2), texts, strict=True)
    ]
    found = read_video_texts(prepared("told", features, rows), SHAPE)
    assert found.texts == ["it runs", "it goes", "it jumps"]
    np.testing.assert_array_equal(np.asarray(found.videos), clips(2)[[0, 0, 1]])
    keys = identities(found.videos)
    assert keys[0] == keys[1] != keys[2]


def test_broken_videos_are_skipped_by_their_rows(parquet, caplog):
    good, other = [png(frame) for frame in clips(1)[0]], png(np.zeros((5, 8, 3), "uint8"))
    rows = [good, [good[0], b"none"], [good[0], other], good[:1], [], good]
    path = parquet("a.parquet", {"video": rows, "label": [0, 0, 1, 1, 1, 1]})
    with caplog.at_level(logging.WARNING):
        assert read_labelled_videos(path, SHAPE).labels.tolist() == [0, 1]
    for part in ("4 of 6 videos are skipped", "row 2", "frame 2: expected a whole PNG", "got 8 x 5"):
        assert part in caplog.text
    for column, message in (
        ([[1, 2]], "row 1: expected the bytes of an image as 'video', got 1"),
        ([good[:1]], "row 1: expected two frames or more, got one"),
        (["a.mp4"], "a.mp4: cannot be read: No such file"),
        ([7], "row 1: expected the bytes of an image as 'video', got 7"),
    ):
        with pytest.raises(DataError, match=message):
            read_unlabelled_videos(parquet("b.parquet", {"video": column}), SHAPE)


def test_changed_frames_are_recognised():
    frames = [png(frame) for frame in clips(1)[0]]
    first, same, other = (
        list(VideoFiles([some], SHAPE).identity()) for some in (frames, frames[:], frames[::-1])
    )
    assert first == same != other


TRACKS = {
    "category": Label(names=["cat", "dog"]),
    "is_crowd": np.bool_,
    "frames": Sequence(np.int32),
    "bboxes": Sequence(tfds.features.BBoxFeature()),
    "segmentations": Video(shape=(None, 6, 8, 1)),
}  # as in youtube_vis
FEATURES = {"video": Video(shape=(None, 6, 8, 3)), "tracks": Sequence(TRACKS)}


def track(category, frames, columns, is_crowd=False):
    """An object in the left columns of some frames."""
    mask = np.zeros((len(frames), 6, 8, 1), "uint8")
    mask[:, :, :columns] = 1
    box = tfds.features.BBox(ymin=0.0, xmin=0.0, ymax=1.0, xmax=columns / 8)
    boxes = [box] * len(frames)
    named = {"category": category, "is_crowd": is_crowd, "frames": frames}
    return {**named, "bboxes": boxes, "segmentations": mask}


def test_objects_of_videos(prepared, caplog):
    rows = [
        {"video": clips(2)[0], "tracks": [track(1, [0, 2], 4), track(0, [1], 8)]},
        {"video": clips(2)[1], "tracks": [track(0, [2], 2), track(1, [0], 8, is_crowd=True)]},
    ]
    path = prepared("tracked", FEATURES, rows)
    with caplog.at_level(logging.WARNING):
        found = read_tracked_videos(path, (1, 6, 8, 3))
    assert caplog.text.count("1 crowds are skipped") == 1
    assert [boxes.frames.tolist() for boxes in found.boxes] == [[1, 3, 2], [3]]
    assert [boxes.ids.tolist() for boxes in found.boxes] == [[1, 1, 2], [1]]
    assert found.boxes[0].boxes.tolist() == [[0, 0, 4, 6], [0, 0, 4, 6], [0, 0, 8, 6]]
    data = read_video_segments(path, SHAPE)
    np.testing.assert_array_equal(np.asarray(data.videos), clips(2))
    (masks, labels), (_, others) = list(data.segments)
    assert (labels, others) == (["dog", "cat"], ["cat"])
    in_frames = masks.reshape(2, 3, 6, 8)
    assert in_frames[0, [0, 2], :, :4].all() and in_frames.sum() == 2 * 24 + 48


def test_identities_of_tao(prepared):
    features = {name: TRACKS[name] for name in ("category", "frames", "bboxes")} | {"track_id": np.int64}
    one = track(0, [0, 1], 4)
    named = {name: one[name] for name in ("category", "frames", "bboxes")} | {"track_id": 2**60 + 1}
    rows = [{"video": clips(1)[0], "tracks": [named]}]
    path = prepared("tao", {**FEATURES, "tracks": Sequence(features)}, rows)
    assert read_tracked_videos(path, (1, 6, 8, 3)).boxes[0].ids.tolist() == [2**60 + 1] * 2
    with pytest.raises(DataError, match='example 1: expected objects with "frames" and "segmentations"'):
        read_video_segments(path, SHAPE)


def test_objects_that_fit_no_video(prepared):
    video = clips(1)[0]
    for name, tracks, message in (
        ("late", [track(0, [3], 4)], 'expected as many "frames", from 0 to 2, as "bboxes" of an object'),
        ("none", [], "expected boxes in the frames, there are none"),
    ):
        path = prepared(name, FEATURES, [{"video": video, "tracks": tracks}])
        with pytest.raises(DataError, match=message):
            read_tracked_videos(path, (1, 6, 8, 3))
    path = prepared("bare", {"video": FEATURES["video"], "fps": tf.int64}, [{"video": video, "fps": 8}])
    message = """expected objects with "frames" and "bboxes" as 'video', got list of 3"""
    with pytest.raises(DataError, match=message):
        read_tracked_videos(path, (1, 6, 8, 3))
