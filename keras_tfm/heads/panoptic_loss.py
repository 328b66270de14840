"""The loss of DETR's panoptic head: the loss of the objects plus the loss of their masks.

Carion et al. 2020, "End-to-End Object Detection with Transformers", section 4.3.
"""

from collections.abc import Sequence
from typing import Any

from keras import ops

from keras_tfm.heads.mask_losses import NO_IMAGE, matched_masks, segments_of, whole_mask_loss
from keras_tfm.heads.set_prediction import SetPredictionLoss
from keras_tfm.layers.boxes import centred, corners_of_masks


class PanopticSetLoss(SetPredictionLoss):
    """The loss of a set of objects with masks, of a `PanopticDetector`, in nats.

    Targets are a set of masks (B, M, H, W): 1 + the class in the pixels of each segment, 0 outside and 255
    where no image is; the box of a segment is the smallest one around its pixels. Predictions are (B, Q, L
    (C + 5) + rows columns): of each query the logits of C + 1 classes and the box of each of L decoder
    blocks, and the logits of the last block's mask on the `grid`. The loss is `SetPredictionLoss`, by which
    queries are matched, and the focal and the dice loss of the last block's masks at the targets' size, of
    the `mask_weights`, over the number of segments.

    >>> loss = keras_tfm.heads.PanopticSetLoss(grid=(1, 2), num_classes=1)
    >>> targets = np.array([[[[1, 0]]]])  # one segment, the left one of two pixels
    >>> query = [9.0, -9.0, 0.25, 0.5, 0.5, 1.0, 9.0, -9.0]  # classes, the box, the mask
    >>> round(float(loss(targets, np.array([[query]]))), 2)  # all of it is right
    0.0
    """

    def __init__(
        self,
        grid: Sequence[int],
        num_classes: int,
        weights: Sequence[float] = (1.0, 5.0, 2.0),
        mask_weights: Sequence[float] = (1.0, 1.0),
        **kwargs: Any,
    ) -> None:
        super().__init__(weights, **kwargs)
        self.grid = tuple(grid)
        self.num_classes = num_classes
        self.mask_weights = tuple(mask_weights)

    def means(self, targets, predictions):
        predictions = ops.cast(predictions, "float32")
        width, num_cells = self.num_classes + 5, self.grid[0] * self.grid[1]
        _, num_queries, length = predictions.shape
        objects, masks = predictions[..., :-num_cells], predictions[..., -num_cells:]
        objects = ops.reshape(objects, (-1, num_queries, (length - num_cells) // width, width))
        truth, segments = objects_of(targets)
        means, of_query = self.means_and_pairs(truth, ops.moveaxis(objects, 2, 1))
        masks, is_matched = matched_masks(masks, of_query[:, -1], truth.shape[1])
        badness = whole_mask_loss(segments, masks, self.grid, *self.mask_weights)
        return [*means, (ops.sum(is_matched * badness), ops.sum(ops.cast(truth[..., 0] >= 0, "float32")))]


def objects_of(targets):
    """(The class and the box of each segment (B, M, 5), -1 for none, the segments (B, M, H, W), 0 or 1) of
    `targets` (B, M, H, W), as `PanopticSetLoss` has them.
    """
    classes, segments = segments_of(targets)
    boxes = boxes_around(segments, ops.not_equal(ops.cast(targets[:, :1], "int32"), NO_IMAGE))
    return ops.concatenate([ops.cast(classes, "float32")[..., None], boxes], axis=-1), segments


def boxes_around(segments, is_image):
    """The smallest box (x, y, width, height) around the pixels of each segment (B, M, H, W), as parts of the
    sides of the image: (B, M, 4). `is_image` (B, 1, H, W) marks the image's pixels.
    """
    corners, image = corners_of_masks(segments), corners_of_masks(is_image)  # (B, M, 4), (B, 1, 4)
    origin, sides = image[..., :2], image[..., 2:] - image[..., :2]
    ends = [ops.divide_no_nan(x - origin, sides) for x in (corners[..., :2], corners[..., 2:])]
    return centred(ops.concatenate(ends, axis=-1))
