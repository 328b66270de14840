"""Learning from a teacher: the losses by hand, two heads, a fit of a DeiT, and what is no teacher."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_tfm import tasks
from keras_tfm.heads import DistilledClassifier
from keras_tfm.models import DeiT, ViT
from keras_tfm.tasks import ImageClassifier
from keras_tfm.tasks.images.distillation import DistillationLoss, accuracy, distilled_model, teacher_of
from tests.tasks.images.test_image_classifier import NAMES, SMALL, examples

DEIT = {name: value for name, value in SMALL.items() if name != "class_token"}


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def drawn():
    generator = np.random.default_rng(0)
    labels = np.eye(3)[[0, 2]]
    heads, answers = generator.normal(size=(2, 2, 3)), generator.normal(size=(2, 3))
    return labels, heads, answers


def test_hard_distillation_by_hand():
    labels, heads, answers = drawn()
    logs = np.log(softmax(heads))
    teacher = np.eye(3)[answers.argmax(-1)]
    expected = -(0.7 * (labels * logs[:, 0]).sum(-1) + 0.3 * (teacher * logs[:, 1]).sum(-1))
    loss = DistillationLoss("hard", 0.3, 1.0)
    both = np.concatenate([labels, answers], axis=-1)
    np.testing.assert_allclose(loss(both, heads), expected.mean(), rtol=1e-5)
    alone = -(labels * np.log(softmax(heads.mean(1)))).sum(-1).mean()
    np.testing.assert_allclose(loss(labels, heads), alone, rtol=1e-5)  # validation: the mean of the heads


def test_soft_distillation_by_hand():
    labels, heads, answers = drawn()
    one = heads[:, 0]  # a model of one head
    theirs, ours = softmax(answers / 3), softmax(one / 3)
    divergence = (theirs * np.log(theirs / ours)).sum(-1)
    own = -(labels * np.log(softmax(one))).sum(-1)
    expected = 0.9 * own + 0.1 * 9 * divergence
    both = np.concatenate([labels, answers], axis=-1)
    np.testing.assert_allclose(DistillationLoss("soft", 0.1, 3.0)(both, one), expected.mean(), rtol=1e-5)
    right = accuracy(keras.ops.convert_to_tensor(both), keras.ops.convert_to_tensor(heads))
    np.testing.assert_array_equal(right, heads.mean(1).argmax(-1) == labels.argmax(-1))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A RUN of other sizes, of another order of classes, with random weights."""
    keras.utils.set_random_seed(4)
    backbone = ViT.from_size("tiny", **SMALL | {"image_size": 12})
    task = ImageClassifier(backbone, [NAMES[2], NAMES[0], NAMES[1]], mean=0.3, std=0.4)
    task.folder = tmp_path_factory.mktemp("runs") / "teacher"
    task.save(task.folder)
    return task


def test_the_teacher_sees_the_raw_images_and_answers_in_the_student_s_order(teacher):
    student = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    images, _ = examples(5)
    learned = teacher_of(teacher, student)
    seen = learned.prepare(student.prepare(images[..., None]))
    expected = teacher(images.astype("float32") / 255)  # 8 bits would be resized in 8 bits
    for is_compiled in (False, True):
        answers = tf.function(learned.logits, jit_compile=is_compiled, autograph=False)(seen)
        np.testing.assert_allclose(answers, np.asarray(expected)[:, [1, 2, 0]], atol=1e-5)
    for names, channels, message in (
        (["x", "top"], 1, "lacks \\['x'\\]"),
        (NAMES, 3, "must read 3 channels; it reads 1"),
    ):
        other = ImageClassifier.from_size("tiny", names, **SMALL | {"num_channels": channels})
        with pytest.raises(ValueError, match=message):
            teacher_of(teacher, other)


def test_the_teacher_sees_all_that_the_student_sees():
    """Its own crop is for images that nobody has cropped."""
    backbone = ViT.from_size("tiny", **SMALL | {"image_size": 16})
    learned = teacher_of(
        ImageClassifier(backbone, NAMES, crop_fraction=0.5, keep_aspect=True),
        ImageClassifier.from_size("tiny", NAMES, **SMALL),
    )
    images = np.zeros((2, 8, 8, 1), "float32")
    images[1, 0] = 1
    dark, light = np.asarray(learned.prepare(images))
    assert (light[:2] > dark[:2]).all()


def test_a_deit_learns_with_both_heads(teacher, tmp_path):
    teacher.save(tmp_path / "teacher")
    keras.utils.set_random_seed(5)
    student = ImageClassifier(DeiT.from_size("Ti", **DEIT), NAMES)
    assert isinstance(student.model, DistilledClassifier)
    fitted = distilled_model(student.model)
    assert fitted.output.shape == (None, 2, 3)
    assert {weight.path for weight in fitted.weights} == {weight.path for weight in student.model.weights}
    before = [np.array(weight) for weight in student.model.distilled_head.weights]
    options = {"teacher": str(tmp_path / "teacher"), "run": tmp_path / "run", "learning_rate": 1e-2}
    history = student.fit(examples(96), examples(32, seed=1), epochs=3, batch_size=16, **options)
    assert history["loss"][-1] < history["loss"][0]
    assert all(
        np.abs(one - other).max() > 1e-4
        for one, other in zip(before, student.model.distilled_head.weights, strict=True)
    )
    kept = tasks.load(tmp_path / "run")
    assert isinstance(kept.model, DistilledClassifier)
    images, _ = examples(4, seed=2)
    np.testing.assert_allclose(kept.probabilities(images), student.probabilities(images), atol=1e-6)


def test_what_is_no_teacher_is_refused(tmp_path):
    student = ImageClassifier.from_size("tiny", NAMES, **SMALL)
    with pytest.raises(ValueError, match=r"`teacher` must be the folder of a task; .* is none"):
        student.fit(examples(8), teacher=str(tmp_path))
    recommender = tasks.Recommender.from_ratings((["a", "b"], ["x", "y"], [1.0, 2.0]), dim=2)
    segmenter = tasks.Segmenter(student.encoder, NAMES)
    for task in (recommender, segmenter):
        with pytest.raises(ValueError, match=f"must be a task that classifies images; it is a '{task.name}'"):
            teacher_of(task, student)
