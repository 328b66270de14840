"""Pictures mended: enlarged, without noise or rain, with their holes filled. A model that takes textures from
another picture makes a `ReferenceRestorer`.
"""

import functools
import logging
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Refusal
from keras_tfm.data.batches.degradations import RESTORATIONS, as_bytes, bicubic, eight_bits, filled
from keras_tfm.data.batches.degraded_images import DegradedBatches
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.sources.image_files import size_in
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.preprocessing import decode_opacity, decode_pixels
from keras_tfm.data.sources.whole_images import (
    WholeImages,
    encoded,
    read_sources,
    read_whole_images,
    too_small,
    undecodable,
)
from keras_tfm.heads.inpainting import InpaintingLoss
from keras_tfm.log import Bar
from keras_tfm.models import TTSR
from keras_tfm.models.pictures.restoration import beyond_bicubic
from keras_tfm.serving.examples import (
    check_column,
    listed,
    not_image,
    reasons,
    refuse_empty,
    refuse_rows,
    shown,
)
from keras_tfm.serving.image_headers import MAX_PIXELS, Size, read_bytes
from keras_tfm.tasks.baselines import Baselines
from keras_tfm.tasks.columns import columns_of
from keras_tfm.tasks.images.decoded import is_file
from keras_tfm.tasks.images.drawing import Pictures, written
from keras_tfm.tasks.images.likeness import WINDOW, likeness
from keras_tfm.tasks.images.restorer_options import (
    CROP,
    ImageRestorerConfig,
    RestorerOptions,
    RestorerTraining,
)
from keras_tfm.tasks.images.tiles import in_tiles
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import load_any, make_backbone
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.training.folder import Path
from keras_tfm.training.model import Model

LOG = logging.getLogger(__name__)
RULE = "mending by rule"  # the name of the baseline
LARGE_TILE = 96  # pixels, for models that read images of any size


