"""What an inpainting network learns from (Zeng et al. 2020, "STTN", section 3.3)."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_tfm.heads.loss import SumOfMeans
from keras_tfm.layers.signatures import Tensor


class InpaintingLoss(SumOfMeans):
    """The mean absolute error in the holes plus the mean of all other pixels, times these `weights`.

    Targets are (B, ..., C + 1): the true colours, and 1 where there is a hole, else 0. Predictions are
    (B, ..., C). Each mean is over its own pixels in the whole batch, over all replicas, so small holes count
    as much as large ones. The authors add a hinge loss times 0.01.

    >>> targets = np.array([[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]])  # one channel; the first pixel is a hole
    >>> predictions = np.array([[[0.5], [0.1], [0.3]]])
    >>> round(float(keras_tfm.heads.InpaintingLoss()(targets, predictions)), 4)
    0.7
    """

    def __init__(self, weights: Sequence[float] = (1.0, 1.0), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.weights = tuple(weights)

    def means(self, targets, predictions):
        targets = ops.cast(targets, "float32")
        errors = self.errors(ops.cast(predictions, "float32") - targets[..., :-1])
        hole = ops.broadcast_to(targets[..., -1:], ops.shape(errors))
        parts = zip(self.weights, (hole, 1 - hole), strict=True)
        return [(weight * ops.sum(errors * part), ops.sum(part)) for weight, part in parts]

    def errors(self, differences: Tensor) -> Tensor:
        """What each difference counts."""
        return ops.abs(differences)


class SquaredInpaintingLoss(InpaintingLoss):
    """`InpaintingLoss` of squared errors: absolute ones are least at the median, so a network that adds to a
    rule which is mostly right learns to add nothing.

    >>> targets = np.array([[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]])
    >>> predictions = np.array([[[0.5], [0.1], [0.3]]])
    >>> round(float(keras_tfm.heads.SquaredInpaintingLoss()(targets, predictions)), 4)
    0.3
    """

    def errors(self, differences: Tensor) -> Tensor:
        """What each difference counts."""
        return ops.square(differences)
