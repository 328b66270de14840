"""Boxes as numbers (..., 4), and measures of how well pairs of boxes fit, in float32.

A box is its centre, width and height, (x, y, width, height), as shares of the image's sides.
`keras.utils.bounding_boxes` converts the formats of data sets; its IoU adds a constant to the union, which is
large compared with the union of small boxes.
"""

import math

import keras
from keras import ops

from keras_tfm.layers.base import Layer
from keras_tfm.layers.signatures import Tensor

MOST_GROWTH = math.log(100_000 / 16)  # of the logarithm of a side, in one correction


def corners_of(boxes: Tensor) -> Tensor:
    """(x, y, width, height) around centres -> (left, top, right, bottom): (..., 4) both.

    >>> keras_tfm.heads.corners_of(np.array([0.5, 0.5, 0.2, 0.4])).numpy().round(2).tolist()
    [0.4, 0.3, 0.6, 0.7]
    """
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return ops.concatenate([centre - half, centre + half], axis=-1)


def corners_of_masks(masks: Tensor) -> Tensor:
    """(left, top, right, bottom) around the pixels of masks (..., H, W), in pixels, right and bottom outside:
    (..., 4). Around a mask without pixels it is the whole.
    """
    masks = ops.cast(masks, "bool")
    sides = []
    for axis in (-2, -1):  # of rows, for columns; and the other way round
        occurs = ops.cast(ops.any(masks, axis=axis), "int32")
        last = ops.shape(occurs)[-1] - ops.argmax(ops.flip(occurs, -1), -1)
        sides.append((ops.argmax(occurs, -1), last))
    (left, right), (top, bottom) = sides
    return ops.cast(ops.stack([left, top, right, bottom], axis=-1), "float32")


def generalized_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """The GIoU of `boxes` and `others`, (..., 4) both, which broadcast: (...), from -1 to 1.

    It is the intersection over the union U, less (C - U) / C, where C is the area of the smallest box around
    both (Rezatofighi et al. 2019, "Generalized Intersection over Union"). A quotient by an area of 0 is 0.
    All pairs of (B, Q, 4) and (B, M, 4) are `generalized_iou(a[:, :, None], b[:, None])`.

    >>> left, right = np.array([0.25, 0.5, 0.5, 1.0]), np.array([0.75, 0.5, 0.5, 1.0])
    >>> [float(keras_tfm.heads.generalized_iou(left, other)) for other in (left, right)]
    [1.0, 0.0]
    """
    (first, area), (second, other_area) = (corners_and_area(x) for x in (boxes, others))
    common = common_area(first, second)
    hull = _area(ops.minimum(first[..., :2], second[..., :2]), ops.maximum(first[..., 2:], second[..., 2:]))
    union = area + other_area - common
    return ops.divide_no_nan(common, union) - ops.divide_no_nan(hull - union, hull)


def box_iou(boxes: Tensor, others: Tensor) -> Tensor:
    """The intersection of `boxes` and `others`, (..., 4) both, which broadcast, over their union: (...), from
    0 to 1. A quotient by an area of 0 is 0.

    >>> box, half = np.array([0.5, 0.5, 0.5, 0.5]), np.array([0.5, 0.5, 0.25, 0.5])
    >>> float(keras_tfm.heads.box_iou(box, half))
    0.5
    """
    (first, area), (second, other_area) = (corners_and_area(x) for x in (boxes, others))
    common = common_area(first, second)
    return ops.divide_no_nan(common, area + other_area - common)


def box_distance(boxes: Tensor, others: Tensor) -> Tensor:
    """The sum of the absolute differences of `boxes` and `others`, (..., 4) both, which broadcast: (...).

    >>> box, other = np.array([0.5, 0.5, 0.25, 0.5]), np.array([0.25, 0.5, 0.5, 0.5])
    >>> float(keras_tfm.heads.box_distance(box, other))
    0.5
    """
    return ops.sum(ops.abs(ops.cast(boxes, "float32") - ops.cast(others, "float32")), axis=-1)


