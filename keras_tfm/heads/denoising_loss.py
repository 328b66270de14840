"""The loss of a decoder that also gets the known objects, with noise, and corrects them.

Zhang et al. 2023, "DINO: DETR with Improved DeNoising Anchor Boxes", section 3.3.
"""

from typing import Any

from keras import ops

from keras_tfm.heads.set_prediction import VarifocalSetPredictionLoss


class DenoisingSetPredictionLoss(VarifocalSetPredictionLoss):
    """A `VarifocalSetPredictionLoss` plus the loss of denoising queries, whose objects are known.

    Predictions are (B, L Q + (L - 1) N, C + 4), block by block: first the Q = `num_queries` matched queries
    of each of L = `num_blocks` blocks, then the N denoising queries of all blocks but the first. These come
    in parts of M, one query per target: parts that learn the targets alternate with parts that learn "no
    object". Their means are over the number of targets times half of the parts.

    >>> loss = keras_tfm.heads.DenoisingSetPredictionLoss(num_blocks=2, num_queries=1)
    >>> targets = np.array([[[0, 0.5, 0.5, 0.2, 0.2]]])  # an object of the class 0
    >>> right, none = [9.0, 0.5, 0.5, 0.2, 0.2], [-9.0, 0.1, 0.1, 0.1, 0.1]
    >>> round(float(loss(targets, np.array([[right, right, right, none]]))), 2)
    0.0
    """

    def __init__(self, num_blocks: int, num_queries: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_blocks = num_blocks
        self.num_queries = num_queries

    def means(self, targets, predictions):
        targets, predictions = ops.cast(targets, "float32"), ops.cast(predictions, "float32")
        count, width = self.num_blocks * self.num_queries, predictions.shape[-1]
        matched = ops.reshape(predictions[:, :count], (-1, self.num_blocks, self.num_queries, width))
        return super().means(targets, matched) + self._means_of_noisy(targets, predictions[:, count:])

    def _means_of_noisy(self, targets, predictions):
        num_blocks, num_targets = self.num_blocks - 1, ops.shape(targets)[1]
        length = ops.shape(predictions)[1] // num_blocks  # N
        size = ops.shape(targets)[0] * num_blocks  # written out, since N may be 0
        predictions = ops.reshape(predictions, (size, length, predictions.shape[-1]))  # (B L, N, C + 4)
        num_parts = length // ops.maximum(num_targets, 1)
        is_far = (ops.arange(num_parts) % 2 == 1)[None, :, None, None]
        goals = self.of_blocks(targets, num_blocks)[:, None]  # (B L, 1, M, 5)
        nothing = ops.convert_to_tensor([-1.0, 0.0, 0.0, 0.0, 0.0])
        goals = ops.where(is_far, nothing, goals)  # (B L, parts, M, 5)
        goals = ops.reshape(goals, (size, length, 5))
        total, _ = self.class_mean(predictions, goals)
        count = ops.sum(ops.cast(targets[..., 0] >= 0, "float32")) * ops.cast(num_parts // 2, "float32")
        return [(self.weights[0] * total, count), (self.box_total(predictions, goals), count)]
