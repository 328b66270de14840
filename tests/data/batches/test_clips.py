"""Clips in batches: which frames of a video, changed alike, the same again after a restart."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm.data import Augmentation, ClipBatches, Sampling, VideoFiles
from keras_tfm.data.batches.clips import places_of
from keras_tfm.serving import video_files
from tests.data.sources.made_videos import grey_frames, write_video


def ramps(lengths, size=(4, 4, 3)):
    """Videos whose frame t of video n has the level 20 n + t."""
    return [np.arange(20 * n, 20 * n + t).astype("uint8").repeat(np.prod(size)).reshape(t, *size)
            for n, t in enumerate(lengths)]  # fmt: skip


def as_numbers(images):
    return tf.cast(images, tf.float32)


def levels(batches, epoch=0):
    """The levels (N, T) of the frames of an epoch, and its labels."""
    inputs, labels = zip(*batches.dataset(epoch), strict=True)
    return np.concatenate([x["videos"][..., 0, 0, 0] for x in inputs]), np.concatenate(labels)


@pytest.mark.parametrize("options", [{}, {"every": 2}, {"seconds": 0.3}])
def test_a_graph_chooses_the_frames_that_the_host_does(options):
    rng = np.random.default_rng(3)
    for _ in range(50):
        count, wanted, share = int(rng.integers(2, 20)), int(rng.integers(1, 8)), float(rng.uniform())
        times = np.sort(rng.uniform(0, 4, count))
        expected = video_files.places_of(times, times[-1] + 0.2, wanted, **options, share=share)
        found = places_of(tf.constant(times), times[-1] + 0.2, wanted, **options, share=share)
        np.testing.assert_array_equal(found, expected)


def test_without_a_seed_the_middle_clips_come_in_order():
    videos = VideoFiles(ramps([8, 4, 3, 9, 8]), (4, 4, 4, 3))
    found, labels = levels(ClipBatches(videos, [0, 1, 2, 3, 4], as_numbers, batch_size=2))
    np.testing.assert_array_equal(found, np.asarray(videos)[..., 0, 0, 0])
    assert found[0].tolist() == [1, 3, 5, 7] and labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_epochs_draw_other_clips_and_the_same_for_a_seed(is_in_memory, monkeypatch):
    if not is_in_memory:
        monkeypatch.setattr(VideoFiles, "fits_memory", False)
    videos = VideoFiles(ramps([16] * 4), (4, 4, 4, 3), sampling=Sampling(frame_step=2))
    batches = ClipBatches(videos, [0, 1, 2, 3], as_numbers, batch_size=2, seed=7)
    assert batches.decodes_later != is_in_memory
    epochs = [levels(batches, number) for number in range(4)]
    for found, labels in epochs:
        starts = found[:, 0] - 20 * labels
        assert ((starts >= 0) & (starts < 10)).all()
        np.testing.assert_array_equal(np.diff(found), 2)
    assert len({tuple(found[labels == 1][0]) for found, labels in epochs}) > 1  # other clips of one video
    again = ClipBatches(videos, [0, 1, 2, 3], as_numbers, batch_size=2, seed=7)
    np.testing.assert_array_equal(levels(again, 3)[0], epochs[3][0])


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_restored_iterator_goes_on(is_in_memory, monkeypatch, tmp_path):
    if not is_in_memory:
        monkeypatch.setattr(VideoFiles, "fits_memory", False)
        for number in range(4):
            write_video(tmp_path / f"{number}.mp4", grey_frames(range(60 * number, 60 * number + 12, 3)))
        videos = VideoFiles([tmp_path / f"{number}.mp4" for number in range(4)], (2, 8, 8, 3))
    else:
        videos = VideoFiles(ramps([9] * 4), (2, 4, 4, 3))
    batches = ClipBatches(videos, [0, 1, 2, 3], as_numbers, batch_size=2, seed=1)
    first = iter(batches.epochs())
    for _ in range(3):
        next(first)
    saved = tf.train.Checkpoint(iterator=first).save(str(tmp_path / "state"))
    expected = [next(first)[0]["videos"] for _ in range(3)]
    second = iter(batches.epochs())
    tf.train.Checkpoint(iterator=second).restore(saved)
    for videos in expected:
        np.testing.assert_array_equal(next(second)[0]["videos"], videos)


def test_the_frames_of_a_clip_are_changed_alike():
    rng = np.random.default_rng(0)
    stills = [rng.integers(0, 256, (1, 16, 16, 3), "uint8").repeat(4, 0) for _ in range(8)]
    augmentation = Augmentation("light", mixup=9.0)
    batches = ClipBatches(
        VideoFiles(stills, (4, 16, 16, 3)), [0, 1] * 4, as_numbers, 4, 1, 2, augmentation, num_classes=2
    )
    inputs, labels = zip(*batches.dataset(), strict=True)
    videos, labels = np.concatenate([x["videos"] for x in inputs]), np.concatenate(labels)
    np.testing.assert_allclose(videos, videos[:, :1].repeat(4, 1), atol=1e-6)
    assert labels.shape == (8, 2) and ((labels > 0) & (labels < 1)).any()
    whole = np.stack(stills)[:, 0] / 255
    assert min(abs(videos[:, None, 0] - whole).max((2, 3, 4)).min(1)) > 0.01


@pytest.mark.slow
def test_strong_augmentation_runs():
    videos = VideoFiles(ramps([4] * 4, (16, 16, 3)), (4, 16, 16, 3))
    batches = ClipBatches(videos, [0, 1] * 2, as_numbers, 2, 1, augmentation=Augmentation("strong"))
    assert all(np.isfinite(inputs["videos"]).all() for inputs, _ in batches.dataset())
