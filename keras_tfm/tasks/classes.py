"""What tasks share that choose one of several classes for an image, a video or a cloud of points."""

import abc
import dataclasses
import logging
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import keras
import numpy as np

from keras_tfm.configs import Between, Config, Field, FieldError, Natural, Option, Rate, Size
from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.epochs import Batches, HeldOut
from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.heads.classification import Classifier, classification_loss, soft_classification_loss
from keras_tfm.heads.distilled import DistilledClassifier
from keras_tfm.serving.examples import as_columns, refuse_empty, refuse_unknown
from keras_tfm.tasks.baselines import Baselines, of_classes
from keras_tfm.tasks.class_weights import class_weights
from keras_tfm.tasks.columns import rows_of
from keras_tfm.tasks.images.image_families import ImageOptions
from keras_tfm.tasks.images.image_task import preprocessing_in
from keras_tfm.tasks.judgements import Judgements, judged_classes
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.measures import cross_entropy
from keras_tfm.tasks.media import MediaTask
from keras_tfm.tasks.records import records_of
from keras_tfm.tasks.task import label_entries
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.training.diagnosis import SOME
from keras_tfm.training.folder import Path
from keras_tfm.training.options import ShareOfArea, WeightedClasses

LOG = logging.getLogger(__name__)
ONE_CLASS = "single_label_classification"  # in a published config.json
AreaOfCrop = Annotated[ShareOfArea, Option("smallest share of an image's area in a crop of --augment")]


@dataclasses.dataclass(frozen=True)
class ClassNames(Config):
    """The classes, and the head that chooses among them.

    Args:
        class_names: strings, or integers, in the order of the logits.
        hidden_dim: width of a hidden layer of the head, or None.
        dropout: dropout rate before the head's last layer.
    """

    class_names: tuple[str, ...] | tuple[int, ...]
    hidden_dim: Size | None = None
    dropout: Rate = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(np.atleast_1d(self.class_names).tolist()))
        names = self.class_names
        if len(set(names)) < max(2, len(names)) or {type(name) for name in names} not in ({str}, {int}):
            raise ValueError(
                f"`class_names` must be different strings, or integers, two at least; they are {names}."
            )
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class ClassesConfig(ClassNames, Preprocessing):
    """`ClassNames`, and how images, or the frames of videos, are prepared."""


@dataclasses.dataclass(frozen=True)
class ChangedImages(Config):
    """How the images of a training are changed at random, each by itself."""

    max_shift: Annotated[
        Natural, Option("shift images at random by up to N pixels in each direction, filling with zeros")
    ] = 0
    augment: Annotated[
        Literal["none", "light", "strong"],
        Option("augment images: light crops and mirrors at random, strong adds RandAugment and erasing"),
    ] = "none"
    flip: Annotated[bool, Option("let --augment mirror images; turn it off for letters and digits")] = True
    least_area: AreaOfCrop = 0.25


@dataclasses.dataclass(frozen=True)
class Augmented(ChangedImages, WeightedClasses):
    """`ChangedImages` that are mixed too, with softer labels, and the weights of their classes."""

    mixup: Annotated[
        Annotated[float, Between(0, 10)],
        Option("MixUp: mix images of a batch and their labels by a share drawn from Beta(R, R); 0 is off"),
    ] = 0.0
    cutmix: Annotated[
        Annotated[float, Between(0, 1)],
        Option("CutMix: paste a part of one image into another; a batch uses either MixUp or CutMix"),
    ] = 0.0
    label_smoothing: Annotated[
        Annotated[float, Between(0, 1, is_open=True)],
        Option("share of each label that is spread over all classes"),
    ] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.class_weight is not None:
            for name in ("teacher", "mixup", "cutmix"):
                if getattr(self, name, None):
                    raise FieldError(
                        "{class_weight} needs labels of one class each: leave out {}.", Field(name)
                    )


