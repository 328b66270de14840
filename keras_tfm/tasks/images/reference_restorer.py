"""Pictures of four times the size, with the textures of another picture (Yang et al. 2020, "Learning Texture
Transformer Network for Image Super-Resolution").

    picture   -> tiles ------------------------> for each tile the model, with the part to which its cells
    reference -> parts, of the size of a large   are most similar
                 tile, which cover it and overlap
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Refusal
from keras_tfm.data.batches.degradations import RESTORATIONS
from keras_tfm.data.batches.degraded_images import ReferencedBatches
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.referenced_images import (
    ReferencedImages,
    in_halves,
    pairs_of,
    read_referenced_images,
    read_rows_with_references,
    room_for_two,
    unusable,
)
from keras_tfm.data.sources.whole_images import encoded
from keras_tfm.models import TTSR
from keras_tfm.models.pictures.ttsr import beyond_bicubic
from keras_tfm.serving.examples import checked_columns, not_image, reasons, refuse_empty
from keras_tfm.serving.image_headers import Size
from keras_tfm.tasks.images.image_restorer import ImageRestorer, unmendable
from keras_tfm.tasks.images.restorer_options import (
    CROP,
    REFERENCED,
    ImageRestorerConfig,
    RestorerOptions,
    RestorerTraining,
)
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.training.folder import Path
from keras_tfm.training.model import Model

LOG = logging.getLogger(__name__)
SCALE = RESTORATIONS[REFERENCED].scale
ROW = ("image", "reference")  # the names of what `predict` reads for an answer


class ReferenceRestorer(ImageRestorer):
    """Enlarges pictures four times, by a `TTSR` and a reference for each: a picture in colour that shows the
    like, at the scale of the answer.

    Examples are pictures, or (pictures, references). A picture alone is its own reference: in training
    another crop of it, to measure its other half. A reference is neither resized nor cut, but for its
    training crops, which lie at the same relative place as the picture's; of a whole one, parts that cover
    it are compared with each tile of a picture, and the model sees the most similar part. The model learns
    the difference from bicubic enlargement. Its extractor of textures starts from drawn weights and learns
    with the rest; the authors start from VGG-19's, which this package does not have.

    >>> sizes = {"image_size": 8, "reference_size": 32}
    >>> task = keras_tfm.tasks.ReferenceRestorer(keras_tfm.models.TTSR.from_size("tiny", **sizes))
    >>> pictures = list(np.random.default_rng(0).integers(0, 256, (4, 40, 64, 3)).astype("uint8"))
    >>> history = task.fit(pictures, epochs=1, crops=2)
    >>> task.predict([{"image": pictures[0][:10, :12], "reference": pictures[0]}])[0]["picture"].shape
    (40, 48, 3)
    """

    num_pictures = 2

    def __init__(self, model: keras.Model, config: ImageRestorerConfig | None = None, **fields: Any):
        super().__init__(model, config_of(({} if config is None else vars(config)) | fields))
        self.side = SCALE * self.image_shape[0]
        if (sides := tuple(model.input["references"].shape[1:3])) != (self.side, self.side):
            expected = f"one whose references have {SCALE} times its images' side, {self.side}"
            raise Refusal("model", expected, "one of {} x {}".format(*sides))

    @staticmethod
    def tasks_of(model: keras.Model) -> dict[str, int]:
        return {REFERENCED: SCALE} if isinstance(model, TTSR) else {}

    @classmethod
    def make(cls, examples: Any, options: RestorerOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        values = vars(options.base()) | dict(changes)
        if fields.get("crop") is not None:
            values["image_size"] = fields["crop"]
        if "reference_size" not in changes and isinstance(values["image_size"], int):
            values["reference_size"] = SCALE * values["image_size"]
        model = TTSR(TTSR.config_class.from_json(values))
        for weight in model.get_layer("colour").weights:  # the answer is bicubic, until it has learnt
            weight.assign(tf.zeros_like(weight))
        LOG.info("a new TTSR, %s; its extractor starts from drawn weights, not from VGG-19's", options.size)
        return cls(model, **fields)

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        channels: int = 3,
        size: int = CROP,
        reads_references: bool = True,
        **fields: Any,
    ) -> Any:
        """Pictures, or `ReferencedImages` of tables with references; broken ones and too small ones are
        skipped. `size` is the side of crops unless the fields have one.
        """
        config = config_of(fields)
        return read_referenced_images(paths, SCALE * (config.crop or size), columns)

    read_training = read_files

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"size": self.image_shape[0], "reads_references": True, **vars(self.config)}

    @property
    def least(self) -> Size:
        return room_for_two(self.side)

    def check_examples(self, examples: Any, /) -> Any:
        """The pictures, or `ReferencedImages`; ValueError for what is broken, too small, or no picture."""
        if isinstance(examples, ReferencedImages):
            return examples
        if not isinstance(examples, tuple):
            return super().check_examples(examples)
        images, references = checked_columns(examples, images=not_image, references=not_image)
        refuse_empty(images, "images")
        rows = [{"image": x, "reference": y} for x, y in zip(images, references, strict=True)]
        pairs = pairs_of(rows)
        for row, problem in pairs.problems(self.side).items():
            raise ValueError(f"image {row}: {problem}")
        return pairs

    def images_in(self, examples: Any) -> list:
        return examples.rows() if isinstance(examples, ReferencedImages) else super().images_in(examples)

    def batches(
        self, examples: Any, training: RestorerTraining, is_validation: bool = False
    ) -> ReferencedBatches:
        pair = examples if isinstance(examples, ReferencedImages) else (examples, None)
        drawn = training.crops, training.batch_size, None if is_validation else training.seed
        return ReferencedBatches(*pair, self.config.names, self.image_shape[0], *drawn)

    def learner(self, training: RestorerTraining) -> keras.Model:
        images = keras.Input(self.image_shape, name=REFERENCED)
        references = keras.Input((self.side, self.side, 3), name="reference")
        outputs = {REFERENCED: beyond_bicubic(self.model, images, references)}
        return Model({REFERENCED: images, "reference": references}, outputs)

    def _mending(self, name: str, *references: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
        """A function that enlarges tiles (B, tile, tile, 3) from 0 to 1, each by the part of the reference,
        8-bit (H, W, 3), to which its cells are most similar in the mean.
        """
        (reference,) = references
        parts = parts_of(tf.cast(reference, tf.float32) / 255, self.side)

        def keys_of(part: tf.Tensor) -> tf.Tensor:
            return tf.cast(self.model.keys(2 * part[None] - 1)[0], tf.float32)

        keys = tf.map_fn(keys_of, parts)

        def enlarged(tile: tf.Tensor) -> tf.Tensor:
            queries = tf.cast(self.model.queries(2 * tile[None] - 1), tf.float32)

            def similarity(key: tf.Tensor) -> tf.Tensor:
                return tf.cast(self.model.similarity(queries, key[None])[0], tf.float32)

            similarities = tf.map_fn(similarity, keys, fn_output_signature=tf.float32)
            part = parts[tf.argmax(similarities)]
            return tf.cast(beyond_bicubic(self.model, tile[None], part[None])[0], tf.float32)

        return lambda tiles: tf.map_fn(enlarged, tiles)

    def measure(self, examples: Any) -> dict[str, Any]:
        """As `ImageRestorer`, and "x4_unrelated_psnr" and "x4_unrelated_ssim": the same with the reference of
        the next picture in place of its own. Of pictures alone the first half is enlarged, with the other
        half as its reference.
        """
        pairs = examples if isinstance(examples, ReferencedImages) else in_halves(examples)
        measures, count = super().measure(pairs), len(pairs.images)
        if count == 1:
            return measures
        others = pairs._replace(references=pairs.references[np.roll(np.arange(count), -1)])
        unrelated = super().measure(others)
        kinds = "psnr", "ssim"
        return measures | {f"{REFERENCED}_unrelated_{x}": unrelated[f"{REFERENCED}_{x}"] for x in kinds}

    def refusals(
        self, examples: Any, restore: str | None = None, reference: Any = None, **options: Any
    ) -> dict[int, str]:
        def problem(example: Any) -> str | None:
            is_alone = reference is not None and not isinstance(example, Mapping)
            return self._problem(dict(zip(ROW, (example, reference), strict=True)) if is_alone else example)

        return reasons(examples, problem)

    def _problem(self, example: Any) -> str | None:
        """Why a picture, or {"image", "reference"}, cannot be answered; None if it can."""
        if not isinstance(example, Mapping):
            return not_image(example) or unmendable(encoded(example), SCALE)
        if set(example) != set(ROW):
            return f"expected a picture, or {{{', '.join(ROW)}}}, got {{{', '.join(map(str, example))}}}"
        if problem := self._problem(example["image"]) or not_image(example["reference"]):
            return problem
        image, reference = (encoded(example[name]) for name in ROW)
        return unusable(image, reference, 1, self.side)

    def _asked(self, images: list, reference: Any) -> list:
        if reference is None and not all(isinstance(image, Mapping) for image in images):
            raise Refusal("reference", "a picture, for all that have none of their own", "left out")
        return [
            image if isinstance(image, Mapping) else {"image": image, "reference": reference}
            for image in images
        ]

    def _pictures(self, image: Any) -> list:
        return [image[name] for name in ROW]

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_rows_with_references(path, columns)

    def export_endpoints(self, restore: str | None = None) -> Endpoints:
        """The bytes of PNG files by the bytes of image files and of their references'."""
        enlarge = self._function("mend", self._chosen(restore))

        def answer(image_bytes: tf.Tensor, reference_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            pairs, kind = (image_bytes, reference_bytes), tf.string
            files = tf.map_fn(lambda pair: tf.io.encode_png(enlarge(*pair)), pairs, fn_output_signature=kind)
            return {"png": files}

        names = "image_bytes", "reference_bytes"
        return {"serving_default": (answer, [tf.TensorSpec([None], tf.string, name) for name in names])}


def config_of(fields: Mapping[str, Any]) -> ImageRestorerConfig:
    """The configuration with these fields; `Refusal` of what a TTSR does not mend."""
    config = ImageRestorerConfig(**{"restore": REFERENCED, **fields})
    if config.restore != REFERENCED:
        raise Refusal("restore", f"{REFERENCED}, which is all that ttsr mends", repr(config.restore))
    return config


def parts_of(image: tf.Tensor, side: int) -> tf.Tensor:
    """Squares (M, side, side, C) that cover an image (H, W, C) and overlap by a quarter or more;
    InvalidArgumentError, in a graph too, for an image with a shorter side.

    >>> make = keras_tfm.tasks.images.reference_restorer.parts_of
    >>> make(tf.zeros((40, 64, 3)), side=32).shape
    TensorShape([6, 32, 32, 3])
    """
    lengths = tf.shape(image)[:2]
    message = f"expected a reference of at least {side} x {side} pixels"
    with tf.control_dependencies([tf.debugging.assert_greater_equal(lengths, side, message)]):
        lengths = tf.identity(lengths)
    step, channels = side - side // 4, image.shape[-1]
    places = []
    for axis in range(2):
        room = lengths[axis] - side
        count = (room + step - 1) // step + 1
        firsts = tf.range(count) * room // tf.maximum(count - 1, 1)
        places.append(firsts[:, None] + tf.range(side))  # (M, side)
    rows, columns = places
    squares = tf.gather(tf.gather(image, rows), columns, axis=2)  # (rows, side, columns, side, C)
    squares = tf.transpose(squares, (0, 2, 1, 3, 4))
    return tf.reshape(squares, (-1, side, side, channels))  # (M, side, side, C)
