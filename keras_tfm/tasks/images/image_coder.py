"""Pictures as codes: a codec that makes a grid of codes of a picture, and a picture of codes."""

import dataclasses
import functools
import logging
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Refusal
from keras_tfm.data.batches.degradations import as_bytes, bicubic
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.batches.reconstructions import ReconstructionBatches
from keras_tfm.data.sources.image_files import ImageFiles
from keras_tfm.data.sources.images import read_unlabelled_images
from keras_tfm.heads.logit_laplace import LogitLaplace
from keras_tfm.models.pictures.codec import ImageCodec
from keras_tfm.models.pictures.patch_discriminator import patch_discriminator
from keras_tfm.serving.examples import refuse_empty, refuse_single
from keras_tfm.tasks.baselines import MEAN, Baselines
from keras_tfm.tasks.images.coder_options import CoderOptions, CoderTraining, ImageCoderConfig
from keras_tfm.tasks.images.drawing import Pictures, written
from keras_tfm.tasks.images.image_task import (
    ImageTask,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.images.likeness import likeness
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.signatures import ColumnNames, Endpoints, Signature
from keras_tfm.tasks.task import make_backbone
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.adversarial_codec import AdversarialCodec
from keras_tfm.training.fit import seeded
from keras_tfm.training.folder import Path
from keras_tfm.training.optimizers import AdamW

LOG = logging.getLogger(__name__)
BICUBIC = "bicubic enlargement of as many colours as codes"  # the name of a baseline
MOMENTA: dict[str, Any] = {
    "beta_1": 0.5,
    "beta_2": 0.9,
}  # of the discriminator's optimizer (Esser et al. 2021, their code)


class ImageCoder(ImageTask, TrainableTask):
    """Makes codes of pictures, and pictures of codes, by a `model` such as a `VQGAN` or a `DiscreteVAE`.

    Examples are images, as `ImageTask` describes them. The loss is the mean absolute error of pixels, or of a
    `DiscreteVAE` the logit-Laplace likelihood, and the codes' divergence; no perceptual loss is used. With
    `adversarial_after` a discriminator of patches joins in after so many steps; then the last epoch is kept,
    since errors of pixels alone would prefer an earlier one.

    >>> sizes = {"image_size": 8, "dim": 8, "factors": [1, 1], "attends": [False, False]}
    >>> model = keras_tfm.models.VQGAN.from_size("tiny", **sizes)
    >>> task = keras_tfm.tasks.ImageCoder(model)
    >>> images = np.random.default_rng(0).integers(0, 256, (16, 8, 8, 3)).astype("uint8")
    >>> history = task.fit(images, epochs=1)
    >>> task.codes_of(images).shape, task.pictures_of(task.codes_of(images)).shape
    ((16, 4, 4), (16, 8, 8, 3))
    """

    name = "image-codes"
    start = "a RUN of this task"
    files = (
        "a folder of images, or of such folders; .npz or idx files; or images in .parquet files or "
        "tfds:NAME[/CONFIG][:VERSION]#SPLIT; labels are ignored"
    )
    columns = (1, 2)
    unit = "images"
    made_of_examples = False
    held_out = HeldOut(0.05, 1_000)
    training = CoderTraining(epochs=50, patience=None, schedule="cosine", learning_rate=2e-3)
    model_options = CoderOptions
    config_class = ImageCoderConfig
    config: ImageCoderConfig

    def __init__(self, model: keras.Model, config: ImageCoderConfig | None = None, **fields: Any):
        if not isinstance(model, ImageCodec):
            raise Refusal("model", "a model of codes, a VQGAN or a DiscreteVAE", type(model).__name__)
        config = dataclasses.replace(config or ImageCoderConfig(), **fields)
        low, high = model.value_range
        self.config = dataclasses.replace(config, mean=(-low / (high - low),), std=(1 / (high - low),))
        self.model = with_image_size(model, config.image_size)
        self.take_images(self.model)

    @classmethod
    def make(cls, examples: Any, options: CoderOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        config, family = vars(options.base()) | with_side(changes, fields), options.model_class
        task = cls(family(family.config_class.from_json(config)), **fields)
        size = "{} x {} pixels".format(*task.image_shape)
        grid = "{} x {} of {:,} codes".format(*task.model.grid, task.model.num_codes)
        LOG.info("a new %s, %s, for %s: %s", family.__name__, options.size, size, grid)
        return task

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        task = cls.checked(task)
        return cls(task.model, task.config, **fields)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: ImageCoderConfig, model: dict[str, Any]) -> Self:
        return cls(make_backbone(model), config)

    @classmethod
    def read_files(
        cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any
    ) -> np.ndarray | ImageFiles:
        """Images, of the shape and preprocessing that the fields describe."""
        shape, preprocessing = shape_and_preprocessing(**fields)
        return read_unlabelled_images(paths, shape, columns, preprocessing)

    def check_examples(self, examples: Any, /) -> np.ndarray | ImageFiles:
        """The images as an array, or as files; ValueError for anything else."""
        refuse_single(examples, "`images`")
        images = self.check_images(examples)
        refuse_empty(images, "images")
        return images

    def batches(
        self, examples: Any, training: CoderTraining, is_validation: bool = False
    ) -> ReconstructionBatches:
        learning: dict[str, Any] = {} if is_validation else {"seed": training.seed, "flip": training.flip}
        outputs = list(self.model.output)
        return ReconstructionBatches(examples, self.prepare, outputs, training.batch_size, **learning)

    def objective(self, training: CoderTraining) -> dict[str, Any]:
        if "distributions" in self.model.output:
            return {"loss": {"distributions": LogitLaplace(), "images": None}}
        loss = {"loss": {"images": keras.losses.MeanAbsoluteError(name="loss")}}
        if training.adversarial_after is None:
            return loss
        optimizer = AdamW(training.learning_rate, 0.0, **MOMENTA)
        return {**loss, "discriminator_optimizer": optimizer}

    def learner(self, training: CoderTraining) -> keras.Model:
        if training.adversarial_after is None:
            return self.model
        with self.model.distribute_strategy.scope(), seeded(training.seed):
            discriminator = patch_discriminator(self.image_shape, training.patches)
            after, weight = training.adversarial_after, training.adversarial_weight
            return AdversarialCodec(self.model, discriminator, self.model.last_kernel, after, weight)

    def learn(
        self, examples: Any, validation: Any, training: CoderTraining, *rest: Any, **keeping: Any
    ) -> Any:
        is_adversarial = training.adversarial_after is not None
        if is_adversarial and "distributions" in self.model.output:
            raise Refusal(
                "adversarial_after", "left out, as discriminators are for vqgan", training.adversarial_after
            )
        self.judged_by = ("steps", "max") if is_adversarial else type(self).judged_by
        return super().learn(examples, validation, training, *rest, **keeping)

    def baselines(self, examples: Any, validation: Any, seed: int) -> Baselines | None:
        if "distributions" in self.model.output:
            return None
        total, count = 0.0, 0
        for inputs, _ in self.batches(examples, self.training, is_validation=True).dataset():
            total, count = total + tf.reduce_sum(inputs["images"], 0), count + len(inputs["images"])
        mean, sums = total / count, np.zeros(2)
        for inputs, _ in self.batches(validation, self.training, is_validation=True).dataset():
            x = inputs["images"]
            coarse = bicubic(
                tf.image.resize(x, self.model.grid, "bicubic", antialias=True), self.image_shape[:2]
            )
            sums += [float(tf.reduce_sum(tf.reduce_mean(abs(x - y), (1, 2, 3)))) for y in (mean, coarse)]
        errors = sums / len(validation)
        return Baselines("val_loss", "min", {MEAN: errors[0], BICUBIC: errors[1]}, len(validation))

    def measure(self, examples: Any) -> dict[str, Any]:
        """ "psnr" in decibels and "ssim" of the pictures that are made of the codes, means over pictures in 8
        bits; "used_codes", how many different ones the examples have, and "perplexity", the exponential of
        the entropy of their shares; beside them "mean_psnr" of the mean of the examples, and "bicubic_psnr"
        and "bicubic_ssim" of pictures that are enlarged from one pixel for each code.
        """
        mean, sums, counts = self._mean_of(examples), np.zeros(5), np.zeros(self.model.num_codes, "int64")
        for images in self._parts_of(examples):
            codes, scores = self._function("judge")(images, mean)
            sums += scores.numpy().sum(1)
            counts += np.bincount(codes.numpy().ravel(), minlength=len(counts))
        names = "psnr", "ssim", "mean_psnr", "bicubic_psnr", "bicubic_ssim"
        shares = counts[counts > 0] / counts.sum()
        return {
            **dict(zip(names, sums / len(examples), strict=True)),
            "used_codes": int((counts > 0).sum()),
            "codes": self.model.num_codes,
            "perplexity": float(np.exp(-(shares * np.log(shares)).sum())),
        }

    def _parts_of(self, images: Any, batch_size: int = 64) -> Any:
        """Parts (B, H, W, C), from 0 to 1, of checked images."""
        for inputs, _ in ReconstructionBatches(images, tf.identity, ["images"], batch_size).dataset():
            x = self.config.fitted(inputs["images"], *self.image_shape[:2])
            yield tf.cast(x, tf.float32) / (255.0 if x.dtype == tf.uint8 else 1.0)

    def _mean_of(self, examples: Any) -> tf.Tensor:
        return tf.add_n([tf.reduce_sum(part, 0) for part in self._parts_of(examples)]) / len(examples)

    def _judge(self, images: tf.Tensor, mean: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The codes of images from 0 to 1, and what `measure` averages: (5, B)."""
        codes, pictures = self._answer(images)
        coarse = tf.image.resize(images, self.model.grid, "bicubic", antialias=True)
        coarse = bicubic(tf.clip_by_value(coarse, 0, 1), self.image_shape[:2])
        made, coarse = (tf.cast(as_bytes(x), tf.float32) / 255 for x in (pictures, coarse))
        mean = likeness(images, tf.broadcast_to(mean, tf.shape(images)))[0]
        return codes, tf.stack([*likeness(images, made), mean, *likeness(images, coarse)])

    def _answer(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The codes of raw images, and the pictures, from 0 to 1, that are made of them."""
        codes = self.model.encode(self.prepare(images))
        return codes, self._picture(codes)

    def _picture(self, codes: tf.Tensor) -> tf.Tensor:
        low, high = self.model.value_range
        images = tf.cast(self.model.decode(codes), tf.float32)
        return tf.clip_by_value((images - low) / (high - low), 0, 1)

    def _function(self, kind: str) -> Any:
        """The compiled form of what turns images into codes and pictures, codes into pictures, or judges."""
        images = tf.TensorSpec([None, *self.image_shape], tf.float32)
        codes = tf.TensorSpec([None, *self.model.grid], tf.int32)
        function, specs = {
            "answer": (self._answer, [images]),
            "picture": (self._picture, [codes]),
            "judge": (self._judge, [images, tf.TensorSpec(self.image_shape, tf.float32)]),
        }[kind]
        return self.traced(kind, lambda: tf.function(function, input_signature=specs, autograph=False))

    def codes_of(self, images: Any, batch_size: int = 64) -> np.ndarray:
        """The codes of pictures, as `predict` takes them: integers (N, rows, columns)."""
        parts = [self._function("answer")(part)[0].numpy() for part in self.image_parts(images, batch_size)]
        return np.concatenate([np.zeros((0, *self.model.grid), "int32"), *parts])

    def pictures_of(self, codes: Any, batch_size: int = 64) -> np.ndarray:
        """The pictures, 8-bit (N, H, W, C), of codes (N, rows, columns); ValueError for others."""
        codes = np.asarray(codes)
        rows, columns = self.model.grid
        is_whole = codes.dtype.kind in "iu" and codes.shape[1:] == (rows, columns)
        if not is_whole or (codes.size and not 0 <= codes.min() <= codes.max() < self.model.num_codes):
            wanted = f"integers (N, {rows}, {columns}) in [0, {self.model.num_codes})"
            got = f"{codes.dtype.name} {codes.shape}" + (f" up to {codes.max()}" if codes.size else "")
            raise Refusal("codes", wanted, got)
        parts = [
            as_bytes(self._function("picture")(tf.constant(codes[i : i + batch_size], tf.int32))).numpy()
            for i in range(0, len(codes), batch_size)
        ]
        return np.concatenate([np.zeros((0, *self.image_shape), "uint8"), *parts])

    def predict(
        self, images: Any, /, *, batch_size: int = 64, draw: Pictures | None = None
    ) -> list[dict[str, Any]]:
        """Each picture's "codes" (rows, columns), the "picture" that is made of them, 8-bit (H, W, C), and
        its "file", None without `draw`: a folder, or a file for each, for PNG files.
        """
        images = self.as_list(images)
        codes: list[np.ndarray] = []

        def pictures() -> Iterator[np.ndarray]:
            for part in self.image_parts(images, batch_size):
                rows, made = self._function("answer")(part)
                codes.extend(rows.numpy())
                yield from as_bytes(made).numpy()

        drawn = enumerate(written(images, pictures(), draw))
        return [{"codes": codes[row], "picture": x, "file": file} for row, (x, file) in drawn]

    def as_line(self, answer: dict[str, Any]) -> str:
        if answer["file"] is not None:
            return os.fspath(answer["file"])
        return " ".join(map(str, answer["codes"].ravel()))

    def as_value(self, answer: dict[str, Any]) -> Any:
        """The picture's file or, without `draw`, its codes line by line."""
        return self.as_line(answer) if answer["file"] else answer["codes"].tolist()

    def signature(self) -> Signature:
        raise self.no_other_format()

    def export_endpoints(self) -> Endpoints:
        """`serving_default`: the codes (B, rows, columns) of the bytes of image files, and the bytes of PNG
        files that are made of them; `decode`: such files by codes.
        """
        height, width, channels = self.image_shape

        def png_of(pictures: tf.Tensor) -> tf.Tensor:
            return tf.map_fn(tf.io.encode_png, as_bytes(pictures), fn_output_signature=tf.string)

        def encode(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            decode = functools.partial(self.config.decoded, height=height, width=width, channels=channels)
            images = tf.map_fn(decode, image_bytes, fn_output_signature=tf.uint8)
            images = tf.cast(tf.ensure_shape(images, (None, *self.image_shape)), tf.float32) / 255
            codes, pictures = self._answer(images)
            return {"codes": codes, "png": png_of(pictures)}

        files = tf.TensorSpec([None], tf.string, "image_bytes")
        codes = tf.TensorSpec([None, *self.model.grid], tf.int32, "codes")
        return {
            "serving_default": (encode, [files]),
            "decode": (lambda codes: {"png": png_of(self._picture(codes))}, [codes]),
        }
