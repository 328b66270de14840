"""Pre-training a detector without labels: find the places from which patches were cut out of an image.

    patch --- backbone ---> mean ---> dense ---+
                                               + --> position of the query ---> decoder ---> is it there,
    object query ------------------------------+                                where, and which features

Dai et al. 2021, "UP-DETR: Unsupervised Pre-training for Object Detection with Transformers", whose shuffling
of the object queries is missing. The backbone of images is frozen. Each patch has Q / P queries in a row,
which attend in the decoder's self-attention to each other alone:

    query   0 1 2 3 4 5        Q = 6 queries, P = 2 patches
    0       x x x . . .
    1       x x x . . .
    2       x x x . . .
    3       . . . x x x
    4       . . . x x x
    5       . . . x x x
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.configs import FieldError
from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.object_detector import box_head, check_classes
from keras_tfm.heads.set_prediction import SetPredictionLoss
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.compiler.bits import keeps
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.normalization import unit


class PatchDetector(ModelWithHead):
    """A `backbone`, a `DETR`, that finds `num_patches` patches of its images, by heads of its own.

    Inputs: the backbone's inputs, and `patches` (B, P, h, w, C), each cut out of its image and resized. The
    output, `predictions` (B, L, Q, P + num_classes + 5) of the L decoder blocks, is for the loss of
    `loss_of_training`: how far the features that a query predicts are from the features of each patch, logits
    of the classes and of no object, and boxes. `found` has the last block's outputs by name: `logits`,
    `boxes`, `features` (B, Q, F), and `patch_features` (B P, F). The layers of the backbone's own backbone
    are frozen here; `detector` is a copy in which they learn.

    Args:
        num_patches: P, which must divide the backbone's queries Q.
        patch_size: h and w, or one for both, by default the size of the images. Another needs layers that
            read any size, such as a `ResNet`'s.
        dropout: the rate at which training zeroes a query's patch vector.
        num_classes: the patches are of the first one.

    >>> config = keras_tfm.models.DETR.config_of_size("tiny", image_size=64)
    >>> model = keras_tfm.heads.PatchDetector(keras_tfm.models.DETR(config), num_patches=4, patch_size=32)
    >>> model.output.shape  # 3 decoder blocks, 16 queries, 4 distances, 2 logits and a box
    (None, 3, 16, 10)
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_patches: int = 10,
        patch_size: int | Sequence[int] | None = None,
        dropout: float = 0.1,
        num_classes: int = 1,
        name: str = "patch_detector",
        **kwargs: Any,
    ) -> None:
        check_classes(num_classes)
        num_queries = backbone.config.num_queries
        if num_patches < 1 or num_queries % num_patches:
            raise FieldError("{num_patches} must divide the {} queries; it is {}.", num_queries, num_patches)
        images, features = backbone.input["images"], backbone.maps[-1]
        reader = keras.Model(images, features, name="patch_reader")
        reader.trainable = False
        shape = tuple(images.shape[1:])
        size = shape[:2] if patch_size is None else tuple(np.broadcast_to(patch_size, 2).tolist())
        if size != shape[:2]:
            shape = (*size, shape[-1])
            reader = keras.models.clone_model(
                reader, input_tensors=keras.Input(shape), clone_function=lambda layer: layer
            )  # the same layers for images of another size
        patches = keras.Input((num_patches, *shape), name="patches")
        maps = reader(ops.reshape(patches, (-1, *shape)))  # (B P, rows, columns, F)
        patch_features = keras.layers.GlobalAveragePooling2D(name="patch_mean")(maps)  # (B P, F)

        queries = backbone.get_layer("decoder_queries").output  # (B, Q, D)
        by_patch = ops.reshape(patch_features, (-1, num_patches, patch_features.shape[-1]))  # (B, P, F)
        queries = PatchQueries(dropout, name="patch_queries")(queries, by_patch)
        mask = ops.convert_to_tensor(own_queries(num_queries, num_patches))
        tensors = {
            "attention": {"position": queries, "mask": mask},
            "context_attention": {"position": queries, **backbone.context},
        }
        x, states = ops.zeros_like(queries), []
        for block in backbone.blocks["decoder"]:
            x = block(x, **tensors)
            states.append(x)
        states = backbone.get_layer("decoder_norm")(ops.stack(states, axis=1))  # (B, L, Q, D)

        dim = states.shape[-1]
        logits = Dense(num_classes + 1, name="class_head")(states)
        boxes = box_head(dim, "sigmoid")(states)
        align = Chain([Dense(dim, "relu"), Dense(patch_features.shape[-1])], name="feature_head")
        query_features = align(states)  # (B, L, Q, F)
        distances = squared_unit_distances(query_features, by_patch)  # (B, L, Q, P)
        inputs = {**backbone.input, "patches": patches}
        predictions = ops.concatenate([ops.cast(distances, logits.dtype), logits, boxes], axis=-1)
        super().__init__(backbone, inputs, predictions, name=name, **kwargs)
        self.num_patches = num_patches
        self.patch_size = patch_size
        self.dropout = dropout
        self.num_classes = num_classes
        last = {"logits": logits, "boxes": boxes, "features": query_features}
        self.found = {name: x[:, -1] for name, x in last.items()} | {"patch_features": patch_features}

    def loss_of_training(self):
        """The loss of the output."""
        return PatchDetectionLoss(self.num_patches)

    def detector(self):
        """A copy of the backbone, all of whose layers learn that its configuration does not freeze."""
        copied = type(self.backbone).from_config(self.backbone.get_config())
        copied.set_weights(self.backbone.get_weights())
        return copied


