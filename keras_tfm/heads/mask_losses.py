"""Losses of masks of objects: few cells of a mask belong to the object, most do not."""

from keras import ops


def focal_loss(targets, logits, alpha=0.25, gamma=2.0):
    """The binary focal loss of logits (..., N) for targets 0 or 1, in nats, averaged over N: (...).

    The cross-entropy of a cell weighs (1 - p)^`gamma`, p being the probability of what is right, and `alpha`
    where the target is 1, else 1 - `alpha` (Lin et al. 2017, "Focal Loss for Dense Object Detection"). Unlike
    Keras's it is computed of the logits, so that it is exact where p is nearly 0.
    """
    targets, logits = ops.cast(targets, "float32"), ops.cast(logits, "float32")
    sign = 2 * targets - 1
    right = ops.log_sigmoid(sign * logits)  # log p
    wrong = ops.sigmoid(-sign * logits)  # 1 - p
    balance = alpha * targets + (1 - alpha) * (1 - targets)
    return ops.mean(-balance * wrong**gamma * right, axis=-1)


def dice_loss(targets, logits):
    """1 - (2 |A B| + 1) / (|A| + |B| + 1) of targets 0 or 1 and probabilities, of logits (..., N): (...).

    Milletari et al. 2016, "V-Net", with DETR's 1, which spares empty masks.
    """
    targets, probabilities = ops.cast(targets, "float32"), ops.sigmoid(ops.cast(logits, "float32"))
    common = ops.sum(targets * probabilities, axis=-1)
    return 1 - (2 * common + 1) / (ops.sum(targets, axis=-1) + ops.sum(probabilities, axis=-1) + 1)
