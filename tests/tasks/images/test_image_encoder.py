"""Images as vectors: predicted, compared, kept, exported; and what measures how good vectors are."""

import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.models import ViT
from keras_tfm.tasks import (
    ImageClassifier,
    ImageEncoder,
    ImageEncoderConfig,
    linear_probe,
    nearest_neighbours,
)
from tests.fresh_process import ask
from tests.tasks.test_image_classifier import NAMES, SMALL, examples


@pytest.fixture(scope="module")
def encoder():
    classifier = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    for weight in classifier.model.weights:
        weight.assign(np.random.default_rng(1).normal(0, 0.5, weight.shape))
    return ImageEncoder.from_task(classifier, interpolation="bicubic")


def test_vectors_are_the_pooled_output(encoder):
    images, _ = examples(5)
    outputs = encoder(images)
    pooled = np.asarray(outputs["pooled_output"])
    expected = pooled / np.linalg.norm(pooled, axis=-1, keepdims=True)
    np.testing.assert_allclose(encoder.predict(images, batch_size=2), expected, atol=1e-5)
    mean = ImageEncoder(encoder.model, ImageEncoderConfig(pooling="mean", normalize=False))
    tokens = np.asarray(outputs["sequence_output"]).mean(1)
    np.testing.assert_allclose(mean.predict(images), tokens, atol=1e-5)
    cosines = tokens @ tokens.T / np.outer(*[np.linalg.norm(tokens, axis=-1)] * 2)
    np.testing.assert_allclose(mean.similarity(images, images), cosines, atol=1e-5)
    assert encoder.predict(images[:0]).shape == (0, 16)


def test_it_is_kept_and_exported(encoder, tmp_path):
    encoder.save(tmp_path / "run")
    kept = tasks.load(tmp_path / "run")
    assert type(kept) is ImageEncoder and kept.config == encoder.config
    generator = np.random.default_rng(0)
    files = [
        tf.io.encode_png(generator.integers(0, 256, (*size, 1), "uint8")).numpy()
        for size in ((9, 30), (8, 8))
    ]
    vectors = kept.predict(files)
    np.testing.assert_allclose(vectors, encoder.predict(files), atol=1e-6)
    kept.export(tmp_path / "served")
    np.testing.assert_allclose(
        ask(tmp_path / "served", of_text=False, image_bytes=files)["vector"], vectors, atol=1e-5
    )
    assert len(kept.as_line(vectors[0]).split()) == 16


def test_it_takes_what_reads_images(encoder):
    assert ImageEncoder.takes(encoder.model) and not tasks.SentenceEncoder.takes(encoder.model)
    assert ImageClassifier.takes(ImageClassifier(encoder.model, NAMES).model)
    assert not tasks.TextClassifier.takes(ImageClassifier(encoder.model, NAMES).model)
    large = ImageEncoder(encoder.model, ImageEncoderConfig(image_size=16))
    assert large.image_shape == (16, 16, 1) and isinstance(large.model, ViT)
    with pytest.raises(ValueError, match="`mean` must have 1 or 1 values"):
        ImageEncoder(encoder.model, ImageEncoderConfig(mean=(0.1, 0.2)))
    recommender = tasks.Recommender.from_ratings((["a", "b"], ["x", "y"], [1.0, 2.0]), dim=2)
    with pytest.raises(ValueError, match="it is a 'recommend' task"):
        ImageEncoder.from_task(recommender)


def clusters(count, seed):
    """Vectors of length 1 around three directions, and which."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    vectors = np.eye(3, 5)[labels] + generator.normal(0, 0.2, (count, 5))
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.array(["a", "b", "c"])[labels]


def test_neighbours_vote_by_their_cosine():
    vectors = np.array([[1.0, 0], [0.6, 0.8], [0.6, 0.8], [0, 1]])
    labels = np.array(["x", "y", "y", "z"])
    asked = np.array([[1.0, 0], [0, 1]])
    assert nearest_neighbours(vectors, labels, asked, 1).tolist() == ["x", "z"]
    # exp(0.6 / t) twice beside exp(1 / t): two nearer neighbours win where the temperature is high.
    assert nearest_neighbours(vectors, labels, asked, 3, temperature=10.0).tolist() == ["y", "y"]
    assert nearest_neighbours(vectors, labels, asked, 3, temperature=0.1).tolist() == ["x", "z"]
    vectors, labels = clusters(300, 0)
    asked, right = clusters(2_000, 1)
    assert (nearest_neighbours(vectors, labels, asked) == right).mean() > 0.97


def test_a_linear_probe_finds_what_is_linear():
    vectors, labels = clusters(300, 0)
    asked, right = clusters(200, 1)
    kernel, bias, names = linear_probe(vectors, labels)
    assert kernel.shape == (5, 3) and (names[(asked @ kernel + bias).argmax(-1)] == right).mean() > 0.97
    # At the minimum the gradient is nothing: the shares' error is the decay's.
    logits = vectors @ kernel + bias
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    error = shares - (labels[:, None] == names)
    np.testing.assert_allclose(vectors.T @ error / len(vectors), -1e-3 * kernel, atol=1e-4)
