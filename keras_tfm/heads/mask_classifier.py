"""Mask classification: a class and a mask for each query; the loss, and the class of every pixel.

Cheng et al. 2021, "Per-Pixel Classification is Not All You Need for Semantic Segmentation" (MaskFormer).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_tfm.heads.base import ModelWithHead
from keras_tfm.heads.mask_losses import (
    dice_loss,
    focal_loss,
    pairwise_dice,
    pairwise_focal,
    segments_of,
)
from keras_tfm.heads.matching import match
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.resizing import resize_bilinear, resize_nearest
from keras_tfm.layers.signatures import Tensor
from keras_tfm.registry import register
from keras_tfm.training.model import FunctionalModel

if TYPE_CHECKING:
    from keras_tfm.models.base import Backbone


class MaskClassifier(ModelWithHead):
    """A `backbone` with `mask_features` and `decoder_outputs`, a `MaskFormer`, and a head.

    Outputs: `logits` (B, Q, num_classes + 1), the last one that of no segment, and `masks` (B, Q, rows,
    columns), the logits of each pixel's being in a query's mask. They are those of the last decoder block;
    `predictions` (B, L, Q, num_classes + 1 + rows columns), logits and masks side by side, are of all. To
    train, make a `keras_tfm.Model` of the model's `input` and `predictions`, with `MaskSetLoss`.

    >>> backbone = keras_tfm.models.MaskFormer.from_size("tiny", image_size=32)
    >>> model = keras_tfm.heads.MaskClassifier(backbone, num_classes=3)
    >>> outputs = model({"images": np.zeros((1, 32, 32, 3))})
    >>> outputs["logits"].shape, outputs["masks"].shape
    (TensorShape([1, 16, 4]), TensorShape([1, 16, 8, 8]))
    """

    def __init__(
        self, backbone: "Backbone", num_classes: int, name: str = "mask_classifier", **kwargs: Any
    ) -> None:
        if num_classes < 1:
            raise ValueError(f"`num_classes` must be at least 1; it is {num_classes}.")
        states, features = (backbone.output[x] for x in ("decoder_outputs", "mask_features"))
        dim, mask_dim = states.shape[-1], features.shape[-1]
        classes = keras.layers.Dense(num_classes + 1, name="class_head")
        vectors = Chain([Dense(dim, "relu"), Dense(dim, "relu"), Dense(mask_dim)], name="mask_head")
        pixels = ops.reshape(features, (-1, features.shape[1] * features.shape[2], mask_dim))  # (B, N, E)
        last = states[:, -1]
        masks = ops.einsum("bqe,bne->bqn", vectors(last), pixels)
        outputs = {
            "logits": classes(last),
            "masks": ops.reshape(masks, (-1, states.shape[2], *features.shape[1:3])),
        }
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        masks = ops.einsum("blqe,bne->blqn", vectors(states), pixels)
        self.predictions = ops.concatenate([classes(states), masks], axis=-1)
        self.grid = tuple(features.shape[1:3])

    def loss_of_training(self):
        """The loss of what `learner` gives, for classes of pixels."""
        return MaskSetLoss(self.grid)

    def learner(self):
        """The model to train: one of the same layers that gives the predictions of all decoder blocks."""
        return FunctionalModel(self.input, self.predictions, name=self.name)

    def class_scores(self, outputs):
        """The scores of classes (B, rows, columns, C), float32, of which the largest is the answer."""
        return class_maps(outputs["logits"], outputs["masks"])

    def probabilities(self, scores):
        """The shares that the classes (..., C) have in the sum of their scores."""
        return ops.divide_no_nan(scores, ops.sum(scores, axis=-1, keepdims=True))


def class_maps(logits: Tensor, masks: Tensor) -> Tensor:
    """The scores of classes at each pixel, (B, rows, columns, C), by `logits` (B, Q, C + 1) and `masks` (B,
    Q, rows, columns) of a `MaskClassifier`.

    The sum over the queries of the class's probability times that of the pixel's being in the mask (section
    3.4); it is not a probability itself.

    >>> logits = np.array([[[9.0, 0.0, 0.0]]])  # one query, most likely of the first of two classes
    >>> masks = np.array([[[[9.0, -9.0]]]])  # of two pixels the first is in its mask
    >>> keras_tfm.heads.class_maps(logits, masks).numpy().round(2).tolist()
    [[[[1.0, 0.0], [0.0, 0.0]]]]
    """
    classes = ops.softmax(ops.cast(logits, "float32"))[..., :-1]
    return ops.einsum("bqc,bqyx->byxc", classes, ops.sigmoid(ops.cast(masks, "float32")))


@register
class MaskSetLoss(keras.losses.Loss):
    """The loss of L predictions of a set of segments, one for each decoder block, in nats.

    Targets are whole numbers: classes (B, H, W), 0 to C - 1, where all pixels of a class are one segment; a
    set of masks, which may overlap, (B, M, H, W), see `segments_of`; or, with `num_segments`, (B, H, W, 2), a
    pixel's class and the number of its segment, 0 to `num_segments` - 1. A pixel of another number is in
    none. Predictions are (B, L, Q, C + 1 + rows columns), of a `MaskClassifier` whose masks have the size
    `grid`. For each block the queries are matched anew, by `match`, at the cost of -p(class), the
    focal and the dice loss of the masks at the size of the `grid`. The loss is the sum over the blocks of a
    cross-entropy in which a query without a segment weighs `no_object`, averaged by these weights, and of the
    focal and the dice loss of matched masks, at the targets' size, over the number of segments. `weights` are
    those of the three, in the costs too but for the class, which counts once there. Both denominators are
    those of the whole batch, over all replicas.

    >>> loss = keras_tfm.heads.MaskSetLoss(grid=(1, 2))
    >>> targets = np.array([[[0, 1]]])  # two pixels, each a segment of its own
    >>> logits, masks = np.zeros((2, 3)), np.array([[9.0, -9.0], [-9.0, 9.0]])
    >>> predictions = np.concatenate([logits, masks], axis=-1)[None, None]  # one block, two queries
    >>> round(float(loss(targets, predictions)), 2)  # log 3: the masks are right, the classes a guess
    1.1
    """

    def __init__(
        self,
        grid: Sequence[int],
        num_segments: int | None = None,
        weights: Sequence[float] = (1.0, 20.0, 1.0),
        no_object: float = 0.1,
        name: str = "loss",
        reduction: str | None = "sum",
    ) -> None:
        super().__init__(name=name, reduction=reduction)
        self.grid = tuple(grid)
        self.num_segments = num_segments
        self.weights = tuple(weights)
        self.no_object = no_object

    def call(self, targets, predictions):
        """The loss, a scalar."""
        return sum(ops.divide_no_nan(total, count) for total, count in self.means(targets, predictions))

    def means(self, targets, predictions):
        """[(total, count)] of the means whose sum the loss is; `keras_tfm.Model` sums both over replicas."""
        predictions = ops.cast(predictions, "float32")
        _, num_blocks, num_queries, width = predictions.shape
        num_classes = width - 1 - self.grid[0] * self.grid[1]
        classes, segments = self.segments(targets, num_classes)  # (B, M), (B, M, H, W)
        predictions = ops.reshape(predictions, (-1, num_queries, width))  # (B L, Q, C + 1 + N)
        logits, masks = predictions[..., : num_classes + 1], predictions[..., num_classes + 1 :]
        num_segments = ops.sum(ops.cast(classes >= 0, "float32"))
        classes = ops.repeat(classes, num_blocks, axis=0)  # (B L, M)
        small = resize_nearest(ops.moveaxis(segments, 1, -1), self.grid)  # (B, rows, columns, M)
        small = ops.reshape(ops.moveaxis(small, -1, 1), (-1, segments.shape[1], masks.shape[-1]))
        costs = self.pair_costs(classes, ops.repeat(small, num_blocks, axis=0), logits, masks)
        of_query = match(costs, classes >= 0)  # (B L, Q)

        entropies, class_weights = self._of_classes(logits, classes, of_query)
        is_pair = ops.equal(of_query[:, None], ops.arange(classes.shape[1])[:, None])  # (B L, M, Q)
        query = ops.argmax(is_pair, axis=2)  # (B L, M): 0 where a segment has none
        masks = ops.take_along_axis(masks, query[..., None], axis=1)  # (B L, M, N)
        masks = resize_bilinear(ops.reshape(masks, (-1, *self.grid, 1)), segments.shape[2:])
        masks = ops.reshape(masks, (-1, segments.shape[1], segments.shape[2] * segments.shape[3]))
        truth = ops.repeat(ops.reshape(segments, (-1, *masks.shape[1:])), num_blocks, axis=0)
        of_class, of_focal, of_dice = self.weights
        badness = of_focal * focal_loss(truth, masks) + of_dice * dice_loss(truth, masks)  # (B L, M)
        is_matched = ops.cast(ops.any(is_pair, axis=2), "float32")
        return [
            (of_class * ops.sum(class_weights * entropies), ops.sum(class_weights) / num_blocks),
            (ops.sum(is_matched * badness), num_segments),
        ]

    def segments(self, targets, num_classes):
        """(The class of each segment (B, M), -1 where there is none, its mask (B, M, H, W), 0 or 1)."""
        if len(targets.shape) == 4 and self.num_segments is None:
            return segments_of(targets)
        targets = ops.cast(targets, "int32")
        count = num_classes if len(targets.shape) == 3 else self.num_segments
        numbers = targets if len(targets.shape) == 3 else targets[..., 1]
        masks = ops.equal(numbers[:, None], ops.arange(count)[:, None, None])  # (B, M, H, W)
        if len(targets.shape) == 3:
            classes = ops.where(ops.any(masks, axis=(2, 3)), ops.arange(count), -1)
        else:
            classes = ops.max(ops.where(masks, targets[:, None, ..., 0], -1), axis=(2, 3))
            classes = ops.where(classes < num_classes, classes, -1)
        return classes, ops.cast(masks, "float32")

    def pair_costs(self, classes, segments, logits, masks):
        """What each pair of a query and a segment would cost, (B, Q, M), by the `classes` (B, M) and masks
        (B, M, N) of segments and the `logits` (B, Q, C + 1) and `masks` (B, Q, N) of queries.
        """
        shape = (*ops.shape(logits)[:2], classes.shape[1])
        index = ops.broadcast_to(ops.maximum(classes, 0)[:, None], shape)
        _, of_focal, of_dice = self.weights
        costs = of_focal * pairwise_focal(segments, masks) + of_dice * pairwise_dice(segments, masks)
        return costs - ops.take_along_axis(ops.softmax(logits), index, axis=2)

    def _of_classes(self, logits, classes, of_query):
        """(The cross-entropy of each query's class, its weight), (B L, Q) both."""
        has_one = of_query >= 0
        own = ops.take_along_axis(classes, ops.maximum(of_query, 0), axis=1)
        own = ops.where(has_one, own, logits.shape[-1] - 1)
        entropies = ops.sparse_categorical_crossentropy(own, logits, from_logits=True)
        return entropies, ops.where(has_one, 1.0, self.no_object)

    def get_config(self):
        names = ("grid", "num_segments", "weights", "no_object")
        return super().get_config() | {name: getattr(self, name) for name in names}
