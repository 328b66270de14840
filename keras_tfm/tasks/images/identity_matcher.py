"""Re-identification: vectors of images that find the same person or car again, before other cameras."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Count, FieldError, Option, kinds_of
from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.batches.identities import IdentityBatches
from keras_tfm.data.sources.identities import Identities, identity_of, read_identities
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.heads.reidentification import Reidentifier
from keras_tfm.models.families import OnDemand
from keras_tfm.serving.examples import (
    Refused,
    as_columns,
    listed,
    not_whole,
    reasons,
    refuse_empty,
    refuse_unequal,
)
from keras_tfm.serving.reading import Read
from keras_tfm.tasks.classes import AreaOfCrop, ChangedImages
from keras_tfm.tasks.images.decoded import DecodedImages
from keras_tfm.tasks.images.identity_measures import retrieval
from keras_tfm.tasks.images.image_encoder import ImageEncoder
from keras_tfm.tasks.images.image_families import FAMILIES, ImageOptions
from keras_tfm.tasks.images.image_task import (
    ImageTask,
    image_shape_of,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import load_any, make_backbone
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import PartlyTrained

COLUMNS = "images", "identities", "cameras"


@dataclasses.dataclass(frozen=True)
class IdentityMatcherConfig(Preprocessing):
    """Who an `IdentityMatcher` learns from, and the preprocessing of its images.

    Args:
        identities: the names of the training's identities, in the order of the logits.
        cameras: the numbers of the cameras of which the model has a vector, in their order.
    """

    identities: tuple[str, ...]
    cameras: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("identities", str), ("cameras", int)):
            values = tuple(map(kind, np.atleast_1d(getattr(self, name)).tolist()))
            object.__setattr__(self, name, values)
            if len(set(values)) < len(values):
                raise ValueError(f"`{name}` must be different; they are {values}.")
        super().__post_init__()
        if len(self.identities) < 2:
            raise ValueError(f"`identities` must be two or more; they are {self.identities}.")


@dataclasses.dataclass(frozen=True)
class IdentityOptions(ImageOptions):
    """A vision model with fresh weights, whose vectors are compared."""

    families: ClassVar[Mapping[str, Any]] = OnDemand({"transreid": "TransReID"}) | FAMILIES
    family: Annotated[str, Option(f"kind of model: transreid, {', '.join(FAMILIES)}")] = "transreid"
    size: Annotated[
        str, Option("a published size of the family, or tiny, of transreid for images of 64 x 32 pixels")
    ] = "tiny"
    camera_vectors: Annotated[
        bool,
        Option("learn a vector for each camera; the model then needs the camera of every image (transreid)"),
    ] = False

    def base(self) -> Any:
        if self.camera_vectors and "num_cameras" not in kinds_of(self.model_class.config_class):
            raise FieldError("{camera_vectors} needs the {family} transreid; it is {}.", self.family)
        return super().base()


@dataclasses.dataclass(frozen=True)
class IdentityTraining(ChangedImages, PartlyTrained):
    """A batch has several images of each of several identities. By default the warm-up takes a tenth of the
    steps.
    """

    identities_in_batch: Annotated[Count, Option("identities in a batch")] = 16
    images_of_each: Annotated[Count, Option("images of each identity in a batch")] = 4
    least_area: AreaOfCrop = 0.7


class IdentityMatcher(ImageTask, FineTunedTask):
    """Turns images into vectors of length 1, which are near to each other for images of one identity, such
    as a person or a car, whichever camera took them.

    Args:
        backbone: a model with a `pooled_output`, such as `TransReID`, which gets a new neck, or a
            `heads.Reidentifier`.
        identities: the names of the identities to learn from; other identities can be looked for later.
        options: further fields of `IdentityMatcherConfig`.

    Examples are (images, identities, cameras): images as in `ImageTask`, names and numbers. A fourth column,
    True for queries, separates what `evaluate` looks for from the gallery where it looks; without it each
    image is looked for among all others. A model with vectors of cameras takes (image, camera) for an image,
    or files whose names say the camera, as Market-1501's do.

    >>> from keras_tfm.data.worlds import drawn_people

    >>> people = drawn_people(4, num_cameras=2)
    >>> task = keras_tfm.tasks.IdentityMatcher.from_size("tiny", set(people.identities), num_layers=2)
    >>> history = task.fit(people[:3], 0.5, epochs=1, identities_in_batch=2, images_of_each=2)
    >>> task.predict(people.images).shape
    (16, 640)
    """

    name = "reidentify"
    start = "a RUN of this task"
    files = (
        "a folder with train/, query/ and gallery/ (or Market-1501's names of these), or a folder of images; "
        "names are like 0002_c1s1_000451_03.jpg, identity 2, camera 1; train reads train/, evaluate the "
        "others"
    )
    unit = "images"
    held_out = HeldOut(0.1, least=100)
    training = IdentityTraining(
        epochs=60, patience=None, learning_rate=5e-4, schedule="cosine", weight_decay=0.05
    )
    model_options = IdentityOptions
    config_class = IdentityMatcherConfig

    def __init__(self, backbone: keras.Model, identities: Any, **fields: Any):
        names: Any = sorted(identities) if isinstance(identities, set) else identities
        self.config = IdentityMatcherConfig(names, **fields)
        self.model = self._with_neck(backbone)
        count = len(self.config.cameras)
        known = getattr(self.encoder.config, "num_cameras", 0)
        if count != known:
            raise ValueError(f"`cameras` must be as many as the model's, {known}; they are {count}.")
        self.take_images(self.encoder)

    def _with_neck(self, model: keras.Model) -> keras.Model:
        """A `Reidentifier` for images of the configuration's size, with the weights of a `model`."""
        has_neck = isinstance(model, Reidentifier)
        old = model.backbone if has_neck else model
        if "pooled_output" not in old.output:
            raise ValueError(f"expected a model with `pooled_output`, got a {type(old).__name__}")
        backbone = with_image_size(old, self.config.image_size)
        return model.on(backbone) if has_neck else Reidentifier(backbone, len(self.config.identities))

    @classmethod
    def make(
        cls, examples: Identities, options: IdentityOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        changes = with_side(changes, fields)
        if options.camera_vectors:
            fields["cameras"] = np.unique(examples[2])
            changes = {**changes, "num_cameras": len(fields["cameras"])}
        return cls(options.model(changes), np.unique(examples[1]), **fields)

    @classmethod
    def from_size(cls, size: str, identities: Any, **changes: Any) -> Self:
        """A matcher with a `TransReID` of this size and fresh weights, without vectors of cameras.

        `changes` replace fields of the size's configuration, for example `num_parts=0`; ValueError for an
        unknown size or field.
        """
        return cls(IdentityOptions(size=size).model(changes), identities)

    @property
    def encoder(self) -> keras.Model:
        """The model without its neck."""
        return self.model.backbone

    @classmethod
    def reading(
        cls, options: IdentityOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return load_any(start).file_fields
        return {"image_shape": image_shape_of(dataclasses.replace(options.base(), **changes))}

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> Identities:
        """The images to train on, of the shape and preprocessing that the fields describe."""
        shape, preprocessing = shape_and_preprocessing(**fields)
        return read_identities(paths, shape, ("train",), preprocessing)

    def read_examples(self, paths: Sequence[Path], columns: ColumnNames = None, **options: Any) -> Identities:
        """The queries and the gallery, which `evaluate` takes."""
        return read_identities(paths, self.image_shape, ("query", "gallery"), self.preprocessing)

    @classmethod
    def adopt(cls, task: Any, examples: Identities, **fields: Any) -> Self:
        """A matcher with the other's configuration, and its neck if that knows the examples' identities."""
        kept = dataclasses.asdict(cls.checked(task).config) | fields
        names = kept.pop("identities")
        if set(map(str, examples[1])) <= set(names):
            return cls(task.model, names, **kept)
        return cls(task.encoder, np.unique(examples[1]), **kept)

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, Reidentifier)

    def check_examples(self, examples: Any, /) -> Identities:
        """The columns as arrays, of images perhaps files, and which images are queries."""
        has_queries = isinstance(examples, tuple | list) and len(examples) == 4
        *columns, queries = examples if has_queries else (examples, None)
        images, names, cameras = as_columns(columns if has_queries else examples, *COLUMNS)
        images = self.check_images(images)
        refuse_empty(images, "images")
        names, cameras = listed(names, "`identities`"), listed(cameras, "`cameras`")
        refuse_unequal(images=images, identities=names, cameras=cameras)
        queries = np.zeros(len(images), bool) if queries is None else np.asarray(queries)
        refuse_unequal(images=images, queries=queries)
        for row, reason in reasons(cameras, self._not_camera).items():
            raise ValueError(f"`cameras`, row {row}: {reason}")
        for row, name in enumerate(names):
            if not isinstance(name, str | int | np.integer):
                raise ValueError(f"`identities`, row {row}: expected a name or a number, got {name!r:.40}")
        return Identities(images, np.array(list(map(str, names))), np.array(cameras, "int32"), queries)

    def _not_camera(self, camera: Any) -> str | None:
        if not self.config.cameras:
            return not_whole(camera)
        known = camera in self.config.cameras
        return None if known else f"expected one of the cameras {self.config.cameras}, got {camera!r:.40}"

    def classes_in(self, examples: Identities) -> np.ndarray:
        return np.unique(examples.identities, return_inverse=True)[1]

    def camera_inputs(self, cameras: np.ndarray) -> np.ndarray | None:
        """The model's numbers (N,) of cameras, or None if it has no vectors of them."""
        places = {camera: place for place, camera in enumerate(self.config.cameras)}
        return np.array([places[camera] for camera in cameras.tolist()], "int32") if places else None

    def batches(
        self, examples: Identities, training: IdentityTraining, is_validation: bool = False
    ) -> IdentityBatches:
        places = {name: place for place, name in enumerate(self.config.identities)}
        if unknown := sorted(set(examples.identities.tolist()) - places.keys()):
            raise ValueError(f"`identities` must be identities of the task; {unknown[0]!r} is none.")
        learning: Mapping[str, Any] = {
            "seed": training.seed,
            "max_shift": training.max_shift,
            "augmentation": Augmentation(training.augment, training.flip, training.least_area),
        }
        return IdentityBatches(
            examples.images,
            np.array([places[name] for name in examples.identities.tolist()]),
            self.prepare,
            training.identities_in_batch,
            training.images_of_each,
            cameras=self.camera_inputs(examples.cameras),
            **({} if is_validation else learning),
        )

    def objective(self, training: IdentityTraining) -> dict[str, Any]:
        return {"loss": self.model.loss_of_training()}

    def learner(self, training: IdentityTraining) -> keras.Model:
        return self.model.learner()

    def measure(self, examples: Identities) -> dict[str, Any]:
        """ "map", the mean average precision, and "rank_1", "rank_5" and "rank_10", from 0 to 1, of the
        "queries"; see `identity_measures.retrieval`.
        """
        cameras = examples.cameras.tolist() if self.config.cameras else None
        return retrieval(self.predict(examples.images, cameras=cameras), *examples[1:])

    def __call__(self, batch: Any, training: bool = False) -> Any:
        """The outputs of the `Reidentifier` for raw images, or for {"images": them, "camera": places (B,) in
        `config.cameras`}.
        """
        inputs = dict(batch) if isinstance(batch, dict) else {"images": batch}
        inputs["images"] = self.prepare(np.asarray(self.check_images(inputs["images"])))
        return self.model(inputs, training=training)

    def encode(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """Raw images (B, H, W, C), and cameras (B,) if the model knows some, to vectors (B, D) of length 1.
        Runs in a graph.
        """
        inputs = {**inputs, "images": self.prepare(inputs["images"])}
        vectors = self.model(inputs, training=False)["embeddings"]
        return tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=-1)

    def predict(
        self, images: Any, /, *, batch_size: int = 64, cameras: Sequence[int] | None = None
    ) -> np.ndarray:
        """The vectors of the images, (N, D). A model with vectors of cameras needs the `cameras` (N,), unless
        the names of the files say them.
        """
        if cameras is not None:
            images = list(zip(listed(self.as_list(images)), cameras, strict=True))
        return self.outputs(images, "vector", self.model.output["embeddings"].shape[-1], batch_size)

    def similarity(self, images: Any, others: Any) -> np.ndarray:
        """The cosine of each of `images` and each of `others`, (N, M), from -1 to 1."""
        return self.predict(images) @ self.predict(others).T

    @staticmethod
    def as_line(answer: np.ndarray) -> str:
        return ImageEncoder.as_line(answer)

    @property
    def own_reader(self) -> Any:
        reader = DecodedImages(self.image_shape, self.preprocessing)
        return SeenImages(reader, self.config.cameras) if self.config.cameras else reader

    def signature(self) -> Signature:
        signature = self.signature_of(
            lambda images: {"vector": self.encode({"images": images})}, {"kind": "arrays"}
        )
        if not self.config.cameras:
            return signature
        return signature._replace(
            reads={**signature.reads, "kind": "seen images", "cameras": list(self.config.cameras)},
            function=lambda inputs: {"vector": self.encode(inputs)},
            inputs={**signature.inputs, "camera": tf.TensorSpec([None], tf.int32)},
            examples=[(image, self.config.cameras[0]) for image in signature.examples],
        )

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: IdentityMatcherConfig, model: dict[str, Any]) -> Self:
        whole = Reidentifier(make_backbone(model), len(config.identities))
        side = config.image_size
        if whole.input["images"].shape[1:3] != (side, side):  # of earlier RUNs, whose models do not have it
            config = dataclasses.replace(config, image_size=None)
        return cls(whole, **dataclasses.asdict(config))


