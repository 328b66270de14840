"""Learning a set of masks: predictions are matched to segments, and then each learns its own.

Cheng et al. 2021, "Per-Pixel Classification is Not All You Need for Semantic Segmentation" (MaskFormer),
compares whole masks; Cheng et al. 2022, "Masked-attention Mask Transformer for Universal Image Segmentation"
(Mask2Former), section 3.3, compares them at points.
"""

import abc
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_tfm.heads.loss import SumOfMeans
from keras_tfm.heads.mask_losses import (
    binary_cross_entropy,
    dice_loss,
    matched_masks,
    pairwise_cross_entropy,
    pairwise_dice,
    pairwise_focal,
    segments_of,
    whole_mask_loss,
)
from keras_tfm.heads.matching import match
from keras_tfm.layers.attention.deformable import sample_bilinear
from keras_tfm.layers.compiler.bits import uniform_bits
from keras_tfm.layers.resizing import resize_nearest


class MaskMatchingLoss(SumOfMeans):
    """The loss of L predictions of a set of segments, one for each decoder block, in nats. Abstract.

    Targets are whole numbers: classes (B, H, W), 0 to C - 1, where all pixels of a class are one segment, and
    a pixel of another number is in none; or a set of masks, which may overlap, (B, M, H, W): 1 + the class in
    the pixels of each segment, 0 outside and 255 where no image is. Predictions are (B, L, Q, C + 1 + rows
    columns), of a `MaskClassifier` whose masks have the size `grid`. For each block the queries are matched
    anew, by `match`, at the cost -p(class) `class_cost` plus `mask_costs`. The loss is the sum over the
    blocks of a cross-entropy of classes in which a query without a segment weighs `no_object`, averaged by
    these weights, and of the loss of matched masks over the number of segments. The first of the `weights`
    multiplies the loss of classes; a subclass defines the others. Both denominators are sums over the whole
    batch, on all replicas.

    >>> loss = keras_tfm.heads.MaskSetLoss(grid=(1, 2))
    >>> predictions = np.zeros((1, 1, 2, 3 + 2))  # one block, two queries
    >>> [round(float(count), 2) for _, count in loss.means(np.array([[[0, 0]]]), predictions)]
    [1.1, 1.0]
    """

    class_cost: float

    def __init__(
        self,
        grid: Sequence[int],
        weights: Sequence[float],
        no_object: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.weights = tuple(weights)
        self.no_object = no_object

    def means(self, targets, predictions):
        predictions = ops.cast(predictions, "float32")
        _, num_blocks, num_queries, width = predictions.shape
        num_classes = width - 1 - self.grid[0] * self.grid[1]
        classes, segments = self.segments(targets, num_classes)  # (B, M), (B, M, H, W)
        predictions = ops.reshape(predictions, (-1, num_queries, width))  # (B L, Q, C + 1 + N)
        logits, masks = predictions[..., : num_classes + 1], predictions[..., num_classes + 1 :]
        num_segments = ops.sum(ops.cast(classes >= 0, "float32"))
        classes = ops.repeat(classes, num_blocks, axis=0)  # (B L, M)
        costs = self.mask_costs(segments, masks, num_blocks) - self.class_cost * _of(logits, classes)
        of_query = match(costs, classes >= 0)  # (B L, Q)

        entropies, class_weights = self._of_classes(logits, classes, of_query)
        masks, is_matched = matched_masks(masks, of_query, classes.shape[1])  # (B L, M, N), (B L, M)
        badness = self.mask_badness(segments, masks, num_blocks)  # (B L, M)
        return [
            (self.weights[0] * ops.sum(class_weights * entropies), ops.sum(class_weights) / num_blocks),
            (ops.sum(is_matched * badness), num_segments),
        ]

    def segments(self, targets, num_classes):
        """(The class of each segment (B, M), -1 where there is none, its mask (B, M, H, W), 0 or 1)."""
        if len(targets.shape) == 4:
            return segments_of(targets)
        numbers = ops.arange(num_classes)
        masks = ops.equal(ops.cast(targets, "int32")[:, None], numbers[:, None, None])  # (B, C, H, W)
        classes = ops.where(ops.any(masks, axis=(2, 3)), numbers, -1)
        return classes, ops.cast(masks, "float32")

    @abc.abstractmethod
    def mask_costs(self, segments, masks, num_blocks):
        """What the masks of each pair would cost, (B L, Q, M): `segments` (B, M, H, W) are the segments'
        masks, 0 or 1, and `masks` (B L, Q, N) the queries' logits.
        """

    @abc.abstractmethod
    def mask_badness(self, segments, masks, num_blocks):
        """The loss of each mask of `segments` (B, M, H, W), whose queries' logits are `masks` (B L, M, N): (B
        L, M).
        """

    def _of_classes(self, logits, classes, of_query):
        """(The cross-entropy of each query's class, its weight), (B L, Q) both."""
        has_one = of_query >= 0
        query_classes = ops.take_along_axis(classes, ops.maximum(of_query, 0), axis=1)
        query_classes = ops.where(has_one, query_classes, logits.shape[-1] - 1)
        entropies = ops.sparse_categorical_crossentropy(query_classes, logits, from_logits=True)
        return entropies, ops.where(has_one, 1.0, self.no_object)


def _of(logits, classes):
    """The probability that each query gives the class of each segment, (B, Q, M), by `logits` (B, Q, C + 1)
    and `classes` (B, M).
    """
    shape = (*ops.shape(logits)[:2], classes.shape[1])
    index = ops.broadcast_to(ops.maximum(classes, 0)[:, None], shape)
    return ops.take_along_axis(ops.softmax(logits), index, axis=2)


class MaskSetLoss(MaskMatchingLoss):
    """MaskFormer's `MaskMatchingLoss`: the focal and the dice loss of whole masks.

    Pairs are compared at the size of the `grid`; matched masks are enlarged to the size of the targets.
    `weights` multiply the loss of classes, the focal loss and the dice loss; in the costs the class has the
    weight 1.

    >>> loss = keras_tfm.heads.MaskSetLoss(grid=(1, 2))
    >>> targets = np.array([[[0, 1]]])  # two pixels, each a segment of its own
    >>> logits, masks = np.zeros((2, 3)), np.array([[9.0, -9.0], [-9.0, 9.0]])
    >>> predictions = np.concatenate([logits, masks], axis=-1)[None, None]  # one block, two queries
    >>> round(float(loss(targets, predictions)), 2)  # log 3: the masks are right, the classes a guess
    1.1
    """

    class_cost = 1.0

    def __init__(
        self,
        grid: Sequence[int],
        weights: Sequence[float] = (1.0, 20.0, 1.0),
        no_object: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(grid, weights, no_object, **kwargs)

    def mask_costs(self, segments, masks, num_blocks):
        small = resize_nearest(ops.moveaxis(segments, 1, -1), self.grid)  # (B, rows, columns, M)
        small = ops.reshape(ops.moveaxis(small, -1, 1), (-1, segments.shape[1], masks.shape[-1]))
        small = ops.repeat(small, num_blocks, axis=0)  # (B L, M, N)
        _, of_focal, of_dice = self.weights
        return of_focal * pairwise_focal(small, masks) + of_dice * pairwise_dice(small, masks)

    def mask_badness(self, segments, masks, num_blocks):
        segments = ops.repeat(segments, num_blocks, axis=0)
        return whole_mask_loss(segments, masks, self.grid, *self.weights[1:])


class PointMaskSetLoss(MaskMatchingLoss):
    """Mask2Former's `MaskMatchingLoss`: the cross-entropy and the dice loss of masks at few points.

    Pairs are compared at `num_points` P uniform random points of an image. For the loss of a matched mask,
    P `oversampling` points are drawn; of these it takes the P `importance` ones where it is least certain,
    whose logits are nearest to 0, and further uniform ones, P in all (Kirillov et al. 2020, "PointRend").
    Masks and segments are read between the centres of cells, as by `sample_bilinear`. `weights` multiply the
    loss of classes, the cross-entropy and the dice loss, in the costs too. `seed` is a number or the
    `keras.random.SeedGenerator` that the model saves; the points differ from call to call, and are the same
    for all masks of an image and a block, whereas transformers draws them anew for each.

    >>> loss = keras_tfm.heads.PointMaskSetLoss(grid=(1, 2), num_points=8, seed=0)
    >>> targets = np.array([[[0, 0]]])  # one segment, all of the image
    >>> masks = np.array([[60.0, 60.0], [-60.0, -60.0]])
    >>> predictions = np.concatenate([np.zeros((2, 3)), masks], axis=-1)[None, None]  # one block, two queries
    >>> float(loss.means(targets, predictions)[1][1])  # segments
    1.0
    """

    def __init__(
        self,
        grid: Sequence[int],
        weights: Sequence[float] = (2.0, 5.0, 5.0),
        no_object: float = 0.1,
        num_points: int = 12_544,
        oversampling: float = 3.0,
        importance: float = 0.75,
        seed: int | keras.random.SeedGenerator | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(grid, weights, no_object, **kwargs)
        self.class_cost = weights[0]
        if num_points < 1 or oversampling < 1 or not 0 <= importance <= 1:
            raise ValueError(
                "`num_points` and `oversampling` must be at least 1 and `importance` from 0 to 1; they are "
                f"{num_points}, {oversampling} and {importance}."
            )
        self.num_points = num_points
        self.oversampling = oversampling
        self.importance = importance
        is_generator = isinstance(seed, keras.random.SeedGenerator)
        self.seed = None if is_generator else seed
        self.seed_generator: Any = seed if is_generator else keras.random.SeedGenerator(seed)

    def mask_costs(self, segments, masks, num_blocks):
        points = self.draw(ops.shape(masks)[0], self.num_points)
        truth, logits = self.at(points, segments, masks, num_blocks)
        _, of_entropy, of_dice = self.weights
        return of_entropy * pairwise_cross_entropy(truth, logits) + of_dice * pairwise_dice(truth, logits)

    def mask_badness(self, segments, masks, num_blocks):
        num_candidates, num_uncertain = self.num_candidates, int(self.importance * self.num_points)
        count = num_candidates + self.num_points - num_uncertain
        points = self.draw(ops.shape(masks)[0], count)
        truth, logits = self.at(points, segments, masks, num_blocks)  # (B L, M, count) both
        certainty = ops.abs(ops.stop_gradient(logits[..., :num_candidates]))
        _, indices = ops.top_k(-certainty, num_uncertain, sorted=False)
        further = ops.arange(num_candidates, count, dtype=indices.dtype)
        further = ops.broadcast_to(further, (*ops.shape(logits)[:2], count - num_candidates))
        indices = ops.concatenate([indices, further], axis=-1)  # (B L, M, P)
        truth, logits = (ops.take_along_axis(x, indices, axis=-1) for x in (truth, logits))
        _, of_entropy, of_dice = self.weights
        return of_entropy * binary_cross_entropy(truth, logits) + of_dice * dice_loss(truth, logits)

    @property
    def num_candidates(self):
        """How many points are drawn for a mask, from which it takes the least certain ones."""
        return int(self.oversampling * self.num_points)

    def draw(self, size, count):
        """Uniform random points (`size`, `count`, 2), as parts of the sides of images."""
        bits = uniform_bits((size, count, 2), self.seed_generator.next())
        return ops.cast(bits, "float32") / 2**24

    def at(self, points, segments, masks, num_blocks):
        """The masks of `segments` (B, M, H, W) and the logits `masks` (B L, Q, N) at `points` (B L, P, 2): (B
        L, M, P) and (B L, Q, P).
        """
        count, num_points = segments.shape[1], points.shape[1]
        segments = ops.moveaxis(segments, 1, -1)  # (B, H, W, M)
        truth = sample_bilinear(segments, ops.reshape(points, (-1, num_blocks * num_points, 2)))
        truth = ops.reshape(truth, (-1, num_points, count))  # (B L, P, M)
        maps = ops.reshape(ops.moveaxis(masks, 1, -1), (-1, *self.grid, masks.shape[1]))
        logits = sample_bilinear(maps, points)  # (B L, P, Q)
        return ops.moveaxis(truth, 1, 2), ops.moveaxis(logits, 1, 2)