class ImageRestorer(TrainableTask):
    """Mends pictures of any size, by a `model` with a task for each thing that is mended, an `MDSR` or an
    `IPT`.

    Examples are good pictures, each a file, by its path or bytes, or an array, 8-bit or from 0 to 1; they are
    made worse while it learns, as `keras_tfm.data.batches.degradations` says. The model learns the
    difference from what a rule mends: a bicubic enlargement, the noisy picture itself, or holes filled
    smoothly. `fields` are fields of `ImageRestorerConfig`.

    >>> model = keras_tfm.models.MDSR.from_size("tiny", tasks=["x2"], scales=[2])
    >>> task = keras_tfm.tasks.ImageRestorer(model, restore="x2", crop=8)
    >>> pictures = list(np.random.default_rng(0).integers(0, 256, (4, 20, 24, 3)).astype("uint8"))
    >>> history = task.fit(pictures, epochs=1, crops=2)
    >>> task.predict([pictures[0]])[0]["picture"].shape
    (40, 48, 3)
    """

    name = "restore-images"
    start = "a RUN of this task with the same --restore"
    files = (
        "good pictures: folders of images, .npz or idx files, or a table and the one column of --columns; "
        "for ttsr also a table with columns image and reference"
    )
    columns = (1, 2)
    unit = "images"
    portion = 8  # whose answers are held at once
    held_out = HeldOut(0.1, 100)
    training = RestorerTraining(epochs=100, patience=None, schedule="cosine")
    model_options = RestorerOptions
    config_class = ImageRestorerConfig
    config: ImageRestorerConfig
    reads_lines = False
    num_pictures = 1  # that are read for an answer

    def __init__(self, model: keras.Model, config: ImageRestorerConfig | None = None, **fields: Any):
        values = vars(config or ImageRestorerConfig()) | fields
        self.config = config = ImageRestorerConfig(**values)
        tasks = self.tasks_of(model)
        if tasks != (expected := dict(zip(config.names, config.scales, strict=True))):
            raise Refusal(
                "model", f"one of the tasks {expected}, {{name: scale}}", f"one of {tasks or 'none'}"
            )
        height, width, channels = model.input["images"].shape[1:]
        if channels not in (1, 3):
            raise Refusal("model", "one of 1 channel or of 3", f"one of {channels}")
        if height != width:
            raise Refusal("model", "one of square images", f"one of {height} x {width} pixels")
        if height and config.crop not in (None, height):
            raise Refusal("crop", f"the side of the model's images, {height}", config.crop)
        crop = height or config.crop or CROP
        self.model = model
        self.image_shape: tuple[int, int, int] = (crop, crop, channels)
        self.tile = height or max(crop, LARGE_TILE)

    @staticmethod
    def tasks_of(model: keras.Model) -> dict[str, int]:
        """{what a `model` mends: how many times longer sides become}."""
        names, scales = (getattr(model.config, name, ()) for name in ("tasks", "scales"))
        return dict(zip(names, scales, strict=True))

    @classmethod
    def make(cls, examples: Any, options: RestorerOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        if options.reads_references and (with_references := reference_class()) is not cls:
            return with_references.make(examples, options, changes, **fields)
        config, family = cls.config_class(**fields), options.model_class
        tasks = {"tasks": config.names, "scales": config.scales}
        if config.crop is not None and hasattr(options.base(), "image_size"):
            tasks["image_size"] = config.crop
        model = family(family.config_class.from_json(vars(options.base()) | dict(changes) | tasks))
        for name in config.names:  # nothing is added to what the rule mends, until it has learnt
            for weight in model.get_layer(f"{name}_tail").layers[-1].weights:
                weight.assign(tf.zeros_like(weight))
        LOG.info("a new %s, %s, for %s", family.__name__, options.size, ", ".join(config.names))
        return cls(model, config)

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: ImageRestorerConfig, model: dict[str, Any]) -> Self:
        backbone = make_backbone(model)
        return (reference_class() if isinstance(backbone, TTSR) else cls)(backbone, config)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        task = cls.checked(task)
        if fields.get("restore", task.config.restore) != task.config.restore:
            raise ValueError(f"--from: it mends {task.config.restore}, and not {fields['restore']}")
        return type(task)(task.model, task.config, **fields)

    @classmethod
    def reading(
        cls, options: RestorerOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return cls.checked(load_any(start)).file_fields
        config = vars(options.base()) | dict(changes)
        if options.reads_references:
            return {"size": config["image_size"], "reads_references": True}
        return {"channels": len(config["mean"]), "size": config.get("image_size", CROP)}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        channels: int = 3,
        size: int = CROP,
        reads_references: bool = False,
        **fields: Any,
    ) -> Any:
        """Pictures with 1 or 3 `channels`; broken ones, and ones too small to measure an answer by, are
        skipped. With `reads_references` what a `ReferenceRestorer` reads.
        """
        if reads_references:
            return reference_class().read_files(paths, columns, size=size, **fields)
        return read_whole_images(paths, channels, columns, least_side(cls.config_class(**fields)))

    @classmethod
    def read_training(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        channels: int = 3,
        size: int = CROP,
        reads_references: bool = False,
        **fields: Any,
    ) -> Any:
        """As `read_files`, without pictures that are too small for a crop; `size` is the side of crops unless
        the fields have one.
        """
        if reads_references:
            return reference_class().read_files(paths, columns, size=size, **fields)
        config = cls.config_class(**fields)
        return read_whole_images(paths, channels, columns, (config.crop or size) * max(config.scales))

    read_validation = read_training

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"channels": self.image_shape[-1], "size": self.image_shape[0], **vars(self.config)}

    @property
    def least(self) -> int | Size:
        """The least side of a picture, or the least shorter and longer one."""
        return least_side(self.config)

    def check_examples(self, examples: Any, /) -> Any:
        """The pictures; ValueError for one that is broken or too small, and for what is no list of any."""
        if isinstance(examples, WholeImages):
            return examples
        images = self.images_in(examples)
        check_column(images, "images", not_image)
        whole = WholeImages([encoded(image) for image in images], self.image_shape[-1])
        for row, problem in whole.problems(self.least).items():
            raise ValueError(f"image {row}: {problem}")
        refuse_empty(images, "images")
        return whole

    def images_in(self, examples: Any) -> list:
        """The pictures of `examples` as a list; ValueError for what is none."""
        if isinstance(examples, WholeImages):
            return examples.sources
        if isinstance(examples, np.ndarray):
            is_one = examples.ndim < 3 or (examples.ndim == 3 and examples.shape[-1] in (3, 4))
            if is_one and examples.dtype.kind in "uf":
                raise ValueError(
                    f"examples: expected a list of pictures, or an array (B, H, W, C), got {examples.shape}"
                )
        return listed([examples] if is_file(examples) else examples)

    def batches(
        self, examples: WholeImages, training: RestorerTraining, is_validation: bool = False
    ) -> DegradedBatches:
        seed = None if is_validation else training.seed
        batches = DegradedBatches(
            examples, self.config.names, self.image_shape[0], training.crops, training.batch_size, seed
        )
        for row, source in enumerate(examples.sources):
            if problem := too_small(source, batches.side):
                raise ValueError(f"{examples.place(row)}: {problem}, as crops have")
        return batches

    def objective(self, training: RestorerTraining) -> dict[str, Any]:
        return {"loss": {name: InpaintingLoss((1.0, 0.0)) for name in self.config.names}}

    def learner(self, training: RestorerTraining) -> keras.Model:
        inputs = {name: keras.Input(self.image_shape, name=name) for name in self.config.names}
        return Model(inputs, {name: beyond_bicubic(self.model, name, x) for name, x in inputs.items()})

    def _mending(self, name: str, *references: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function that mends tiles (B, tile, tile, C) from 0 to 1; there are no `references` here."""
        return functools.partial(beyond_bicubic, self.model, name)

    def _whole(self, name: str, pixels: tf.Tensor, is_grey: tf.Tensor, *references: tf.Tensor) -> tf.Tensor:
        """A whole degraded picture, 8-bit (H, W, C), mended: (scale H, scale W, C), without colours if it
        `is_grey`.
        """
        mended = self._mending(name, *references)

        def mend(tiles: tf.Tensor) -> tf.Tensor:
            y = tf.cast(mended(tf.cast(tiles, tf.float32) / 255), tf.float32)
            return tf.where(is_grey, tf.reduce_mean(y, -1, keepdims=True), y)

        return in_tiles(mend, pixels, self.tile, RESTORATIONS[name].scale, self.tile // 4)

    def baselines(self, examples: Any, validation: Any, seed: int) -> Baselines:
        loss, count = 0.0, 0
        for inputs, targets in self.batches(validation, self.training, is_validation=True).dataset():
            count += len(next(iter(targets.values())))
            for name, good in targets.items():
                images = inputs[name]
                by_rule = bicubic(images, tf.shape(good)[1:3])
                loss += len(images) * float(InpaintingLoss((1.0, 0.0))(good, by_rule))
        return Baselines("val_loss", "min", {RULE: loss / count}, count)

    def measure(self, examples: Any) -> dict[str, Any]:
        """For each thing that is mended, such as "x2", "x2_psnr" in decibels and "x2_ssim", and the same of
        mending by rule, "x2_rule_psnr" and "x2_rule_ssim": means over the pictures, of all pixels and
        channels in 8 bits.
        """
        sums: dict[str, Any] = {}
        columns = columns_of(examples)
        count = len(columns[0])
        with Bar(total=count * len(self.config.names), desc="measuring", unit="image") as bar:
            for row in range(count):
                pictures = [column.decoded(row) for column in columns]
                for name in self.config.names:
                    sums[name] = sums.get(name, 0) + self._function("judge", name)(row, *pictures).numpy()
                    bar.update()
        kinds = "psnr", "ssim", "rule_psnr", "rule_ssim"
        return {
            f"{name}_{kind}": float(value) / count
            for name, values in sums.items()
            for kind, value in zip(kinds, values, strict=True)
        }

    def _judge(self, name: str, row: tf.Tensor, image: tf.Tensor, *references: tf.Tensor) -> tf.Tensor:
        """The PSNR and the SSIM of a good picture's degraded form, mended, and mended by rule: (4,)."""
        restoration = RESTORATIONS[name]
        size = tf.shape(image)[:2] // restoration.scale * restoration.scale
        good = tf.cast(image[None, : size[0], : size[1]], tf.float32) / 255
        bad = restoration.degrade(good, tf.stack([0, row]))
        whole = self._whole(name, as_bytes(bad.images[0]), tf.constant(False), *references)
        mended = tf.where(bad.damage > 0, tf.cast(whole[None], tf.float32) / 255, good)
        parts = [part for x in (mended, eight_bits(bicubic(bad.images, size))) for part in likeness(good, x)]
        return tf.concat(parts, 0)

    def predict(
        self,
        images: Any,
        /,
        *,
        restore: str | None = None,
        draw: Pictures | None = None,
        reference: Any = None,
    ) -> list[dict[str, Any]]:
        """Each picture mended, of any size: {"picture": 8-bit (H, W, 1, 3 or 4), "file"}.

        `restore` is what is mended, one of the configuration's names, which may be left out if there is one;
        `draw` a folder, or a file for each picture, for PNG files: else "file" is None. Transparent pixels
        are holes to "inpaint"; otherwise the alpha is enlarged with the picture. A picture without colours
        stays without. `reference` is for a `ReferenceRestorer` alone.

        Raises:
            ValueError: for what the model was not trained to mend, and for the first picture that is broken,
                or too large enlarged.
        """
        images, name = self._asked(self.images_in(images), reference), self._chosen(restore)
        refuse_rows(self.refusals(images, restore=name))

        def mended() -> Iterator[np.ndarray]:
            with Bar(total=len(images), desc="mending", unit="image") as bar:
                for image in images:
                    data = [tf.constant(read_bytes(encoded(part))) for part in self._pictures(image)]
                    yield self._function("mend", name)(*data).numpy()
                    bar.update()

        return [{"picture": x, "file": file} for x, file in written(images, mended(), draw)]

    def _asked(self, images: list, reference: Any) -> list:
        """The `images` as they are answered, by the `reference` of all; `Refusal` where none is read."""
        if reference is not None:
            wanted = "left out, since the model takes no textures from other pictures"
            raise Refusal("reference", wanted, shown(reference))
        return images

    def _pictures(self, image: Any) -> list:
        """The pictures that are read for one answer."""
        return [image]

    def _mend(self, name: str, data: tf.Tensor, *references: tf.Tensor) -> tf.Tensor:
        """The bytes of an image file, a string (), as a mended picture, 8-bit (H, W, 1, 3 or 4)."""
        pixels, alpha = decode_pixels(data, self.image_shape[-1]), decode_opacity(data)
        others = [decode_pixels(reference, self.image_shape[-1]) for reference in references]
        is_grey, is_opaque = tf.reduce_all(pixels == pixels[..., :1]), alpha == 255
        if name == "inpaint":
            holes = tf.cast(~is_opaque, tf.float32)
            start = filled(tf.cast(pixels, tf.float32)[None] / 255, holes[None])[0]
            return tf.where(is_opaque, pixels, self._whole(name, as_bytes(start), is_grey))
        whole = self._whole(name, pixels, is_grey, *others)

        def with_alpha() -> tf.Tensor:
            grown = bicubic(tf.cast(alpha, tf.float32)[None] / 255, tf.shape(whole)[:2])[0]
            return tf.concat([tf.repeat(whole, 3 // whole.shape[-1], -1), as_bytes(grown)], -1)

        return tf.cond(tf.reduce_all(is_opaque), lambda: whole, with_alpha)

    def _function(self, kind: str, name: str) -> Any:
        """The compiled form of `_mend` or `_judge`."""
        pixels = tf.TensorSpec([None, None, self.image_shape[-1]], tf.uint8)
        row, data = tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.string)
        count = self.num_pictures
        specs = [data] * count if kind == "mend" else [row, *[pixels] * count]
        call = functools.partial(self._mend if kind == "mend" else self._judge, name)
        return self.traced((kind, name), lambda: tf.function(call, input_signature=specs, autograph=False))

    def _chosen(self, restore: str | None) -> str:
        """What is mended; `Refusal` for what the model was not trained for."""
        names = self.config.names
        if restore is None and len(names) == 1:
            return names[0]
        if restore not in names:
            wanted = f"{'one of ' * (len(names) > 1)}{', '.join(names)}, as the model was trained for"
            raise Refusal("restore", wanted, "left out" if restore is None else repr(restore))
        return restore

    def inspect(self, examples: Any, **options: Any) -> Any:
        return super().inspect(self.images_in(examples), **options)

    def refusals(self, examples: Any, restore: str | None = None, **options: Any) -> dict[int, str]:
        names = [restore] if restore else self.config.names
        scale = min(RESTORATIONS[name].scale for name in names)
        return reasons(examples, lambda image: not_image(image) or unmendable(encoded(image), scale))

    def as_line(self, answer: dict[str, Any]) -> str:
        if answer["file"] is not None:
            return os.fspath(answer["file"])
        height, width = answer["picture"].shape[:2]
        return f"{width} x {height}"

    def as_value(self, answer: dict[str, Any]) -> str:
        """The picture's file or, without `draw`, its size."""
        return self.as_line(answer)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_sources(path, columns)

    def export_endpoints(self, restore: str | None = None) -> Endpoints:
        """The bytes of PNG files by the bytes of image files: `serving_default` mends what `restore` says, by
        default the first of the configuration's names; if there are several, each has an endpoint too.
        """

        def endpoint(name: str) -> Any:
            mend = self._function("mend", name)

            def answer(image_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
                files = tf.map_fn(
                    lambda data: tf.io.encode_png(mend(data)), image_bytes, fn_output_signature=tf.string
                )
                return {"png": files}

            return answer, [tf.TensorSpec([None], tf.string, "image_bytes")]

        names = self.config.names
        first = names[0] if restore is None else self._chosen(restore)
        others = {name: endpoint(name) for name in names} if len(names) > 1 else {}
        return {"serving_default": endpoint(first), **others}


def reference_class() -> Any:
    """`ReferenceRestorer`, whose module derives it from the class above."""
    from keras_tfm.tasks.images.reference_restorer import ReferenceRestorer

    return ReferenceRestorer


def least_side(config: ImageRestorerConfig) -> int:
    """The least side of a picture whose SSIM can be measured when its sides are multiples of the scales."""
    return WINDOW + max(config.scales) - 1


def unmendable(source: Any, scale: int) -> str | None:
    """Why a picture cannot be mended: it is broken, or too large once it is enlarged; None if it can be."""
    if problem := undecodable(source):
        return problem
    height, width = size_in(source) or (1, 1)
    if height * width * scale**2 <= MAX_PIXELS:
        return None
    return f"expected at most {MAX_PIXELS // scale**2:,} pixels to be enlarged, got {width:,} x {height:,}"
