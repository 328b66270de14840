"""Distillation: learn from a teacher's predictions as well as from labels.

Touvron et al. 2021, "Training data-efficient image transformers & distillation through attention", sections 2
to 4; soft distillation follows Hinton et al. 2015. Within each training step the teacher sees the same
augmented images as the student. The labels of a batch, one-hot or mixed (B, C), become (B, 2 C): the
teacher's logits are appended. The loss sees by the width of the labels whether there is a teacher.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_tfm.configs import Between, Config, FieldError, Option
from keras_tfm.heads.distilled import DistilledClassifier
from keras_tfm.training.changed_steps import ChangedStep
from keras_tfm.training.compiled import compiled_for
from keras_tfm.training.model import Model

WEIGHTS = {"hard": 0.5, "soft": 0.1}  # from section 3, and from the authors' code


class Teacher(NamedTuple):
    """`prepare` makes a student's prepared images the teacher's, `logits` answers these in the order of the
    student's classes: two steps, for XLA has no kernel for the first, which resizes images.
    """

    prepare: Callable[[tf.Tensor], tf.Tensor]
    logits: Callable[[tf.Tensor], tf.Tensor]


def teacher_of(task: Any, student: Any) -> Teacher:
    """The `Teacher` of a student; ValueError if it knows other classes, or reads other images."""
    if task.name != student.name:
        raise FieldError("{teacher} must be a task that classifies images; it is a {!r} task.", task.name)
    names = list(task.class_names)
    if missing := [name for name in student.class_names.tolist() if name not in names]:
        raise FieldError(
            "{teacher} must know the classes {}; it lacks {}.", student.class_names.tolist(), missing
        )
    if task.image_shape[-1] != student.image_shape[-1]:
        channels = student.image_shape[-1]
        raise FieldError("{teacher} must read {} channels; it reads {}.", channels, task.image_shape[-1])
    places = [names.index(name) for name in student.class_names.tolist()]
    mean, std = student.config.mean, student.config.std

    # The student's reading has cropped the images already: the teacher sees all of what the student sees.
    whole = dataclasses.replace(task.preprocessing, crop_fraction=1.0, keep_aspect=False)

    def prepare(images: tf.Tensor) -> tf.Tensor:
        raw = tf.clip_by_value(tf.cast(images, tf.float32) * std + mean, 0.0, 1.0)
        return whole.prepared(raw, *task.image_shape[:2])

    def logits(images: tf.Tensor) -> tf.Tensor:
        outputs = task.model({"images": images}, training=False)
        return tf.stop_gradient(tf.gather(tf.cast(outputs, tf.float32), places, axis=-1))

    return Teacher(prepare, logits)


def distilled_model(model: keras.Model) -> keras.Model:
    """The model to fit: a model with a distillation token gives the logits of both heads, (B, 2, C)."""
    if not isinstance(model, DistilledClassifier):
        return model
    logits = ops.stack([model.logits["class"], model.logits["distilled"]], axis=1)
    return Model(model.input, logits, name=model.name)


@dataclasses.dataclass(frozen=True)
class Distilled(Config):
    """What is learnt from a teacher, the fields of a training."""

    teacher: Annotated[
        str | None,
        Option("a RUN whose predictions on the same images are learnt too", default="none", metavar="RUN"),
    ] = None
    distillation: Annotated[
        Literal["hard", "soft"],
        Option("learn the teacher's likeliest class (hard), or its probabilities (soft)"),
    ] = "hard"
    temperature: Annotated[
        Annotated[float, Between(0, 1000, is_above=True)],
        Option("divisor of the logits in soft distillation", flag="--teacher-temperature"),
    ] = 3.0
    teacher_weight: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("share of the teacher in the loss", default="0.5, or 0.1 for soft distillation"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher is not None:
            if not os.path.exists(os.path.join(self.teacher, "config.json")):
                raise FieldError("{teacher} must be the folder of a task; {} is none.", self.teacher)
            object.__setattr__(self, "teacher", os.path.abspath(self.teacher))


class Taught(ChangedStep):
    """A callback that appends the teacher's logits to the labels of each batch during training."""

    def __init__(self, teacher: Teacher):
        super().__init__()
        self.teacher = teacher

    def train_step(self, data: Any) -> Any:
        """One step on a batch and the teacher's logits for it."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        logits = compiled_for(self.model, self.teacher.logits)(self.teacher.prepare(x["images"]))
        y = tf.concat([tf.cast(y, tf.float32), logits], axis=-1)
        return self.step(keras.utils.pack_x_y_sample_weight(x, y, sample_weight))


class DistillationLoss(keras.losses.Loss):
    """The cross-entropy with labels (B, C) or, if the labels are (B, 2 C), 1 - `weight` times that and
    `weight` times the teacher's part.

    The teacher's part is, for `kind="hard"`, the cross-entropy with the teacher's likeliest class; for
    "soft", the squared `temperature` times the divergence of the student's probabilities from the teacher's,
    both at that temperature (equations 3 and 2). With logits (B, 2, C) the first head learns from the labels,
    the second from the teacher.
    """

    def __init__(self, kind: str, weight: float, temperature: float):
        super().__init__(name="loss", reduction="mean_with_sample_weight")
        self.kind, self.weight, self.temperature = kind, weight, temperature

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """One loss per example."""
        num_classes = y_pred.shape[-1]
        of_class, of_teacher = heads_of(y_pred)
        labels = y_true[:, :num_classes]
        if y_true.shape[-1] == num_classes:
            mean = (of_class + of_teacher) / 2
            return ops.categorical_crossentropy(labels, mean, from_logits=True)
        own = ops.categorical_crossentropy(labels, of_class, from_logits=True)
        answers = y_true[:, num_classes:]
        if self.kind == "hard":
            taught = ops.sparse_categorical_crossentropy(
                ops.argmax(answers, axis=-1), of_teacher, from_logits=True
            )
        else:
            theirs = ops.log_softmax(answers / self.temperature)
            ours = ops.log_softmax(of_teacher / self.temperature)
            taught = self.temperature**2 * ops.sum(ops.exp(theirs) * (theirs - ours), axis=-1)
        return (1 - self.weight) * own + self.weight * taught


def heads_of(logits: Any) -> tuple[Any, Any]:
    """The logits that learn from the labels, and the logits that learn from the teacher, (B, C) each."""
    return (logits, logits) if len(logits.shape) == 2 else (logits[:, 0], logits[:, 1])


def accuracy(y_true: Any, y_pred: Any) -> Any:
    """Whether the mean of both heads predicts the label, for each example."""
    of_class, of_teacher = heads_of(y_pred)
    labels = y_true[:, : y_pred.shape[-1]]
    right = ops.equal(ops.argmax(labels, axis=-1), ops.argmax(of_class + of_teacher, axis=-1))
    return ops.cast(right, "float32")


def distillation_objective(training: Distilled) -> dict[str, Any]:
    """Arguments of `compile` for a training with a teacher."""
    weight = WEIGHTS[training.distillation] if training.teacher_weight is None else training.teacher_weight
    loss = DistillationLoss(training.distillation, weight, training.temperature)
    return {"loss": loss, "weighted_metrics": [keras.metrics.MeanMetricWrapper(accuracy, name="accuracy")]}