def nearest_boxes(boxes, count):
    """Which boxes are the `count` nearest ones, by their GIoU, to each of `boxes` (B, Q, 4), itself among
    them, (B, Q, Q), and more where some are equally near.
    """
    closeness = generalized_iou(*map(ops.stop_gradient, (boxes[:, :, None], boxes[:, None])))  # (B, Q, Q)
    return closeness >= ops.top_k(closeness, count)[0][..., -1:]


def suppressed(overlaps, stays):
    """Which of K things, the best first, stay, (B, K): a thing of `stays` (B, K) is dropped if a better thing
    that stays covers it, as `overlaps` (B, K, K) say. All three are boolean.
    """
    columns = ops.arange(ops.shape(stays)[1])

    def decide(row, stays):
        """`stays` (B, K), where the thing `row` stays if no better one that stays lies over it."""
        better = ops.logical_and(stays, columns < row)
        is_covered = ops.any(ops.logical_and(better, overlaps[:, row]), axis=1, keepdims=True)
        return ops.logical_and(stays, ops.logical_or(columns != row, ops.logical_not(is_covered)))

    return ops.fori_loop(0, ops.shape(stays)[1], decide, stays)


class NonMaximumSuppression(Layer):
    """Which of `boxes` (B, K, 4), the best first, stay, (B, K). A box of the `mask` (B, K) is dropped if its
    intersection over union with a better box of the same class that stays exceeds `most_overlap`. `classes`
    (B, K) are integers; without them all boxes are of one class.
    """

    def __init__(self, most_overlap=0.7, **kwargs):
        super().__init__(autocast=False, **kwargs)  # lower precision moves boxes
        self.most_overlap = most_overlap

    def call(self, boxes, mask, classes=None):
        """(B, K), boolean."""
        overlaps = box_iou(boxes[:, :, None], boxes[:, None]) > self.most_overlap  # (B, K, K)
        if classes is not None:
            overlaps = ops.logical_and(overlaps, ops.equal(classes[:, :, None], classes[:, None]))
        return suppressed(overlaps, mask)

    def compute_output_spec(self, boxes, mask, classes=None):
        return keras.KerasTensor(boxes.shape[:2], "bool")


def centred(corners):
    """(left, top, right, bottom) -> (x, y, width, height) around centres: (..., 4) both."""
    start, end = corners[..., :2], corners[..., 2:]
    return ops.concatenate([(start + end) / 2, end - start], axis=-1)


def moved(boxes, correction, weights):
    """`boxes` (..., 4), moved by the first two numbers of a `correction` (..., 4), divided by the four
    `weights`, times their sides, and stretched by the exponentials of the others, at most 6,250 times
    (Girshick et al. 2014, appendix C).
    """
    correction = ops.cast(correction, "float32") / ops.convert_to_tensor(weights)
    sides = boxes[..., 2:]
    centres = boxes[..., :2] + correction[..., :2] * sides
    return ops.concatenate([centres, sides * ops.exp(ops.minimum(correction[..., 2:], MOST_GROWTH))], axis=-1)


def correction_of(boxes, others, weights):
    """The correction that `moved` turns `boxes` (..., 4) into `others` (..., 4), which broadcast, by: (...,
    4). Sides count as 1e-4 of the image at least, so that it is finite.
    """
    boxes, others = (ops.cast(x, "float32") for x in (boxes, others))
    sides, other_sides = (ops.maximum(x[..., 2:], 1e-4) for x in (boxes, others))
    parts = (others[..., :2] - boxes[..., :2]) / sides, ops.log(other_sides / sides)
    return ops.concatenate(parts, axis=-1) * ops.convert_to_tensor(weights)


def corners_and_area(boxes):
    """(The corners of boxes (..., 4), their areas (...)), in float32."""
    corners = corners_of(ops.cast(boxes, "float32"))
    return corners, _area(corners[..., :2], corners[..., 2:])


def common_area(first, second):
    """The area that boxes share, given their corners, (..., 4) both, which broadcast: (...)."""
    return _area(ops.maximum(first[..., :2], second[..., :2]), ops.minimum(first[..., 2:], second[..., 2:]))


def _area(top_left, bottom_right):
    sides = ops.maximum(bottom_right - top_left, 0.0)
    return sides[..., 0] * sides[..., 1]
