"""Pictures out of noise: a diffusion model, of classes or texts where its images have some. A family that
writes tokens makes an `ImageWriter`.
"""

import dataclasses
import itertools
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.asking import Making
from keras_tfm.configs import Refusal
from keras_tfm.data.batches.epochs import Batches, HeldOut
from keras_tfm.data.batches.noisy_images import NoisyImageBatches
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.image_texts import ImageTexts, read_image_texts
from keras_tfm.data.sources.images import have_classes, read_labelled_images, read_unlabelled_images
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.tokenizers.kinds import load_tokenizer, train_tokenizer
from keras_tfm.data.tokenizers.tokenizer import Tokenizer
from keras_tfm.generation.diffusion import generate_images
from keras_tfm.heads.denoiser import Denoiser
from keras_tfm.log import Bar
from keras_tfm.serving.examples import as_columns, refuse_empty, refuse_single
from keras_tfm.tasks.baselines import MEAN, Baselines
from keras_tfm.tasks.columns import columns_of
from keras_tfm.tasks.images.conditions import Condition, classes_of, condition_of, reason_against
from keras_tfm.tasks.images.drawing import Pictures, written
from keras_tfm.tasks.images.enlarging import SmallParts, enlarging_of, reader_of, small_of
from keras_tfm.tasks.images.features import compared, features_of
from keras_tfm.tasks.images.generator_options import (
    OF_CONDITIONS_ALONE,
    OF_TOKENS_ALONE,
    WRITERS,
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
from keras_tfm.tasks.images.text_encoders import given_encoder
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import load_any, make_backbone
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path

LOG = logging.getLogger(__name__)
WRITTEN = {family.__name__ for family in WRITERS.values()}
UNGUIDED = "the model has no classes"
NUM_STEPS = 1000  # of the schedule, as many as the schedules but "cosine" are made for


class ImageGenerator(TrainableTask):
    """Makes pictures of noise, by a `backbone` that learns to predict noise, a `DiT`, a `DiffusionUNet` or an
    `Imagen`.

    Examples are images, or (images, labels), and the model learns the class of each, or of an `Imagen`
    (images, texts), `data.ImageTexts`; its `tokenizer` reads the texts. Images are what `ImageTask`
    describes; of a model with one channel colours become grey. `fields` are fields of `ImageGeneratorConfig`.
    An `Imagen` that `is_super_resolution` enlarges the pictures of the `ImageGenerator` `small`, which reads
    texts by the same tokenizer, and of which it has a copy that is not trained any more.

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
        "table and the one column of --columns; for a family of texts what train caption reads"
    )
    columns = (1, 2)
    unit = "images"
    portion = 256
    held_out = HeldOut(0.05, 1_000, least=100)
    training = GeneratorTraining(epochs=100, patience=None, schedule="cosine")
    model_options = GeneratorOptions
    config_class = ImageGeneratorConfig
    config: ImageGeneratorConfig
    small: "ImageGenerator | None" = None

    def __init__(
        self,
        backbone: keras.Model,
        config: ImageGeneratorConfig | None = None,
        tokenizer: Tokenizer | None = None,
        small: Self | None = None,
        **fields: Any,
    ):
        self.config = config = dataclasses.replace(config or ImageGeneratorConfig(), **fields)
        config.refuse_given(OF_TOKENS_ALONE, "the model makes pictures of noise")
        self._set_condition(condition_of(backbone, config.class_names, tokenizer), tokenizer)
        resized = with_image_size(backbone, config.image_size)
        learning = config.prediction, config.class_dropout, config.max_weight, config.noise_factor
        self.enlarging = enlarging_of(small, resized, config, NUM_STEPS)
        self.model = Denoiser(resized, config.noise_schedule, NUM_STEPS, *learning)
        if small is not None:
            self.small = small._frozen_copy("small")
            self.model.small = self.small.model  # so that its weights are kept with the model's
        self.image_shape: tuple[int, int, int] = tuple(resized.input["images"].shape[1:])
        check_channels(config, self.image_shape[-1])

    def _set_condition(self, condition: Condition, tokenizer: Tokenizer | None) -> None:
        """Keep what pictures are made of; ValueError for a configuration that needs more."""
        self.condition, self.tokenizer = condition, tokenizer
        if condition.column is None:
            self.config.refuse_given(OF_CONDITIONS_ALONE, UNGUIDED)

    def _scale(self, guidance: float | None) -> float:
        """How far pictures are led to their condition, by default the configuration's; 1 without one."""
        if self.condition.column is not None:
            return self.config.guidance if guidance is None else guidance
        if guidance is not None:
            raise Refusal("guidance", f"left out, as {UNGUIDED}", guidance)
        return 1.0

    def _frozen_copy(self, scope: str) -> Self:
        """The same task, which nobody trains, with weights whose paths begin with `scope`."""
        backbone = self.model.backbone
        with keras.name_scope(scope):
            task = type(self)(backbone.with_fresh_weights(), self.config, self.tokenizer, self.small)
        task.model.set_weights(self.model.get_weights())
        task.model.trainable = False
        return task

    @classmethod
    def make(
        cls, examples: Any, options: GeneratorOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        if options.writes and (writer := writer_class()) is not cls:
            return writer.make(examples, options, changes, **fields)
        config = dataclasses.asdict(options.base()) | with_side(changes, fields)
        names: tuple[str, ...] = ()
        tokenizer, family = None, options.model_class
        small = small_of(options, changes)
        reader = given_encoder(options, changes) if small is None else reader_of(small, changes)
        if reader is not None:
            tokenizer = reader.tokenizer
            config |= reader.fields
        elif options.reads_texts:
            tokenizer = train_tokenizer(examples.texts, options.tokenizer, options.vocabulary_size)
            config["vocabulary_size"] = tokenizer.vocabulary_size
        else:
            names = classes_of(examples)
            config["num_classes"] = len(names)
        backbone = family(family.config_class.from_json(config))
        if reader is not None:
            reader.teach(backbone.encoder)
        task = cls(backbone, tokenizer=tokenizer, small=small, class_names=names, **fields)
        size, classes = "{} x {} pixels".format(*task.image_shape), f"{len(names) or 'no'} classes"
        made_of = "texts" if options.reads_texts else classes
        LOG.info("a new %s, %s, for %s and %s", family.__name__, options.size, size, made_of)
        return task

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: ImageGeneratorConfig, model: dict[str, Any]) -> Self:
        if model.get("class") in WRITTEN:
            return writer_class().of_parts(folder, config, model)
        backbone, small = make_backbone(model), None
        tokenizer = load_tokenizer(folder) if "token_ids" in backbone.input else None
        if "small" in model:
            parts = SmallParts.from_json(model["small"])
            small = cls.load_parts(folder, ImageGeneratorConfig.from_json(parts.config), parts.model)
        return cls(backbone, config, tokenizer, small)

    def describe_model(self) -> dict[str, Any]:
        if self.small is None:
            return super().describe_model()
        small = SmallParts(dataclasses.asdict(self.small.config), self.small.describe_model())
        return {**super().describe_model(), "small": dataclasses.asdict(small)}

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        task = cls.checked(task)
        if isinstance(task, writer := writer_class()):
            return writer.adopt(task, examples, **fields)
        if task.tokenizer is not None:
            return cls(task.model.backbone, task.config, task.tokenizer, task.small, **fields)
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
            return cls.checked(load_any(start)).file_fields
        if options.writes:
            return writer_class().reading(options, changes)
        shape = image_shape_of(dataclasses.replace(options.base(), **changes))
        return {"image_shape": shape, "with_texts": options.reads_texts}

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, with_texts: bool = False, **fields: Any
    ) -> Any:
        """Images, of the shape and preprocessing that the fields describe, and the names of their classes
        where they have some, or `with_texts` `data.ImageTexts`.
        """
        shape, preprocessing = shape_and_preprocessing(**fields)
        if with_texts:
            return read_image_texts(paths, shape, columns, preprocessing)
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
        with_texts = self.tokenizer is not None
        return {
            "image_shape": self.image_shape,
            "preprocessing": self.preprocessing,
            "with_texts": with_texts,
        }

    def check_examples(self, examples: Any, /) -> np.ndarray | ImageFiles | tuple[Any, Any]:
        """Images, or for a model of classes (images, classes), with classes as integers (N,), or for a model
        of texts `data.ImageTexts`.
        """
        column = self.condition.column
        if column is None and not isinstance(examples, tuple):
            return self._checked(examples)
        images, labels = as_columns(examples, "images", column or "labels")
        images = self._checked(images)
        if column is None:
            return images
        labels = self.condition.checked(labels, len(images))
        return ImageTexts(images, labels) if column == "texts" else (images, labels)

    def _checked(self, images: Any) -> np.ndarray | ImageFiles:
        refuse_single(images, "`images`")
        images = checked_images(images, self.image_shape, self.preprocessing)
        refuse_empty(images, "images")
        return images

    def hold_out(self, examples: Any, share: float | None, seed: int, /) -> tuple[Any, Any]:
        return self.condition.hold_out(examples, self.held_out if share is None else HeldOut(share), seed)

    def batches(self, examples: Any, training: GeneratorTraining, is_validation: bool = False) -> Batches:
        def prepare(images: tf.Tensor) -> tf.Tensor:
            return self.config.prepared(images, *self.image_shape[:2])

        learning: dict[str, Any] = {} if is_validation else {"seed": training.seed, "flip": training.flip}
        images, *column = columns_of(examples)
        conditions = self.condition.inputs(*column) if column else {}
        learning["shown"] = None if self.enlarging is None else self.enlarging.of_large
        return NoisyImageBatches(images, conditions, prepare, training.batch_size, NUM_STEPS, **learning)

    def objective(self, training: GeneratorTraining) -> dict[str, Any]:
        return {"loss": keras.losses.MeanSquaredError("mean_with_sample_weight", name="loss")}

    def baselines(self, examples: Any, validation: Any, seed: int) -> Baselines | None:
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

    def measure(
        self,
        examples: Any,
        features: Any = None,
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
    ) -> dict[str, Any]:
        """ "loss", the mean squared error of what is predicted of noisy images, with the same noise in each
        call; "mean_loss", what predicting the mean would give; and their ratio "percent_of_mean".

        By the `features` of a task that reads images, or of its RUN, made pictures are compared with the
        examples, as many and of the same classes or texts, by the functions of `set_distances`. Measures have
        the name of that task, "classify_images_fid": by Inception's features the numbers are others.
        """
        run = tf.function(lambda inputs: self.model(inputs, training=False), autograph=False)
        loss, baseline = self._losses(examples, run)
        measures = {"loss": loss, "mean_loss": baseline, "percent_of_mean": 100 * loss / baseline}
        return measures | self._compared(examples, features, seed, steps, guidance)

    def _compared(
        self, examples: Any, features: Any, seed: int, steps: int | None, guidance: float | None
    ) -> dict[str, Any]:
        """How far pictures that are made of the examples' classes or texts are from the examples; {} without
        `features`.
        """
        if features is None:
            return {}
        encoder, name = features_of(features)
        images, *column = columns_of(examples)
        real = encoder.predict(np.asarray(images))  # It refuses what does not fit before anything is drawn.
        if len(real) < 2:
            raise Refusal("features", "left out for one picture alone: distances are of several", name)
        inputs = self.condition.inputs(*column) if column else {}

        def inputs_of(part: slice) -> dict[str, Any]:
            return {key: tf.constant(x[part]) for key, x in inputs.items()}

        made = np.concatenate(list(self._made(len(images), inputs_of, seed, steps, guidance)))
        return compared(real, encoder.predict(made), name)

    def generate(
        self,
        asked: int | Sequence[str],
        /,
        *,
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
        batch_size: int = 16,
        **writing: Any,
    ) -> np.ndarray:
        """New pictures, 8-bit (N, H, W, C).

        Args:
            asked: the name of each picture's class, or its text; or how many pictures, of neither.
            seed: of the first picture; the next ones have the next seeds. A class, or a text, and a seed
                determine a picture.
            steps: from noise to a picture, at most 1,000, by default the configuration's.
            guidance: how far pictures are led to their class or text; 1 is not at all.
            writing: of an `ImageWriter` alone: `temperature`, `top_k`, `top_p`, and `complete`, a picture, an
                array or a file, whose upper half each new one has.

        Raises:
            ValueError: for an unknown class, a text of too many tokens, and numbers out of range.
        """
        if isinstance(asked, int) and not isinstance(asked, bool):
            if asked < 1:
                raise Refusal("asked", f"{self.condition.name}, or a number of pictures of at least 1", asked)
            absent = self.condition.absent
            made = self._made(
                asked,
                lambda part: absent(part.stop - part.start),
                seed,
                steps,
                guidance,
                batch_size,
                **writing,
            )
        else:
            lines = self.answerable(asked)
            made = self._made(len(lines), self._of_lines(lines), seed, steps, guidance, batch_size, **writing)
        return np.concatenate([np.zeros((0, *self.image_shape), "uint8"), *made])

    def predict(
        self,
        lines: Any,
        /,
        *,
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
        batch_size: int = 16,
        draw: Pictures | None = None,
        complete: Any = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> list[dict[str, Any]]:
        """A picture for each line, which names its class, or is its text; of a model of neither any line
        makes one.

        An answer has the "picture", 8-bit (H, W, C), its "seed", and its "file", None without `draw`: a
        folder, or a file for each line, for PNG files. The options are as in `generate`.
        """
        lines = self.answerable(lines, batch_size)
        writing = {"complete": complete, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        made = self._made(len(lines), self._of_lines(lines), seed, steps, guidance, batch_size, **writing)
        answers = enumerate(written(lines, itertools.chain.from_iterable(made), draw))
        return [{"seed": (seed + row) % 2**31, "picture": x, "file": file} for row, (x, file) in answers]

    def _of_lines(self, lines: Sequence[str]) -> Callable[[slice], dict[str, tf.Tensor]]:
        return lambda part: self.condition.of_strings(tf.constant(lines[part]))

    def _made(
        self,
        count: int,
        inputs_of: Callable[[slice], dict[str, tf.Tensor]],
        seed: int,
        steps: int | None,
        guidance: float | None,
        batch_size: int = 16,
        **writing: Any,
    ) -> Iterator[np.ndarray]:
        """`count` pictures in batches; `inputs_of` gives the inputs of the condition for some of them."""
        # It refuses what is out of range.
        Making(seed=seed, steps=steps, guidance=guidance, batch_size=batch_size)
        draw = self._drawer(min(count, batch_size), steps, guidance, **writing)
        seeds = ((seed + np.arange(count)) % 2**31).astype("int32")
        with Bar(total=count, desc="drawing", unit="picture") as bar:
            for first in range(0, count, batch_size):
                part = slice(first, min(first + batch_size, count))
                yield np.asarray(draw(tf.constant(seeds[part]), inputs_of(part)))
                bar.update(part.stop - first)

    def _drawer(self, most: int, steps: int | None, guidance: float | None, **writing: Any) -> Any:
        """A function of at most `most` seeds and the condition's inputs to pictures, as `writing` says."""
        for name, value in writing.items():
            if value is not None:
                raise Refusal(name, "left out, as the model makes pictures of noise", value)
        return self._maker(steps, guidance)

    def _maker(self, steps: int | None, guidance: float | None) -> Any:
        """A compiled function of seeds (B,) and the condition's inputs to pictures (B, H, W, C), 8-bit."""
        self._scale(guidance)  # It refuses what has no use.
        specs = [tf.TensorSpec([None], tf.int32, "seed"), dict(self.condition.specs)]

        @tf.function(input_signature=specs, autograph=False)
        def make(seeds: tf.Tensor, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
            images = self._images(seeds, inputs, steps, guidance)
            return tf.cast(tf.round((images + 1) * 127.5), tf.uint8)

        return self.traced((steps, guidance), lambda: make)

    def _images(
        self, seeds: tf.Tensor, inputs: Mapping[str, tf.Tensor], steps: int | None, guidance: float | None
    ) -> tf.Tensor:
        """Images (B, H, W, C), from -1 to 1, by seeds (B,) and the condition's inputs."""
        inputs = dict(inputs)
        if self.small is not None and self.enlarging is not None:
            small = self.small._images(seeds, inputs, steps, guidance)
            inputs |= self.enlarging.of_small(small, self.config.small_noise, seeds)
        return generate_images(
            self.model,
            tf.shape(seeds)[0],
            inputs,
            num_steps=steps or self.config.steps,
            guidance=self._scale(guidance),
            seed=seeds,
        )

    def refusal(self, example: Any) -> str | None:
        return reason_against(self.condition, example)

    def as_line(self, answer: dict[str, Any]) -> str:
        return str(answer["seed"] if answer["file"] is None else os.fspath(answer["file"]))

    def as_value(self, answer: dict[str, Any]) -> str:
        """The picture's seed or, with `draw`, its file."""
        return self.as_line(answer)

    def export_endpoints(self, steps: int | None = None, guidance: float | None = None) -> Endpoints:
        """The bytes of PNG files by the seed of each picture and its class or text, where the model has
        any.
        """
        make, name = self._maker(steps, guidance), self.condition.name
        specs = [tf.TensorSpec([None], tf.int32, "seed")]

        def answer(seed: tf.Tensor, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            return {"png": tf.map_fn(tf.io.encode_png, make(seed, inputs), fn_output_signature=tf.string)}

        if self.condition.column is None:
            return {"serving_default": (lambda seed: answer(seed, {}), specs)}
        specs = [tf.TensorSpec([None], tf.string, name), *specs]
        of_strings = self.condition.of_strings
        return {"serving_default": (lambda asked, seed: answer(seed, of_strings(asked)), specs)}


def writer_class() -> Any:
    """`ImageWriter`, whose module derives it from the class above."""
    from keras_tfm.tasks.images.image_writer import ImageWriter

    return ImageWriter
