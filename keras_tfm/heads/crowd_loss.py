"""Learning objects of which others hide parts: by the boxes of what is visible first, by whole ones at last.

Lin et al. 2021, "DETR for Crowd Pedestrian Detection", section 4.4 ("V-match") and the treatment of ignored
regions in the authors' code.
"""

from typing import Any

from keras import ops

from keras_tfm.heads.set_prediction import IGNORED, FocalSetPredictionLoss
from keras_tfm.layers.boxes import common_area, corners_and_area

LEAST_SHARE = 0.5  # of a box that lies in an ignored region


class CrowdSetPredictionLoss(FocalSetPredictionLoss):
    """A `FocalSetPredictionLoss` for objects that hide each other.

    Targets (B, M, 5) hold the whole box of each object, targets (B, M, 9) the box of its visible part behind
    it: then all blocks but the last `num_whole` match and learn the visible box. A target of the class -2 is
    a region to ignore, with objects that nobody has marked: a query without an object does not learn "no
    object" if at least half of its box lies in such a region.

    >>> loss = keras_tfm.heads.CrowdSetPredictionLoss(num_whole=1)
    >>> whole, visible = [0.5, 0.5, 0.4, 0.4], [0.5, 0.4, 0.4, 0.2]
    >>> targets = np.array([[[0, *whole, *visible]]])
    >>> predictions = np.array([[[[9.0, *visible]], [[9.0, *whole]]]])  # two blocks, one query
    >>> round(float(loss(targets, predictions)), 3)
    0.0
    """

    def __init__(self, num_whole: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.num_whole = num_whole

    def of_blocks(self, targets, num_blocks):
        targets = super().of_blocks(targets, num_blocks)  # (B L, M, 5 or 9)
        if targets.shape[-1] == 5:
            return targets
        is_early = ops.arange(ops.shape(targets)[0]) % num_blocks < num_blocks - self.num_whole  # (B L,)
        shows = ops.logical_and(is_early[:, None], targets[..., 0] >= 0)[..., None]  # (B L, M, 1)
        boxes = ops.where(shows, targets[..., 5:], targets[..., 1:5])
        return ops.concatenate([targets[..., :1], boxes], axis=-1)

    def are_ignored(self, targets, predictions):
        (corners, area), (regions, _) = map(corners_and_area, (predictions[..., -4:], targets[..., 1:]))
        shares = ops.divide_no_nan(common_area(corners[:, :, None], regions[:, None]), area[..., None])
        is_region = targets[:, None, :, 0] == IGNORED
        return ops.any(ops.logical_and(is_region, shares >= LEAST_SHARE), axis=-1)  # (B L, Q)
