"""The logit-Laplace likelihood of pixels (Ramesh et al. 2021, "Zero-Shot Text-to-Image Generation", appendix
A.3).
"""

import math

from keras import ops

from keras_tfm.heads.loss import Loss
from keras_tfm.layers.masks import in_float32
from keras_tfm.layers.signatures import Tensor


class LogitLaplace(Loss):
    """`logit_laplace_loss` of images (B, H, W, C), averaged over pixels and channels.

    The predictions (B, H, W, 2 C) are the output `distributions` of a `DiscreteVAE`.

    >>> loss = keras_tfm.heads.LogitLaplace()
    >>> round(float(loss(np.full((1, 1, 1, 1), 0.5), np.zeros((1, 1, 1, 2)))), 4)  # log (2 / 4)
    -0.6931
    """

    def call(self, images, distributions):
        return logit_laplace_loss(images, distributions)


def logit_laplace_loss(images: Tensor, distributions: Tensor) -> Tensor:
    """-log f(y) of pixels x in [0, 1], for y = 0.8 x + 0.1 and the logit-Laplace density f: (B, H, W, C).

    `distributions` (B, H, W, 2 C) are the means of logit(y), then the logarithms of the scales b: -log f(y) =
    |logit(y) - mean| / b + log(2 b y (1 - y)).

    >>> keras_tfm.heads.logit_laplace_loss(np.zeros((1, 2, 2, 3)), np.zeros((1, 2, 2, 6))).shape
    TensorShape([1, 2, 2, 3])
    """
    y = 0.8 * in_float32(images) + 0.1
    means, scales = ops.split(ops.cast(distributions, y.dtype), 2, axis=-1)
    distance = ops.abs(ops.log(y) - ops.log(1 - y) - means)
    return distance * ops.exp(-scales) + scales + ops.log(y * (1 - y)) + math.log(2)
