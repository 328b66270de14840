"""Generating scene graphs: which objects an image shows, and how they are related."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import tensorflow as tf

from keras_tfm.configs import Option, Size
from keras_tfm.data.batches.canvas import CanvasBatches
from keras_tfm.data.batches.targets import relation_targets
from keras_tfm.data.sources.relations import (
    KINDS,
    RelatedObjects,
    checked_relations,
    read_relations,
    related_in,
)
from keras_tfm.heads.relation_detector import PLACES, RelationDetector
from keras_tfm.layers.boxes import corners_of
from keras_tfm.models import RelTR
from keras_tfm.models.detection.base import SetDetectorConfig
from keras_tfm.serving.examples import listed, not_list, not_texts, refuse_empty, refuse_unknown
from keras_tfm.tasks.images.canvas_task import (
    CanvasTask,
    canvas_batches,
    refuse_many,
    sized,
)
from keras_tfm.tasks.images.decoded import listed_images
from keras_tfm.tasks.images.detector import DetectorConfig
from keras_tfm.tasks.images.drawing import Pictures
from keras_tfm.tasks.images.graph_drawing import draw_graphs
from keras_tfm.tasks.images.relation_recall import relation_recall
from keras_tfm.tasks.learning import ModelOptions, with_side
from keras_tfm.tasks.records import rounded_line
from keras_tfm.tasks.signatures import Signature
from keras_tfm.training.options import ImagesInBatch, LeastArea, PartlyTrained


@dataclasses.dataclass(frozen=True, kw_only=True)
class SceneGraphConfig(DetectorConfig):
    """`predicates` are strings, in the order of the logits. Triplets that score `threshold` or more are in
    the answers.
    """

    predicates: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.predicates or len(set(self.predicates)) < len(self.predicates):
            raise ValueError(f"`predicates` must be different strings; they are {self.predicates}.")


@dataclasses.dataclass(frozen=True)
class SceneGraphOptions(ModelOptions):
    """A RelTR with fresh weights; --config changes its `backbone`, for example, and `backbone_config`."""

    size: Annotated[str, Option("50, around a ResNet-50, or tiny, for images of some 96 x 96 pixels")] = (
        "tiny"
    )
    num_queries: Annotated[
        Size | None,
        Option("most objects that are found in an image", flag="--queries", default="set by --size"),
    ] = None
    num_triplets: Annotated[
        Size | None,
        Option("most relations that are found in an image", flag="--triplets", default="set by --size"),
    ] = None

    def base(self) -> SetDetectorConfig:
        changes = {"num_queries": self.num_queries, "num_triplets": self.num_triplets}
        changes = {name: value for name, value in changes.items() if value is not None}
        return RelTR.config_of_size(self.size, **changes)


@dataclasses.dataclass(frozen=True)
class SceneGraphTraining(PartlyTrained):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: ImagesInBatch = 16
    flip: Annotated[
        bool, Option("mirror images at random; only where no relation depends on left and right")
    ] = False
    least_area: LeastArea = 1.0


class SceneGraphGenerator(CanvasTask):
    """Images, as `ImageTask` has them, to the relations in them, by a `backbone`, a `RelTR`, or one with a
    head.

    Examples are (images, boxes, labels, relations): of each image its boxes, (left, top, right, bottom) in
    its own pixels, their names, and its relations, (row of the subject's box, predicate, row of the object's
    box). An answer has, for each of M triplets, the surest first, "subjects", "predicates" and "objects", M
    names each, "subject_boxes" and "object_boxes" (M, 4) in pixels, and "scores" (M,), the product of the
    three probabilities. `fields` are fields of `SceneGraphConfig`.

    >>> backbone = keras_tfm.models.RelTR.from_size("tiny", image_size=32, num_layers=1, num_decoder_layers=1)
    >>> task = keras_tfm.tasks.SceneGraphGenerator(backbone, ["cat", "mat"], predicates=["on"])
    >>> images, boxes = np.zeros((8, 32, 32, 3), "uint8"), [[[0, 0, 16, 16], [0, 16, 16, 32]]] * 8
    >>> history = task.fit((images, boxes, [["cat", "mat"]] * 8, [[(0, "on", 1)]] * 8), epochs=1)
    >>> set(task.predict(images[:1], threshold=0.0)[0]["predicates"])
    {'on'}
    """

    name = "relate"
    start = "a RUN of this task"
    files = KINDS
    examples_class = RelatedObjects
    training = SceneGraphTraining(
        epochs=50, patience=None, learning_rate=1e-3, schedule="cosine", weight_decay=1e-4
    )
    optimizer_options = {"global_clipnorm": 1.0}
    model_options = SceneGraphOptions
    annotations = staticmethod(related_in)
    from_files = staticmethod(read_relations)
    ranked = "subject_boxes", "subjects", "predicates", "object_boxes", "objects", "scores"
    make_head = RelationDetector
    config_class = SceneGraphConfig
    config: SceneGraphConfig

    def __init__(
        self, backbone: keras.Model, class_names: Sequence[str], predicates: Sequence[str], **fields: Any
    ) -> None:
        super().__init__(backbone, class_names, predicates=tuple(predicates), **fields)
        self.predicates = list(self.config.predicates)
        if self.model.num_predicates != len(self.predicates):
            raise ValueError(
                f"`predicates` must be {self.model.num_predicates}, as the head has them; they are "
                f"{len(self.predicates)}."
            )

    def with_head(self, backbone: keras.Model) -> keras.Model:
        dim = backbone.config.dim  # the maps' head is as wide, beside it, as the published one of dim 256
        widths: dict[str, Any] = {"map_filters": (dim // 4, dim // 8), "map_widths": (2 * dim, dim // 2)}
        return RelationDetector(backbone, len(self.class_names), len(self.config.predicates), **widths)

    @classmethod
    def make(
        cls, examples: RelatedObjects, options: SceneGraphOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        config = dataclasses.asdict(options.base()) | with_side(changes, fields)
        make: Any = RelTR
        return cls(make(RelTR.config_class.from_json(config)), *names_of(examples), **fields)

    @classmethod
    def describe(cls, examples: RelatedObjects) -> str:
        objects, relations = (sum(map(len, x)) for x in (examples.boxes, examples.relations))
        return f"{len(examples.images):,} images with {objects:,} objects and {relations:,} relations"

    @classmethod
    def takes(cls, model: keras.Model) -> bool:
        return isinstance(model, RelationDetector)

    def check_examples(self, examples: Any, /) -> RelatedObjects:
        """Images with their sizes, boxes as parts of their sides, and names that the task knows."""
        if not isinstance(examples, RelatedObjects):
            images, sizes, boxes, labels, relations = self.columns_in(
                examples, boxes=not_list, labels=not_texts, relations=not_list
            )
            places = [f"image {row}" for row in range(len(images))]
            boxes = [[*map(list, each)] for each in boxes]
            found = checked_relations(list(zip(places, boxes, labels, relations, strict=True)), sizes)
            examples = RelatedObjects(images, sizes, *found)
        refuse_empty(examples.images, "images")
        names, predicates = names_of(examples)
        refuse_unknown(names, self.class_names, "labels")
        refuse_unknown(predicates, self.predicates, "relations")
        config = self.model.backbone.config
        refuse_many("boxes", map(len, examples.labels), config.num_queries)
        refuse_many("relations", map(len, examples.relations), config.num_triplets)
        return examples

    def batches(
        self, examples: RelatedObjects, training: SceneGraphTraining, is_validation: bool = False
    ) -> CanvasBatches:
        number = {name: place for place, name in enumerate(self.class_names)}
        place_of = {name: place for place, name in enumerate(self.predicates)}
        classes = [[number[name] for name in names] for names in examples.labels]
        relations = [[(s, place_of[p], o) for s, p, o in each] for each in examples.relations]
        targets = relation_targets(examples.boxes, classes, relations)
        places = (self.preprocessing, self.image_shape, training, is_validation)
        return canvas_batches(examples, targets, *places, are_objects=True)

    def relate(self, images: tf.Tensor, sizes: tf.Tensor) -> dict[str, tf.Tensor]:
        """All triplets of raw images of the model's size (B, H, W, C), whose own `sizes` are (B, 2): the
        boxes (B, T, 4) in their own pixels, the numbers of the names and the scores (B, T), the surest first.
        """
        outputs = self.model(self.preprocessing.inputs(images, sizes), training=False)
        scale = tf.cast(tf.gather(sizes, [1, 0, 1, 0], axis=1), tf.float32)[:, None]
        found, scores = {}, tf.constant(1.0)
        for part in (*PLACES, "predicate"):
            probabilities = self.model.probabilities(outputs[f"{part}_logits"])
            found[f"{part}s"] = tf.argmax(probabilities, axis=-1)
            scores *= tf.reduce_max(probabilities, axis=-1)
        for place in PLACES:
            corners = corners_of(tf.cast(outputs[f"{place}_boxes"], tf.float32))
            found[f"{place}_boxes"] = tf.clip_by_value(corners, 0.0, 1.0) * scale
        scores, order = tf.math.top_k(scores, scores.shape[1])
        return {name: tf.gather(x, order, batch_dims=1) for name, x in found.items()} | {"scores": scores}

    def predict(
        self,
        images: Any,
        /,
        *,
        threshold: float | None = None,
        draw: Pictures | None = None,
        batch_size: int = 16,
    ) -> list[dict[str, Any]]:
        """The triplets of each image of a score of `threshold`, by default the configuration's, and above.

        With `draw`, a folder, pictures with the graphs over them are written there, or to a file for each.
        """
        images = listed(listed_images(images))
        answers = self.surest(images, threshold, batch_size)
        found = [{name: answer[name] for name in self.ranked} for answer in answers]
        if draw is not None:
            draw_graphs(images, found, self.class_names, draw)
        return found

    def as_line(self, answer: dict[str, Any]) -> str:
        return rounded_line(answer, {"subject_boxes": 2, "object_boxes": 2, "scores": 4})

    def measure(self, examples: RelatedObjects) -> dict[str, Any]:
        """The recall of relations, from 0 to 100, as `relation_recall` has it."""
        return relation_recall(examples, self.predict(sized(examples), threshold=0.0))

    def signature(self) -> Signature:
        """All triplets that the model gives, of scores down to 0: the caller chooses."""
        answers = {"kind": "triplets", "labels": self.class_names, "predicates": self.predicates}
        return self.signature_of(lambda inputs: self.relate(**inputs), answers)


def names_of(examples: RelatedObjects) -> tuple[list[str], list[str]]:
    """The names of the classes of examples and their predicates, each in order."""
    names = {name for each in examples.labels for name in each}
    return sorted(names), sorted({predicate for each in examples.relations for _, predicate, _ in each})
