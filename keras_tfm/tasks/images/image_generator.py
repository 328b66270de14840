"""Pictures out of noise: a diffusion model, of classes where its images have some."""

import dataclasses
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.asking import Making
from keras_tfm.configs import Refusal
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.batches.noisy_images import NoisyImageBatches
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.images import have_classes, read_labelled_images, read_unlabelled_images
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.generation.diffusion import generate_images
from keras_tfm.heads.denoiser import Denoiser
from keras_tfm.log import Bar
from keras_tfm.serving.examples import as_columns, check_column, not_id, not_text, refuse_single
from keras_tfm.tasks.baselines import MEAN, Baselines
from keras_tfm.tasks.images.drawing import Pictures, new_pictures
from keras_tfm.tasks.images.generator_options import (
    GeneratorOptions,
    GeneratorTraining,
    ImageGeneratorConfig,
)
from keras_tfm.tasks.images.image_task import (
    check_channels,
    checked_images,
    image_shape_of,
    preprocessing_in,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.learning import columns_of
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import load_any
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path, new_file

LOG = logging.getLogger(__name__)
NUM_STEPS = 1000  # of the schedule, as many as the schedules but "cosine" are made for


class ImageGenerator(TrainableTask):
    """Makes pictures of noise, by a `backbone` that learns to predict noise, a `DiT` or a `DiffusionUNet`.

    Examples are images, or (images, labels): then the model learns the class of each. Images are what
    `ImageTask` describes; of a model with one channel colours become grey. `fields` are fields of
    `ImageGeneratorConfig`.

    >>> sizes = {"image_size": 8, "patch_size": 2, "num_layers": 1, "dim": 32, "num_heads": 2}
    >>> backbone = keras_tfm.models.DiT.from_size("tiny", **sizes, intermediate_dim=64, num_classes=2)
    >>> task = keras_tfm.tasks.ImageGenerator(backbone, class_names=["dark", "light"])
    >>> images = np.repeat(np.array([0, 255] * 8, "uint8"), 8 * 8 * 3).reshape(16, 8, 8, 3)
    >>> history = task.fit((images, ["dark", "light"] * 8), epochs=1)
    >>> task.generate(["dark", "light", "light"], seed=1, steps=2).shape
    (3, 8, 8, 3)
    """

    name = "generate-images"
    start = "a RUN of this task with the same classes"
    files = (
        "what train classify-images reads; or, without classes, a folder of images, .npz or idx files, or a "
        "table and the one column of --columns"
    )
    columns = (1, 2)
    unit = "images"
    portion = 256
    held_out = HeldOut(0.05, 1_000, least=100)
    training = GeneratorTraining(epochs=100, patience=None, schedule="cosine")
    model_options = GeneratorOptions
    config_class = ImageGeneratorConfig
    config: ImageGeneratorConfig

    def __init__(self, backbone: keras.Model, config: ImageGeneratorConfig | None = None, **fields: Any):
        self.config = config = dataclasses.replace(config or ImageGeneratorConfig(), **fields)
        count, names = len(config.class_names), set(backbone.input) - {"images", "timesteps", "classes"}
        if names or backbone.config.num_classes != count:
            others = f" and reads {', '.join(sorted(names))}" if names else ""
            wanted = f"a model of {count} classes, `class_names`, that reads nothing else"
            raise Refusal("backbone", wanted, f"one of {backbone.config.num_classes}{others}")
        resized = with_image_size(backbone, config.image_size)
        self.model = Denoiser(
            resized, config.noise_schedule, NUM_STEPS, config.prediction, config.class_dropout
        )
        self.image_shape: tuple[int, int, int] = tuple(resized.input["images"].shape[1:])
        check_channels(config, self.image_shape[-1])
        self._makers: dict[tuple, Any] = {}

    @classmethod
    def make(
        cls, examples: Any, options: GeneratorOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        names = classes_of(examples)
        config = dataclasses.asdict(options.base()) | dict(changes) | {"num_classes": len(names)}
        if fields.get("image_size") is not None:
            config["image_size"] = fields["image_size"]
        family = options.model_class
        task = cls(family(family.config_class.from_json(config)), class_names=names, **fields)
        size, classes = "{} x {} pixels".format(*task.image_shape), f"{len(names) or 'no'} classes"
        LOG.info("a new %s, %s, for %s and %s", family.__name__, options.size, size, classes)
        return task

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        task = super().adopt(task, examples)
        names = classes_of(examples)
        if set(names) - set(task.config.class_names):
            known = ", ".join(task.config.class_names) or "none"
            raise ValueError(f"--from: its classes are {known}, the data's {', '.join(names)}")
        return cls(task.model.backbone, task.config, **fields)

    @classmethod
    def reading(
        cls, options: GeneratorOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return super().adopt(load_any(start), None).file_fields
        return {"image_shape": image_shape_of(dataclasses.replace(options.base(), **changes))}

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Any:
        """Images, of the shape and preprocessing that the fields describe, and the names of their classes
        where they have some.
        """
        shape, preprocessing = shape_and_preprocessing(**fields)
        if not have_classes(paths, columns):
            return read_unlabelled_images(paths, shape, columns, preprocessing)
        found = read_labelled_images(paths, *shape, columns, preprocessing)
        return found.images, np.array(found.class_names)[found.labels]

    @property
    def preprocessing(self) -> Preprocessing:
        """How images become the model's input."""
        return preprocessing_in(self.config)

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"image_shape": self.image_shape, "preprocessing": self.preprocessing}

    def check_examples(self, examples: Any, /) -> np.ndarray | ImageFiles | tuple[Any, np.ndarray]:
        """Images, or for a model of classes (images, classes), with classes as integers (N,)."""
        if not self.config.class_names and not isinstance(examples, tuple):
            return self._checked(examples)
        images, labels = as_columns(examples, "images", "labels")
        images = self._checked(images)
        check_column(labels, "labels", not_id)
        if len(labels) != len(images):
            raise ValueError(
                f"`labels` must be one for each of {len(images)} images; they are {len(labels)}."
            )
        if not self.config.class_names:
            return images
        for label in labels:
            if reason := self.refusal(str(label)):
                raise ValueError(f"`labels`: {reason}")
        return images, self._places(list(map(str, labels)))

    def _checked(self, images: Any) -> np.ndarray | ImageFiles:
        refuse_single(images, "`images`")
        images = checked_images(images, self.image_shape, self.preprocessing)
        if not len(images):
            raise ValueError("`images` must not be empty.")
        return images

    def _places(self, names: Sequence[str]) -> np.ndarray:
        """The names as integers (N,)."""
        places = {name: place for place, name in enumerate(self.config.class_names)}
        return np.array([places[name] for name in names], "int32")

    def classes_in(self, examples: Any) -> np.ndarray | None:
        return examples[1] if isinstance(examples, tuple) else None

    def batches(
        self, examples: Any, training: GeneratorTraining, is_validation: bool = False
    ) -> NoisyImageBatches:
        def prepare(images: tf.Tensor) -> tf.Tensor:
            return self.config.prepared(images, *self.image_shape[:2])

        learning: dict[str, Any] = {} if is_validation else {"seed": training.seed, "flip": training.flip}
        images, classes = columns_of(examples)[0], self.classes_in(examples)
        return NoisyImageBatches(images, classes, prepare, training.batch_size, NUM_STEPS, **learning)

    def objective(self, training: GeneratorTraining) -> dict[str, Any]:
        return {"loss": keras.losses.MeanSquaredError("mean_with_sample_weight", name="loss")}

    def baselines(self, examples: Any, validation: Any, seed: int) -> Baselines:
        noising = self.model.get_layer("noising")

        def run(inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            target = noising(inputs["images"], inputs["noise"], inputs["timesteps"])[1]
            return {"target": target, "prediction": target}

        rules = {MEAN: self._losses(validation, run)[1]}
        return Baselines("val_loss", "min", rules, len(columns_of(validation)[0]))

    def _losses(self, examples: Any, run: Any) -> tuple[float, float]:
        """The mean squared errors of the outputs of `run`, and of predicting the mean of all targets."""
        sums = np.zeros(4)
        for (inputs,) in self.batches(examples, self.training, is_validation=True).dataset():
            outputs = run(inputs)
            target, answer = (np.asarray(outputs[name], "float64") for name in ("target", "prediction"))
            sums += ((answer - target) ** 2).sum(), (target**2).sum(), target.sum(), target.size
        loss, square, mean, _ = sums / sums[-1]
        return float(loss), float(square - mean**2)

    def measure(self, examples: Any) -> dict[str, Any]:
        """ "loss", the mean squared error of what is predicted of noisy images, with the same noise in each
        call; "mean_loss", what predicting the mean would give; and their ratio "percent_of_mean". How good
        pictures look it does not say.
        """
        run = tf.function(lambda inputs: self.model(inputs, training=False), autograph=False)
        loss, baseline = self._losses(examples, run)
        return {"loss": loss, "mean_loss": baseline, "percent_of_mean": 100 * loss / baseline}

    def generate(
        self,
        classes: int | Sequence[str],
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
        batch_size: int = 16,
    ) -> np.ndarray:
        """New pictures, 8-bit (N, H, W, C).

        Args:
            classes: the name of each picture's class; or how many pictures, of no class.
            seed: of the first picture; the next ones have the next seeds. A class and a seed determine a
                picture.
            steps: from noise to a picture, at most 1,000, by default the configuration's.
            guidance: how far pictures are led to their class; 1 is not at all.

        Raises:
            ValueError: for an unknown class, and numbers out of range.
        """
        if isinstance(classes, int) and not isinstance(classes, bool):
            if classes < 1:
                raise Refusal("classes", "names of classes, or a number of pictures of at least 1", classes)
            places = np.full(classes, len(self.config.class_names), "int32")
        else:
            places = self._places(self.answerable(classes))
        if not len(places):
            return np.zeros((0, *self.image_shape), "uint8")
        return np.concatenate(list(self._made(places, seed, steps, guidance, batch_size)))

    def predict(
        self,
        lines: Any,
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
        batch_size: int = 16,
        draw: Pictures | None = None,
    ) -> list[dict[str, Any]]:
        """A picture for each line, which names its class; of a model without classes any line makes one.

        An answer has the "picture", 8-bit (H, W, C), its "seed", and its "file", None without `draw`: a
        folder, or a file for each line, for PNG files. The options are as in `generate`.
        """
        lines = self.answerable(lines, batch_size)
        files = None if draw is None else new_pictures(lines, draw)
        places = self._places(lines) if self.config.class_names else np.zeros(len(lines), "int32")
        answers: list[dict[str, Any]] = []
        for pictures in self._made(places, seed, steps, guidance, batch_size):
            for picture in pictures:
                row = len(answers)
                file = None if files is None else files[row]
                if file is not None:
                    with new_file(file) as work:
                        work.write_bytes(tf.io.encode_png(picture).numpy())
                answers.append({"seed": (seed + row) % 2**31, "picture": picture, "file": file})
        return answers

    def _made(
        self, places: np.ndarray, seed: int, steps: int | None, guidance: float | None, batch_size: int
    ) -> Iterator[np.ndarray]:
        """The pictures of the classes at these `places`, in batches."""
        Making(
            seed=seed, steps=steps, guidance=guidance, batch_size=batch_size
        )  # refuses what is out of range
        make = self._maker(steps, guidance)
        seeds = ((seed + np.arange(len(places))) % 2**31).astype("int32")
        with Bar(total=len(places), desc="drawing", unit="picture") as bar:
            for first in range(0, len(places), batch_size):
                part = slice(first, first + batch_size)
                yield make(tf.constant(places[part]), tf.constant(seeds[part])).numpy()
                bar.update(len(places[part]))

    def _maker(self, steps: int | None, guidance: float | None) -> Any:
        """A compiled function of classes (B,) and seeds (B,) to pictures (B, H, W, C), 8-bit."""
        names = self.config.class_names
        if guidance is not None and not names:
            raise Refusal("guidance", "left out, as the model has no classes", guidance)
        key = steps or self.config.steps, self.config.guidance if guidance is None else guidance
        if (*key, self.quantization()) not in self._makers:
            specs = [tf.TensorSpec([None], tf.int32, name) for name in ("classes", "seed")]

            @tf.function(input_signature=specs, autograph=False)
            def make(classes: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
                inputs, count = {"classes": classes} if names else {}, tf.shape(seeds)[0]
                guided = key[1] if names else 1.0
                images = generate_images(
                    self.model, count, inputs, num_steps=key[0], guidance=guided, seed=seeds
                )
                return tf.cast(tf.round((images + 1) * 127.5), tf.uint8)

            self._makers[*key, self.quantization()] = make
        return self._makers[*key, self.quantization()]

    def refusal(self, example: Any) -> str | None:
        names = self.config.class_names
        if (reason := not_text(example)) or not names or example in names:
            return reason
        return f"expected one of the classes {', '.join(names)[:200]}, got {example[:80]!r}"

    def as_line(self, answer: dict[str, Any]) -> str:
        return str(answer["seed"] if answer["file"] is None else os.fspath(answer["file"]))

    def records(self, lines: Any, /, *rest: Any, **options: Any) -> list[dict[str, Any]]:
        """ "answer", the picture's seed and, with `draw`, its file; see `Task.records`."""
        answers = self.predict(lines, *rest, **options)
        return [{"answer": self.as_line(answer)} for answer in answers]

    def export_endpoints(self, steps: int | None = None, guidance: float | None = None) -> Endpoints:
        """The bytes of PNG files by the seed of each picture and, of a model with classes, their names."""
        make, names = self._maker(steps, guidance), self.config.class_names
        specs = [tf.TensorSpec([None], tf.int32, "seed")]

        def answer(seed: tf.Tensor, classes: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
            places = tf.zeros_like(seed)
            if classes is not None:
                is_class = classes[:, None] == tf.constant(names)
                are_known, problem = (
                    tf.reduce_all(tf.reduce_any(is_class, 1)),
                    "Expected names of classes, got",
                )
                with tf.control_dependencies([tf.debugging.Assert(are_known, [problem, classes])]):
                    places = tf.argmax(is_class, 1, tf.int32)
            return {"png": tf.map_fn(tf.io.encode_png, make(places, seed), fn_output_signature=tf.string)}

        if not names:
            return {"serving_default": (answer, specs)}
        specs = [tf.TensorSpec([None], tf.string, "classes"), *specs]
        return {"serving_default": (lambda classes, seed: answer(seed, classes), specs)}


def classes_of(examples: Any) -> tuple[str, ...]:
    """The names of the classes of examples, in order; () for images alone."""
    return tuple(map(str, np.unique(examples[1]))) if isinstance(examples, tuple) else ()
