"""Pre-training on videos: hidden tubes are learnt, vectors are tested and kept, a classifier goes on."""

import keras
import numpy as np
import pytest

from keras_tfm import serving, tasks
from keras_tfm.models import ViViT, tiny_config
from keras_tfm.tasks import VideoClassifier, VideoPretrainer, VideoPretrainerConfig
from tests.data.sources.made_videos import grey_frames, write_sound, write_video
from tests.tasks.videos.test_video_classifier import NAMES, SMALL, examples

SIZES = {name: SMALL[name] for name in ("num_frames", "image_size", "num_layers", "dim", "num_heads")}
SIZES |= {"patch_size": 4, "intermediate_dim": 32}
OWN = {"mask_ratio": 0.75, "decoder_layers": 1, "decoder_dim": 32}


@pytest.fixture(scope="module")
def task():
    keras.utils.set_random_seed(0)
    task = VideoPretrainer.make(None, VideoPretrainer.model_options(), SIZES, **OWN)
    videos, _ = examples(128)
    task.history = task.fit(videos, epochs=5, batch_size=16, learning_rate=5e-3, flip=False)
    return task


def test_it_learns_what_hidden_tubes_show(task):
    losses = task.history["val_loss"]
    assert losses[-1] < 0.9 * losses[0]
    videos, labels = examples(100, seed=1)
    measures = task.evaluate((videos, labels))
    assert set(measures) == {"neighbour_accuracy", "pixel_accuracy", "probe_accuracy", "videos"}
    assert measures["probe_accuracy"] > 0.6


def test_vectors_are_kept_and_exported(task, tmp_path):
    videos, _ = examples(3, seed=2, length=4)
    vectors = task.predict(videos)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=-1), 1, atol=1e-5)
    states = task.encoder({"videos": task.prepare(videos)})["pooled_output"].numpy()
    np.testing.assert_allclose(vectors, states / np.linalg.norm(states, axis=-1, keepdims=True), atol=1e-5)
    task.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    assert type(again) is VideoPretrainer and again.config == task.config
    np.testing.assert_allclose(again.predict(videos), vectors, atol=1e-6)
    task.export(tmp_path / "served")
    served = serving.load(tmp_path / "served")(list(videos))["vector"]
    np.testing.assert_allclose(served, vectors, atol=1e-5)
    assert len(task.as_line(vectors[0]).split()) == 16


def test_a_classifier_goes_on(task, tmp_path):
    task.save(tmp_path / "run")
    pairs = examples(6, seed=3)[0], np.array(NAMES * 2)
    classifier = VideoClassifier.start_from(tmp_path / "run", pairs)
    assert classifier.class_names.tolist() == sorted(NAMES) and classifier.video_shape == (4, 8, 8, 3)
    learnt = {weight.path: weight.numpy() for weight in task.model.backbone.weights}
    for weight in classifier.model.backbone.weights:
        np.testing.assert_array_equal(weight, learnt[weight.path])
    reading = VideoClassifier.reading(VideoClassifier.model_options(), {}, tmp_path / "run")
    assert reading["video_shape"] == (4, 8, 8, 3)
    assert VideoPretrainer.adopt(task, None) is task
    assert VideoPretrainer.adopt(task, None, mask_ratio=0.5).model.mask_ratio == 0.5


def test_what_it_refuses(task, tmp_path):
    videos, labels = examples(4)
    write_sound(tmp_path / "sound.mp4")
    with pytest.raises(ValueError, match=r"`backbone` must be a VideoMAE; it is a ViViT"):
        VideoPretrainer(ViViT(tiny_config(ViViT)))
    with pytest.raises(ValueError, match="`decoder_dim` must be a multiple of 32; it is 20"):
        VideoPretrainerConfig(decoder_dim=20)
    with pytest.raises(ValueError, match="`videos` must not be empty"):
        task.fit(videos[:0])
    with pytest.raises(ValueError, match=r"expected \(videos, labels\), since labels are needed"):
        task.evaluate(videos)
    with pytest.raises(ValueError, match=r"expected videos, or \(videos, labels\) of one length"):
        task.evaluate((videos, labels[:2]))
    with pytest.raises(ValueError, match=r"sound\.mp4: expected a video"):
        task.read_files([tmp_path], **task.file_fields)
    with pytest.raises(
        ValueError, match="--from: expected a 'pretrain-videos' task, got a 'classify-videos'"
    ):
        VideoPretrainer.adopt(VideoClassifier.from_size("tiny", NAMES, **SMALL), None)
    write_video(tmp_path / "up.mp4", grey_frames([60, 90, 110, 130, 150, 180], (16, 16)))
    assert len(task.read_files([tmp_path], **task.file_fields)) == 1  # the sound is left out
