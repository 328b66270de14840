"""The head of a scene graph: entities, and triplets of a subject, a predicate and an object.

Cong et al. 2023, "RelTR: Relation Transformer for Scene Graph Generation", sections 3.2 and 3.3.
"""

import math
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.cells import cells_of
from keras_tfm.heads.object_detector import check_classes
from keras_tfm.heads.relation_loss import RelationSetLoss
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.convolution import BatchNormalization, Convolution
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.pooling import MaxPooling
from keras_tfm.layers.resizing import resize_nearest
from keras_tfm.layers.signatures import Backbone
from keras_tfm.training.model import FunctionalModel

SIDE = 28  # of the maps of a subject and its object, of whatever size the encoded map is
PLACES = ("subject", "object")


class RelationDetector(SetPredictor):
    """A `RelTR` and its heads: images in, Q entities and T triplets out.

    Outputs, of the last block: `logits` (B, Q, num_classes + 1), whose last class is "no object", and `boxes`
    (B, Q, 4), (x, y, width, height) around the centre as parts of the image's sides, of the entities;
    `subject_logits`, `subject_boxes`, `object_logits` and `object_boxes` of the triplets, (B, T, .); and
    `predicate_logits` (B, T, num_predicates + 1), the last one for none. The predicate is read from the
    states of both and from the maps of where they look, through which no gradient passes. `predictions` are
    the same of all L blocks, (B, L, ., .). Train the `learner`, which packs them, with the loss of
    `loss_of_training`. Deviates from the authors' training in that each cell of the encoded map predicts an
    entity too, by the entities' heads: a map learns what it shows long before a decoder learns to look.

    Args:
        map_filters: the channels of the two convolutions of the maps.
        map_widths: the widths of the two dense layers after them.

    >>> backbone = keras_tfm.models.RelTR.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.RelationDetector(backbone, num_classes=5, num_predicates=3)
    >>> model({"images": np.zeros((1, 32, 32, 3))})["predicate_logits"].shape
    TensorShape([1, 16, 4])
    """

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        num_predicates: int,
        map_filters: tuple[int, int] = (64, 32),
        map_widths: tuple[int, int] = (512, 128),
        name: str = "relation_detector",
        **kwargs: Any,
    ) -> None:
        check_classes(num_classes)
        if num_predicates < 1:
            raise ValueError(f"`num_predicates` must be at least 1; it is {num_predicates}.")
        features = backbone.output
        triplets = features["triplet_outputs"]  # (B, L, T, 2, D)
        dim = triplets.shape[-1]
        states = {"": features["decoder_outputs"]}
        states |= {f"{place}_": triplets[..., i, :] for i, place in enumerate(PLACES)}
        predictions = {}
        for prefix, x in states.items():
            predictions[f"{prefix}logits"] = Dense(num_classes + 1, name=f"{prefix}class_head")(x)
            predictions[f"{prefix}boxes"] = _mlp([dim, dim, 4], "sigmoid", f"{prefix}box_head")(x)
        _, num_blocks, num_triplets = triplets.shape[:3]
        maps = ops.stop_gradient(features["triplet_maps"])  # (B, L, T, 2, rows, columns)
        maps = ops.moveaxis(ops.reshape(maps, (-1, *maps.shape[3:])), 1, 3)  # (B L T, rows, columns, 2)
        seen = _map_head(map_filters, map_widths)(resize_nearest(maps, (SIDE, SIDE)))
        seen = ops.reshape(seen, (-1, num_blocks, num_triplets, map_widths[-1]))
        both = ops.reshape(triplets, (-1, num_blocks, num_triplets, 2 * dim))
        seen = ops.cast(seen, both.dtype)
        head = _mlp([dim, num_predicates + 1], None, "predicate_head")
        predictions["predicate_logits"] = head(ops.concatenate([both, seen], axis=-1))
        outputs = {key: x[:, -1] for key, x in predictions.items()}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.num_predicates = num_predicates
        self.map_filters = tuple(map_filters)
        self.map_widths = tuple(map_widths)
        self.predictions = predictions
        self.map_features = seen

    def loss_of_training(self):
        """The loss of what `learner` gives."""
        num_queries, num_cells = self.backbone.config.num_queries, math.prod(self.grid)
        return RelationSetLoss(self.num_classes, self.num_predicates, num_queries, num_cells=num_cells)

    @property
    def grid(self):
        """(Rows, columns) of the encoded map."""
        return tuple(self.backbone.output["triplet_maps"].shape[-2:])

    def learner(self):
        """The model to train, which gives the predictions of all blocks in rows: the logits and boxes of the
        entities, of the subjects and of the objects, the logits of predicates and, alike in each block, the
        predictions and the centres of the cells of the encoded map, (B, L, .).
        """
        parts = [
            ops.concatenate([self.predictions[f"{prefix}{kind}"] for kind in ("logits", "boxes")], axis=-1)
            for prefix in ("", *(f"{place}_" for place in PLACES))
        ]
        parts.append(self.predictions["predicate_logits"])
        num_blocks = parts[0].shape[1]
        parts.append(ops.repeat(self._cells()[:, None], num_blocks, axis=1))
        rows = [ops.reshape(x, (-1, num_blocks, math.prod(x.shape[2:]))) for x in parts]
        rows = [ops.cast(x, "float32") for x in rows]
        return FunctionalModel(self.input, ops.concatenate(rows, axis=-1), name=self.name)

    def _cells(self):
        """What `cells_of` gives, by the heads of entities: (B, N, C + 7)."""
        context = self.backbone.output["encoder_sequence_output"]
        heads = [self.get_layer(f"{kind}_head") for kind in ("class", "box")]
        return cells_of(context, heads, self.grid, self.input["pixel_mask"])

    @staticmethod
    def probabilities(logits):
        """The probabilities of the classes, or of the predicates, less none's: (..., C)."""
        return ops.softmax(ops.cast(logits, "float32"))[..., :-1]


def _mlp(widths, activation, name):
    hidden = [Dense(width, "relu") for width in widths[:-1]]
    return Chain([*hidden, Dense(widths[-1], activation)], name=name)


def _map_head(filters, widths):
    """What pairs of maps (B, 28, 28, 2) say of a predicate: (B, `widths[-1]`)."""
    first, second = filters
    return Chain(
        [
            Convolution(first, 3, 2, padding=3, activation="relu"),
            BatchNormalization(),
            MaxPooling(3, 2, 1),
            Convolution(second, 3, activation="relu"),
            BatchNormalization(),
            keras.layers.Flatten(),
            Dense(widths[0], "relu"),
            Dense(widths[1]),
        ],
        name="map_head",
    )