class SeenImages(DecodedImages):
    """Images as a `reader` gives them, each with its camera: (image, camera), or a file by whose name it is
    known.
    """

    def __init__(self, reader: DecodedImages, cameras: Sequence[int]):
        super().__init__(reader.shape, reader.preprocessing)
        self.cameras = {camera: place for place, camera in enumerate(cameras)}

    def read(self, examples: Sequence[Any]) -> list:
        pairs = list(map(_seen, examples))
        found: list[Any] = super().read([image for image, _ in pairs])
        for row, (_, camera) in enumerate(pairs):
            if isinstance(found[row], Refused):
                continue
            if camera not in self.cameras:
                known = ", ".join(map(str, self.cameras))
                found[row] = Refused(
                    f"expected an image by one of the cameras {known}, as (image, camera) or with a name as "
                    f"0002_c1s1_000451_03.jpg; got {camera!r:.40}"
                )
            else:
                found[row] = Read([(found[row].rows[0], self.cameras[camera])])
        return found

    def join(self, rows: Sequence[Any], widths: Any = None) -> dict[str, np.ndarray]:
        images, cameras = zip(*rows, strict=True)
        return {**super().join(images), "camera": np.array(cameras, "int32")}


def _seen(example: Any) -> tuple[Any, Any]:
    """(The image, the camera, or None if nothing says it)."""
    if isinstance(example, tuple) and len(example) == 2:
        return example
    if isinstance(example, str | os.PathLike) and (known := identity_of(example)):
        return example, known[1]
    return example, None