class PatchQueries(SameShape):
    """Object queries (B, Q, D), to which a linear function of patches' features (B, P, F) is added.

    Each patch is added to Q / P queries in a row. Training leaves it out of a query with probability
    `dropout`, and does not scale the others.

    >>> keras_tfm.heads.PatchQueries()(np.ones((1, 6, 8)), np.ones((1, 2, 5))).shape
    TensorShape([1, 6, 8])
    """

    def __init__(self, dropout: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must lie in [0, 1); it is {dropout}.")
        self.dropout = dropout
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, queries_shape, features_shape):
        if queries_shape[1] % features_shape[1]:
            raise ValueError(f"{features_shape[1]} patches do not divide {queries_shape[1]} queries.")
        self.projection = Dense(queries_shape[-1], name="projection")
        self.projection.build(features_shape)

    def call(self, queries, features, training=False):
        """(B, Q, D) -> (B, Q, D)."""
        patches = ops.repeat(self.projection(features), queries.shape[1] // features.shape[1], axis=1)
        if training and self.dropout:
            keep = keeps(ops.shape(patches)[:2], self.dropout, self.seed_generator.next())
            patches = ops.where(keep[..., None], patches, ops.zeros((), patches.dtype))
        return queries + patches

    def compute_mask(self, queries, previous_mask=None):
        return None


class PatchDetectionLoss(SetPredictionLoss):
    """The `SetPredictionLoss` of a `PatchDetector`, and of matched queries the distance of their features.

    Predictions are (B, L, Q, P + C + 5), targets (B, P, 5) the patches in their order, of the class 0. The
    distance, squared and of features of length 1, is divided by the number of targets.

    >>> loss = keras_tfm.heads.PatchDetectionLoss(num_patches=1)
    >>> targets = np.array([[[0, 0.5, 0.5, 0.2, 0.2]]])  # a patch
    >>> predictions = np.array([[[[0.3, 9.0, -9.0, 0.5, 0.5, 0.2, 0.2]]]])  # right but for the features
    >>> round(float(loss(targets, predictions)), 2)
    0.3
    """

    def __init__(
        self,
        num_patches: int,
        weights: Sequence[float] = (1.0, 5.0, 2.0),
        costs: Sequence[float] | None = None,
        no_object: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, costs, no_object, **kwargs)
        self.num_patches = num_patches

    def logits_of(self, predictions):
        return predictions[..., self.num_patches : -4]

    def further_badness(self, predictions, of_query):
        index = ops.maximum(of_query, 0)[..., None]  # (B L, Q, 1)
        return ops.take_along_axis(predictions[..., : self.num_patches], index, axis=-1)[..., 0]


def own_queries(num_queries: int, num_patches: int) -> np.ndarray:
    """Which queries attend to which: a query attends to the queries of the same patch. (1, Q, Q), boolean.

    >>> keras_tfm.heads.own_queries(4, 2).astype(int).tolist()
    [[[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]]
    """
    of_query = np.arange(num_queries) // (num_queries // num_patches)
    return (of_query[:, None] == of_query)[None]


def squared_unit_distances(query_features, patch_features):
    """The squared distances (B, L, Q, P) of `query_features` (B, L, Q, F) from `patch_features` (B, P, F),
    both scaled to the length 1, in float32.
    """
    return 2 - 2 * ops.einsum("blqf,bpf->blqp", unit(query_features), unit(patch_features))
