"""Lanes as curves in the image: the head of a detector whose queries are lanes, and its loss.

Seen by a camera, a lane of a flat road that is a curve of the third degree from above is

    x = k / (y - f)^2 + m / (y - f) + n + b y - b'

at the height y, both from 0 to 1 of the image's sides: k, f, m and n are the road's and the camera's, the
same for all lanes; b, b' and the heights of its two ends are a lane's own. f lies above the lanes: at y = f
there is no x. Liu et al. 2021, "End-to-end Lane Shape Prediction with Transformers", section 3.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_tfm.heads.base import SetPredictor
from keras_tfm.heads.loss import SumOfMeans
from keras_tfm.heads.matching import match
from keras_tfm.heads.object_detector import check_classes
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.signatures import Backbone, Tensor
from keras_tfm.registry import register

NUMBERS = 8  # of a curve: lower, upper, k, f, m, n, b, b'
# Where training begins. With f = 0 and k = m = 0 nothing would move f, and curves could not bend near it.
OF_LANES, OF_ROADS = (0.4, 1.0, 0.0, 0.0), (0.0, 0.2, 0.0, 0.5)


def lane_positions(curves: Tensor, heights: Tensor) -> Tensor:
    """x of `curves` (..., 8), numbers lower, upper, k, f, m, n, b, b', at `heights` (..., P): (..., P).

    Heights equal to f give values of some 1e12 and no division by 0.

    >>> curve = np.array([0.2, 1.0, 0.0, 0.1, 0.0, 0.25, 0.5, 0.0], "float32")
    >>> keras_tfm.heads.lane_positions(curve, np.array([0.5, 1.0], "float32")).numpy().tolist()
    [0.5, 0.75]
    """
    k, f, m, n, b, shift = (curves[..., i : i + 1] for i in range(2, NUMBERS))
    below = heights - f
    below = ops.where(ops.abs(below) < 1e-6, 1e-6, below)
    return k / ops.square(below) + m / below + n + b * heights - shift


def lane_points(curves: Tensor, heights: Tensor) -> Tensor:
    """x of `curves` (B, Q, 8) at `heights` (B, P) between their ends and in the image, elsewhere -1: (B, Q,
    P).

    >>> curve = np.array([[[0.4, 0.8, 0.0, 0.1, 0.0, 0.25, 0.5, 0.0]]], "float32")
    >>> keras_tfm.heads.lane_points(curve, np.array([[0.25, 0.5, 1.0]])).numpy().tolist()
    [[[-1.0, 0.5, -1.0]]]
    """
    heights = ops.cast(heights, curves.dtype)[:, None]  # (B, 1, P)
    x = lane_positions(curves, heights)
    is_there = ops.logical_and(heights >= curves[..., :1], heights <= curves[..., 1:2])
    is_there = ops.logical_and(is_there, ops.logical_and(x >= 0, x <= 1))
    return ops.where(is_there, x, -1.0)


WEIGHTS_OF_TRAINING = 3.0, 40.0, 2.0, 2.0


class LaneDetector(SetPredictor):
    """A `backbone` with `decoder_outputs` (B, L, Q, D), an `LSTR`, and heads: images of a road in, Q lanes
    out.

    Outputs: `logits` (B, Q, num_classes + 1) of none, class 0, and of each kind of lane, and `curves` (B, Q,
    8), the numbers of `lane_positions`. Both come from the last decoder block; `predictions` (B, L, Q,
    num_classes + 9) have both of all L. Train the `learner` with the loss of `loss_of_training`.

    >>> backbone = keras_tfm.models.LSTR.from_size("base", image_size=(90, 160))
    >>> keras_tfm.heads.LaneDetector(backbone)({"images": np.zeros((1, 90, 160, 3))})["curves"].shape
    TensorShape([1, 7, 8])
    """

    def __init__(
        self, backbone: Backbone, num_classes: int = 1, name: str = "lane_detector", **kwargs: Any
    ) -> None:
        check_classes(num_classes)
        states = backbone.output["decoder_outputs"]
        logits = keras.layers.Dense(num_classes + 1, name="class_head")(states)
        own = _mlp(states.shape[-1], "lane_head", OF_LANES)(states)  # (B, L, Q, 4): lower, upper, b, b'
        shared = _mlp(states.shape[-1], "road_head", OF_ROADS)(states)
        shared = ops.mean(shared, axis=-2, keepdims=True) + ops.zeros_like(own)  # (B, L, Q, 4)
        curves = ops.concatenate([own[..., :2], shared, own[..., 2:]], axis=-1)
        outputs = {"logits": logits[:, -1], "curves": curves[:, -1]}
        super().__init__(backbone, backbone.input, outputs, name=name, **kwargs)
        self.num_classes = num_classes
        self.predictions = ops.concatenate([logits, curves], axis=-1)

    def loss_of_training(self):
        """The loss of what `learner` gives. It weighs curves eight times as much as the paper: with the
        paper's weights most of the loss is soon about the ends of lanes, on which little depends.
        """
        return LaneLoss(weights=WEIGHTS_OF_TRAINING)

    @staticmethod
    def probabilities(logits):
        """The probabilities of the kinds of lanes, (..., num_classes)."""
        return ops.softmax(ops.cast(logits, "float32"))[..., 1:]


def _mlp(dim, name, start):
    """Dense layers to four numbers, which are about `start` at first."""
    # With usual weights the pole at f lies among the lanes: the first losses are a hundred thousand.
    kernel, bias = keras.initializers.RandomNormal(stddev=0.01), StartingAt(start)
    last = Dense(4, kernel_initializer=kernel, bias_initializer=bias)
    return Chain([Dense(dim, "relu"), Dense(dim, "relu"), last], name=name)


@register
class StartingAt(keras.initializers.Initializer):
    """These `numbers`, whatever the seed."""

    def __init__(self, numbers):
        self.numbers = tuple(numbers)

    def __call__(self, shape, dtype=None):
        """The numbers (N,)."""
        return ops.reshape(ops.convert_to_tensor(self.numbers, dtype), shape)

    def get_config(self):
        return {"numbers": self.numbers}


class LaneLoss(SumOfMeans):
    """The loss of L predictions of a set of lanes, in nats: curves are matched to lanes, and then learn them.

    Targets are (B, M, 3 + 2 P), a lane each: its kind from 1, or 0 for padding; the heights of its lower and
    its upper end, the lower the smaller number; P heights; and its x at each, negative where the lane is not.
    Predictions come from a `LaneDetector`. `weights` multiply, in costs of pairs and in the loss, the
    probability of the lane's kind, in the loss the cross-entropy of all queries; the differences of curves,
    of lower and of upper ends. The curve of a lane with N points is weighed by 1 / sqrt(N), the shortest
    lane's by 1, as in the authors' code. Where a lane has no point its curve counts nothing.

    >>> lane = [1.0, 0.5, 1.0, 0.5, 1.0, 0.5, 0.75]  # ends, two heights, two x
    >>> curve = [-20.0, 20.0, 0.5, 1.0, 0.0, 0.1, 0.0, 0.25, 0.5, 0.0]
    >>> float(keras_tfm.heads.LaneLoss()(np.array([[lane]]), np.array([[[curve]]])))
    0.0
    """

    def __init__(self, weights: Sequence[float] = (3.0, 5.0, 2.0, 2.0), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weights = tuple(weights)

    def means(self, targets, predictions):
        targets, predictions = ops.cast(targets, "float32"), ops.cast(predictions, "float32")
        _, num_blocks, num_queries, width = predictions.shape
        num_lanes = ops.sum(ops.cast(targets[..., 0] > 0, "float32"))
        targets = ops.repeat(targets, num_blocks, axis=0)  # (B L, M, 3 + 2 P)
        predictions = ops.reshape(predictions, (-1, num_queries, width))
        logits, curves = predictions[..., :-NUMBERS], predictions[..., -NUMBERS:]
        kinds = ops.cast(targets[..., 0], "int32")  # (B L, M)
        of_class, *others = self.weights
        distances = ops.sum(np.array(others, "float32") * pair_distances(targets, curves), axis=-1)
        is_kind = ops.one_hot(kinds, logits.shape[-1])  # (B L, M, C + 1)
        probabilities = ops.einsum("bqc,bmc->bqm", ops.softmax(logits), is_kind)
        of_query = match(distances - of_class * probabilities, kinds > 0)  # (B L, Q)
        is_pair = of_query[..., None] == ops.arange(ops.shape(targets)[1], dtype="int32")  # (B L, Q, M)
        labels = ops.sum(ops.where(is_pair, kinds[:, None], 0), axis=-1)  # (B L, Q)
        entropies = ops.sparse_categorical_crossentropy(labels, logits, True)
        num_cells = ops.cast(ops.size(entropies), "float32") / num_blocks
        badness = ops.sum(ops.where(is_pair, distances, 0.0))
        return [(of_class * ops.sum(entropies), num_cells), (badness, num_lanes)]


def pair_distances(targets, curves):
    """What each of `curves` (B, Q, 8) and lanes of `targets` (B, M, 3 + 2 P) differ in: the mean |x - x'| of
    the points, weighed, the lower ends and the upper ends, (B, Q, M, 3).
    """
    lower, upper = targets[..., 1], targets[..., 2]
    heights, wanted = ops.split(targets[..., 3:], 2, axis=-1)  # (B, M, P)
    is_point = ops.logical_and(wanted >= 0, targets[..., :1] > 0)
    is_point = ops.cast(is_point, "float32")
    num_points = ops.sum(is_point, axis=-1)  # (B, M)
    found = lane_positions(curves[:, :, None], heights[:, None])  # (B, Q, M, P)
    apart = ops.sum(is_point[:, None] * ops.abs(found - wanted[:, None]), axis=-1)
    mean = apart / ops.maximum(num_points, 1.0)[:, None]
    rarity = ops.where(num_points > 0, ops.rsqrt(ops.maximum(num_points, 1.0)), 0.0)
    rarity = ops.divide_no_nan(rarity, ops.max(rarity, axis=-1, keepdims=True))  # (B, M), at most 1
    ends = [ops.abs(curves[:, :, None, i] - end[:, None]) for i, end in enumerate((lower, upper))]
    return ops.stack([rarity[:, None] * mean, *ends], axis=-1)
