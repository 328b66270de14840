"""Losses for the masks of objects, in which few cells belong to the object and most do not."""

from keras import ops

from keras_tfm.layers.resizing import resize_bilinear
from keras_tfm.layers.signatures import Tensor

NO_IMAGE = 255  # the target of pixels around an image


def focal_loss(targets: Tensor, logits: Tensor, alpha: float = 0.25, gamma: float = 2.0) -> Tensor:
    """The binary focal loss of logits (..., N) for targets 0 or 1, in nats, averaged over N: (...).

    With p the probability of the right answer, the cross-entropy of a cell is weighed by (1 - p)^`gamma`,
    and by `alpha` where the target is 1, 1 - `alpha` where it is 0 (Lin et al. 2017, "Focal Loss for Dense
    Object Detection"). Unlike Keras's it is computed from logits, and so exact for p near 0.

    >>> round(float(keras_tfm.heads.focal_loss(np.ones(4), np.zeros(4))), 4)  # 0.25 * 0.5² * log 2
    0.0433
    """
    targets, logits = ops.cast(targets, "float32"), ops.cast(logits, "float32")
    sign = 2 * targets - 1
    right = ops.log_sigmoid(sign * logits)  # log p
    wrong = ops.sigmoid(-sign * logits)  # 1 - p
    balance = alpha * targets + (1 - alpha) * (1 - targets)
    return ops.mean(-balance * wrong**gamma * right, axis=-1)


def dice_loss(targets: Tensor, logits: Tensor) -> Tensor:
    """1 - (2 |A B| + 1) / (|A| + |B| + 1), for targets A of 0 or 1 and the probabilities B of logits, (...,
    N): (...).

    Milletari et al. 2016, "V-Net". The 1, as in DETR's code, avoids 0 / 0 for empty masks.

    >>> round(float(keras_tfm.heads.dice_loss(np.ones(4), np.full(4, 9.0))), 3)
    0.0
    """
    targets, probabilities = ops.cast(targets, "float32"), ops.sigmoid(ops.cast(logits, "float32"))
    common = ops.sum(targets * probabilities, axis=-1)
    return 1 - (2 * common + 1) / (ops.sum(targets, axis=-1) + ops.sum(probabilities, axis=-1) + 1)


def pairwise_focal(targets, logits, alpha=0.25, gamma=2.0):
    """`focal_loss` of all pairs of targets (B, M, N) and logits (B, Q, N): (B, Q, M)."""
    targets, logits = ops.cast(targets, "float32"), ops.cast(logits, "float32")
    inside = -alpha * ops.sigmoid(-logits) ** gamma * ops.log_sigmoid(logits)
    outside = -(1 - alpha) * ops.sigmoid(logits) ** gamma * ops.log_sigmoid(-logits)
    total = ops.einsum("bqn,bmn->bqm", inside - outside, targets) + ops.sum(outside, axis=-1, keepdims=True)
    return total / logits.shape[-1]


def pairwise_dice(targets, logits):
    """`dice_loss` of all pairs of targets (B, M, N) and logits (B, Q, N): (B, Q, M)."""
    targets, probabilities = ops.cast(targets, "float32"), ops.sigmoid(ops.cast(logits, "float32"))
    common = ops.einsum("bqn,bmn->bqm", probabilities, targets)
    sums = ops.sum(probabilities, axis=-1, keepdims=True) + ops.sum(targets, axis=-1)[:, None]
    return 1 - (2 * common + 1) / (sums + 1)


def binary_cross_entropy(targets, logits):
    """The cross-entropy of logits (..., N) for targets from 0 to 1, in nats, averaged over N: (...)."""
    targets, logits = ops.cast(targets, "float32"), ops.cast(logits, "float32")
    return ops.mean(ops.softplus(logits) - targets * logits, axis=-1)


def pairwise_cross_entropy(targets, logits):
    """`binary_cross_entropy` of all pairs of targets (B, M, N) and logits (B, Q, N): (B, Q, M)."""
    targets, logits = ops.cast(targets, "float32"), ops.cast(logits, "float32")
    right = ops.einsum("bqn,bmn->bqm", logits, targets) / logits.shape[-1]
    return ops.mean(ops.softplus(logits), axis=-1, keepdims=True) - right


def segments_of(targets):
    """(The class of each segment (B, M), -1 where there is none, its mask (B, M, H, W), 0 or 1) of whole
    numbers (B, M, H, W): 1 + the class in a segment's pixels, 0 outside, `NO_IMAGE` where no image is.
    """
    targets = ops.cast(targets, "int32")
    is_inside = ops.logical_and(targets > 0, targets < NO_IMAGE)
    classes = ops.max(ops.where(is_inside, targets, 0), axis=(2, 3)) - 1
    return classes, ops.cast(is_inside, "float32")


def matched_masks(masks, of_query, num_segments):
    """(The masks of the segments' queries (B, M, N), 1 where a segment has one and 0 elsewhere (B, M)).

    `masks` (B, Q, N) are the masks of all queries, and `of_query` (B, Q) is the index of each query's
    segment, -1 for none.
    """
    is_pair = ops.equal(of_query[:, None], ops.arange(num_segments)[:, None])  # (B, M, Q)
    query = ops.argmax(is_pair, axis=2)  # (B, M): 0 where a segment has none
    is_matched = ops.cast(ops.any(is_pair, axis=2), "float32")
    return ops.take_along_axis(masks, query[..., None], axis=1), is_matched


def whole_mask_loss(segments, masks, grid, of_focal, of_dice):
    """The focal and the dice loss, so weighed, of `segments` (B, M, H, W), 0 or 1, by `masks` (B, M, N),
    logits on the `grid`, which are resized to (H, W): (B, M).
    """
    count, height, width = segments.shape[1:]
    masks = resize_bilinear(ops.reshape(masks, (-1, *grid, 1)), (height, width))
    masks, truth = (ops.reshape(x, (-1, count, height * width)) for x in (masks, segments))
    return of_focal * focal_loss(truth, masks) + of_dice * dice_loss(truth, masks)
