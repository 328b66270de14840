"""Classifying images: a vision backbone, a head, and what turns raw images into its input."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
import tqdm

import keras_tfm.models
from keras_tfm.configs import Config, Rate, Size
from keras_tfm.data.epochs import hold_out
from keras_tfm.data.images import ImageBatches, check_images, decode_images, read_images, scale_images
from keras_tfm.data.inputs import Inputs
from keras_tfm.data.sources import fingerprint
from keras_tfm.heads.classification import Classifier, classification_loss
from keras_tfm.tasks.task import Task, describe_backbone, make_backbone, refuse_columns
from keras_tfm.training.fit import fit_best, trains
from keras_tfm.training.optimizers import AdamW
from keras_tfm.training.schedules import WarmupCosineSchedule


@dataclasses.dataclass(frozen=True)
class ImageClassifierConfig(Config):
    """`class_names` are strings, or integers, in the order of the logits. Pixels from 0 to 1 become
    (x - `mean`) / `std`, each one number for all channels or one for each. `hidden_dim` and `dropout` are
    those of `ClassificationHead`.
    """

    class_names: tuple[str, ...] | tuple[int, ...]
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    hidden_dim: Size | None = None
    dropout: Rate = 0.0

    def __post_init__(self):
        for field in ("class_names", "mean", "std"):  # JSON keeps lists, callers bring arrays
            object.__setattr__(self, field, tuple(np.atleast_1d(getattr(self, field)).tolist()))
        names = self.class_names
        if len(set(names)) < max(2, len(names)) or {type(name) for name in names} not in ({str}, {int}):
            raise ValueError(
                f"`class_names` must be different strings, or integers, two at least; they are {names}."
            )
        super().__post_init__()
        if not all(value > 0 for value in self.std):
            raise ValueError(f"`std` must be positive; it is {self.std}.")


class ImageClassifier(Task):
    """Images to class names by a `backbone` with a `pooled_output`, a `ViT` for example.

    Images are arrays (B, H, W, C), or (B, H, W) where the backbone takes one channel: 8-bit, or
    floating-point from 0 to 1; another size than the backbone's is resized. Labels are class names, or
    integers that count into names that are strings. `options` are the fields of `ImageClassifierConfig`.
    """

    name = "classify-images"
    config_class = ImageClassifierConfig

    def __init__(self, backbone, class_names, **options):
        self.config = ImageClassifierConfig(class_names, **options)
        self.class_names = np.array(self.config.class_names)
        self.image_shape = tuple(backbone.input["images"].shape[1:])
        for field in ("mean", "std"):
            values = getattr(self.config, field)
            if len(values) not in (1, self.image_shape[-1]):
                raise ValueError(f"`{field}` must have 1 or {self.image_shape[-1]} values; it is {values}.")
        self.model = Classifier(backbone, len(self.class_names), self.config.hidden_dim, self.config.dropout)
        self._classify = tf.function(self.classify, autograph=False, reduce_retracing=True)

    @classmethod
    def from_size(cls, size, class_names, **changes):
        """A classifier by a `ViT` of that size with fresh weights.

        `changes` replace fields of the size's configuration, for example `image_size=28`. Raises ValueError
        for an unknown size.
        """
        return cls(keras_tfm.models.ViT.from_size(size, **changes), class_names)

    def __call__(self, batch, training=False):
        """Logits (B, classes) of raw images, or of {"images": them}."""
        images = batch["images"] if isinstance(batch, dict) else batch
        return self.model({"images": self.prepare(self._check(images))}, training=training)

    def prepare(self, images):
        """Raw images (B, H, W, C) as the model takes them, in a graph or out of one."""
        height, width, _ = self.image_shape
        return scale_images(images, height, width, self.config.mean, self.config.std)

    @trains
    def fit(
        self,
        images,
        labels,
        validation=0.1,
        *,
        epochs=30,
        minutes=None,
        batch_size=64,
        learning_rate=1e-3,
        weight_decay=0.05,
        max_shift=0,
        patience=None,
        seed=0,
        run=None,
        save_minutes=10,
        resume=False,
        overwrite=False,
        tensorboard=False,
    ):
        """Train on `images` and `labels` and keep the best epoch: {measure: [value an epoch]}.

        `validation`, (images, labels) or the share to hold out at random, judges the epochs by its loss. The
        learning rate warms up over a tenth of the steps, or of the `minutes`, and falls by a half cosine;
        images are shifted at random by up to `max_shift` pixels. With `run` the best task so far stands in
        that folder, new or to `resume`, with checkpoints after every epoch and every `save_minutes`,
        metrics.csv and, with `tensorboard`, logs/; training stops after `patience` epochs without progress,
        or `minutes` in all.
        """
        images, labels = self._examples(images, labels)
        if isinstance(validation, float):
            rows, held = hold_out(len(images), seed, validation)
            judges = images[held], labels[held]
            images, labels = images[rows], labels[rows]
        else:
            judges = self._examples(*validation)
        batches = ImageBatches(images, labels, self.prepare, batch_size, seed, max_shift)
        judge = ImageBatches(judges[0], judges[1], self.prepare, batch_size)
        steps = batches.num_batches * epochs
        settings = {
            "epochs": epochs,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "weight_decay": weight_decay,
            "max_shift": max_shift,
            "seed": seed,
            "data": fingerprint(images, labels),
        }
        return fit_best(
            self.model,
            batches,
            judge.dataset(),
            schedule=WarmupCosineSchedule(learning_rate, max(1, steps // 10), steps + 1),
            optimizer=lambda schedule, **averages: AdamW(
                schedule, weight_decay, global_clipnorm=1.0, **averages
            ),
            objective={
                "loss": classification_loss(),
                "weighted_metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
            },
            monitor="val_loss",
            counts=("images", len(images), len(judges[0])),
            epochs=epochs,
            minutes=minutes,
            patience=patience,
            run=run,
            save=self.save,
            save_minutes=save_minutes,
            resume=resume,
            overwrite=overwrite,
            tensorboard=tensorboard,
            settings=settings,
        )

    def predict(self, images):
        """The likeliest class name of each image: an array (B,)."""
        return self.class_names[self.probabilities(images).argmax(-1)]

    def probabilities(self, images, batch_size=64):
        """The probability of each class for each image: an array (B, classes)."""
        images = self._check(images)
        answers = [np.zeros((0, len(self.class_names)), "float32")]
        with tqdm.tqdm(total=len(images), unit="image", disable=len(images) <= batch_size) as bar:
            for first in range(0, len(images), batch_size):
                answers.append(self._classify(images[first : first + batch_size]).numpy())
                bar.update(len(answers[-1]))
        return np.concatenate(answers)

    def evaluate(self, images, labels):
        """The accuracy, from 0 to 1, and the mean cross-entropy in nats: {"accuracy", "loss", "images"}."""
        images, labels = self._examples(images, labels)
        probabilities = self.probabilities(images)
        of_labels = probabilities[np.arange(len(labels)), labels]
        return {
            "accuracy": float(np.mean(probabilities.argmax(-1) == labels)),
            "loss": float(-np.mean(np.log(np.maximum(of_labels, np.finfo("float32").tiny)))),
            "images": len(images),
        }

    def classify(self, images):
        """Raw images (B, H, W, C) to probabilities (B, classes), wholly in the graph."""
        logits = self.model({"images": self.prepare(images)}, training=False)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    def _check(self, images):
        return check_images(images, self.image_shape[-1])

    def _examples(self, images, labels):
        """Images and labels (B,) that count into the class names, checked."""
        images, labels = self._check(images), np.asarray(labels)
        if not len(images):
            raise ValueError("`images` must not be empty.")
        if labels.shape != (len(images),):
            raise ValueError(
                f"`labels` must be one for each of {len(images)} images; the shape is {labels.shape}."
            )
        names = self.config.class_names
        if labels.dtype.kind in "iu" and isinstance(names[0], str):
            names = range(len(names))
        places = {name: place for place, name in enumerate(names)}
        unknown = sorted(set(labels.tolist()) - places.keys())
        if unknown:
            raise ValueError(f"`labels` must be among {list(names)}; {unknown[0]!r} is not.")
        return images, np.array([places[label] for label in labels.tolist()], "int32")

    def read_inputs(self, path, columns=None):
        refuse_columns(columns, "images have none")
        return Inputs(*read_images(path, *self.image_shape))

    def export_endpoints(self):
        names = tf.constant([str(name) for name in self.class_names])

        def answer(images):
            probabilities = self.classify(images)
            labels = tf.gather(names, tf.argmax(probabilities, axis=-1))
            return {"label": labels, "probabilities": probabilities}

        return {
            "serving_default": (lambda image_bytes: answer(decode_images(image_bytes, *self.image_shape)),
                                [tf.TensorSpec([None], tf.string, "image_bytes")]),
            "images": (answer, [tf.TensorSpec([None, *self.image_shape], tf.float32, "images")]),
        }  # fmt: skip

    def save_parts(self, folder):
        """Nothing: the class names stand in config.json."""

    def describe_model(self):
        return describe_backbone(self.model.backbone)

    @classmethod
    def load_parts(cls, folder, config, model):
        return cls(make_backbone(model), **dataclasses.asdict(config))