class ClassifyingTask(MediaTask, FineTunedTask):
    """A task that gives each input one of the `class_names` of its `config`, a `ClassNames`. Its `unit`
    is the plural of what it reads, and the name of that column of examples. Abstract.
    """

    record_fields = ("answer", "confidence")
    columns = (2,)
    held_out = HeldOut(0.1, least=100)
    gives_new_heads = True
    head_classes = (Classifier, DistilledClassifier)
    top: ClassVar[int | None] = None  # `evaluate` counts whether the class is among so many likeliest, too
    more_sizes: ClassVar[tuple[str, ...]] = ()  # options, beside the model's own, that choose another size
    config: Any

    def __init__(self, backbone: keras.Model, class_names: Any, **fields: Any):
        self.config = self.config_class(class_names, **fields)
        self.model = self.with_head(backbone)
        count = len(self.config.class_names)
        if self.model.num_classes != count:
            known = f"{self.model.num_classes} different names, as the head has them"
            raise FieldError("{class_names} must be {}; they are {}.", known, count)
        self.take(self.model.backbone)

    @abc.abstractmethod
    def take(self, backbone: keras.Model) -> None:
        """Note the size of what a model of this task reads; ValueError for another model."""

    def with_head(self, model: keras.Model) -> keras.Model:
        """The model, or, if it has no head, a new one on its pooled output, or on the mean of its states."""
        if isinstance(model, Classifier):
            return model
        pooling = "first" if "pooled_output" in model.output else "mean"
        count = len(self.config.class_names)
        return Classifier(model, count, self.config.hidden_dim, self.config.dropout, pooling=pooling)

    @property
    def answer_names(self) -> Any:
        return self.config.class_names

    @property
    def class_names(self) -> np.ndarray:
        """The names of the classes, in the order of the logits."""
        return np.array(self.config.class_names)

    @property
    def encoder(self) -> keras.Model:
        """The model without its head."""
        return self.model.backbone

    @abc.abstractmethod
    def check_inputs(self, inputs: Any) -> Any:
        """The inputs in the form that `batches` takes; ValueError for anything else."""

    @property
    @abc.abstractmethod
    def input_size(self) -> str:
        """The size of what the model reads, in words."""

    @classmethod
    def make(
        cls,
        examples: tuple[Any, np.ndarray],
        options: ImageOptions,
        changes: Mapping[str, Any],
        **fields: Any,
    ) -> Self:
        make: Any = cls
        task = make(options.model(changes), np.unique(examples[1]), **fields)
        flags = ["--family", "--size", *options.set_here.values(), *cls.more_sizes]
        LOG.info(
            "a new %s, %s: %s become %s; %s and %s choose others, --from starts from trained weights",
            type(task.model.backbone).__name__,
            options.size,
            cls.unit,
            task.input_size,
            ", ".join(flags[:-1]),
            flags[-1],
        )
        return task

    @classmethod
    def labels_in(cls, examples: tuple[Any, np.ndarray]) -> set[str]:
        return set(map(str, np.unique(examples[1])))

    def weigh_classes(self, batches: Batches, examples: tuple[Any, np.ndarray], training: Any) -> None:
        """Give batches to train on the weights of their labels' classes."""
        names = list(map(str, self.class_names))
        batches.class_weights = class_weights(training, np.asarray(examples[1]), names)

    def objective(self, training: Any) -> dict[str, Any]:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        return {"loss": classification_loss(), "weighted_metrics": [accuracy]}

    def predict(self, inputs: Any, /, *, probabilities: bool = False, batch_size: int = 64) -> np.ndarray:
        """The likeliest class name of each input, (B,); with `probabilities=True`, all probabilities (B,
        classes).
        """
        values = self.probabilities(inputs, batch_size)
        return values if probabilities else self.class_names[values.argmax(-1)]

    def records(
        self, inputs: Any, /, *, probabilities: bool = False, batch_size: int = 64
    ) -> list[dict[str, Any]]:
        """ "answer" and "confidence", the probability of the class; see `Task.records`."""
        return self.records_in(self.probabilities(inputs, batch_size), probabilities)

    def records_in(self, values: np.ndarray, probabilities: bool) -> list[dict[str, Any]]:
        """The `records` of probabilities (B, classes)."""
        names = self.config.class_names
        answers = [names[place] for place in values.argmax(-1)]
        return records_of(answers, values.max(-1), names, values if probabilities else None)

    def probabilities(self, inputs: Any, /, batch_size: int = 64) -> np.ndarray:
        """The probability of each class for each input, (B, classes)."""
        return self.outputs(inputs, "probabilities", len(self.class_names), batch_size)

    def measure(self, examples: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
        """ "accuracy" from 0 to 1, also of the `top` likeliest classes where there are more, and "loss", the
        mean cross-entropy in nats.
        """
        return self.judge(examples).measures

    def judge(self, examples: tuple[Any, np.ndarray]) -> Judgements:
        inputs, labels = examples
        values = self.probabilities(inputs)
        measures = {"accuracy": np.mean(values.argmax(-1) == labels)}
        if self.top is not None and len(self.class_names) > self.top:
            best = np.argsort(-values, axis=-1, kind="stable")[:, : self.top]  # (B, top)
            measures[f"top_{self.top}_accuracy"] = np.mean((best == labels[:, None]).any(-1))
        measures["loss"] = cross_entropy(values, labels)
        return judged_classes(measures, self.config.class_names, labels, values)

    def check_examples(self, examples: Any) -> tuple[Any, np.ndarray]:
        """(inputs, labels), checked; labels (B,) become indices of the class names."""
        inputs, labels = as_columns(examples, self.unit, "labels")
        inputs, labels = self.check_inputs(inputs), np.asarray(labels)
        refuse_empty(inputs, self.unit)
        if labels.shape != (len(inputs),):
            raise ValueError(
                f"`labels` must be one for each of {len(inputs)} {self.unit}; the shape is {labels.shape}."
            )
        names = self.config.class_names
        if labels.dtype.kind in "iu" and isinstance(names[0], str):
            names = range(len(names))
        elif labels.dtype.kind == "U":  # files have the names of numbers
            names = tuple(map(str, names))
        places = {name: place for place, name in enumerate(names)}
        refuse_unknown(labels.tolist(), names, "labels")
        return inputs, np.array([places[label] for label in labels.tolist()], "int32")

    def classes_in(self, examples: tuple[Any, np.ndarray]) -> np.ndarray:
        return examples[1]

    def baselines(
        self, examples: tuple[Any, np.ndarray], validation: tuple[Any, np.ndarray], seed: int
    ) -> Baselines:
        return Baselines("val_accuracy", "max", of_classes(examples[1], validation[1]), len(validation[1]))

    def some_answers(self, validation: tuple[Any, np.ndarray]) -> list:
        inputs, _ = rows_of(validation, np.arange(min(SOME, len(validation[1]))))
        return self.predict(inputs).tolist()


class VisualClassifyingTask(ClassifyingTask):
    """A `ClassifyingTask` of images or videos, whose `config` is a `ClassesConfig`, and whose `unit` is the
    name of the model's input. Abstract.
    """

    more_sizes = ("--image-size",)
    make_batches: ClassVar[Any] = ImageBatches
    processor: ClassVar[str | None] = None  # transformers' class that prepares the inputs, if not any model's

    @abc.abstractmethod
    def prepare(self, inputs: Any) -> Any:
        """Raw inputs as the model's input. Works in a graph and eagerly."""

    @classmethod
    def make(
        cls,
        examples: tuple[Any, np.ndarray],
        options: ImageOptions,
        changes: Mapping[str, Any],
        **fields: Any,
    ) -> Self:
        return super().make(examples, options, with_side(changes, fields), **fields)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, cls.head_classes) and cls.unit in model.input

    @classmethod
    def from_huggingface(cls, name: Path, examples: Any = None, **fields: Any) -> Self:
        """The classifier in the folder `name` of transformers or, for images, timm (or of this hub id).

        With `examples`, it gets a new head unless the folder's head knows their classes.

        Raises:
            CheckpointError: if a file of the folder is missing or not as it must be.
        """
        from keras_tfm.convert import CheckpointError, find_folder
        from keras_tfm.convert.folder import read_config
        from keras_tfm.convert.preprocessing import image_model, label_names

        folder = find_folder(name)
        model, published = image_model(folder)
        fields = published | fields
        if cls.takes(model):
            names = label_names(folder, model.num_classes)
            if examples is None or set(np.unique(examples[1]).tolist()) <= set(names):
                kind = read_config(folder).get("problem_type")
                if kind not in (None, ONE_CLASS):
                    raise CheckpointError(folder / "config.json", "problem_type", ONE_CLASS, kind)
                return cls(model, names, **fields)
        backbone = getattr(model, "backbone", model)
        if cls.unit not in backbone.input or "pooled_output" not in backbone.output:
            raise CheckpointError(name, "model_type", f"a model of {cls.unit}", type(backbone).__name__)
        if examples is None:
            raise CheckpointError(name, "architectures", f"one for {cls.name!r}", type(model).__name__)
        return cls(backbone, np.unique(examples[1]), **fields)

    def save_huggingface(self, folder: Path, overwrite: bool = False) -> None:
        """Write a new `folder` for `transformers`: config.json, preprocessor_config.json and
        model.safetensors.

        Raises:
            TypeError: if transformers has no such model.
        """
        from keras_tfm.convert import save_huggingface
        from keras_tfm.convert.preprocessing import preprocessor_writer

        entries = label_entries(map(str, self.class_names))
        shape = self.encoder.input[self.unit].shape[-3:]
        writer = preprocessor_writer(preprocessing_in(self.config), shape, self.processor)
        save_huggingface(self.model, folder, overwrite, entries, writers=[writer])

    def batches(
        self, examples: tuple[Any, np.ndarray], training: Any, is_validation: bool = False
    ) -> ImageBatches:
        augmentation = augmentation_of(training)
        is_soft = augmentation.is_soft or getattr(training, "teacher", None) is not None
        learning: dict[str, Any] = {
            "seed": training.seed,
            "max_shift": training.max_shift,
            "augmentation": augmentation,
        }
        batches = self.make_batches(
            *examples,
            self.prepare,
            training.batch_size,
            num_classes=len(self.class_names) if is_soft else None,
            **({} if is_validation else learning),
        )
        if not is_validation:
            self.weigh_classes(batches, examples, training)
        return batches

    def objective(self, training: Any) -> dict[str, Any]:
        if not augmentation_of(training).is_soft:
            return super().objective(training)
        loss = soft_classification_loss()
        return {"loss": loss, "weighted_metrics": [keras.metrics.CategoricalAccuracy(name="accuracy")]}


def augmentation_of(training: Augmented) -> Augmentation:
    """How the inputs of a training are augmented."""
    return Augmentation(
        training.augment,
        training.flip,
        training.least_area,
        training.mixup,
        training.cutmix,
        training.label_smoothing,
    )
