"""How alike pictures, or videos, are: the peak signal-to-noise ratio and the structural similarity."""

import tensorflow as tf

WINDOW = 11  # pixels of the side of SSIM's window


def likeness(
    good: tf.Tensor, images: tf.Tensor, damage: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """The PSNR in decibels, at most 100, of pixels where `damage` (B, ..., 1) is 1, by default of all, and
    the SSIM of all: (B,) each, of pictures or videos (B, ..., H, W, C) from 0 to 1. The window of the SSIM is
    as large as a picture that is smaller.

    Wang et al. 2004, "Image Quality Assessment: From Error Visibility to Structural Similarity".
    """
    errors, axes = (good - images) ** 2, list(range(1, good.shape.rank))
    weights = tf.ones_like(errors) if damage is None else tf.broadcast_to(damage, tf.shape(errors))
    error = tf.math.divide_no_nan(tf.reduce_sum(errors * weights, axes), tf.reduce_sum(weights, axes))
    psnr = -10 * tf.math.log(tf.maximum(error, 1e-10)) / tf.math.log(10.0)
    window = min(WINDOW, *(side or WINDOW for side in good.shape[-3:-1]))
    ssim = tf.image.ssim(good, images, 1.0, filter_size=window)  # (B, ...)
    return psnr, tf.reduce_mean(tf.reshape(ssim, (tf.shape(psnr)[0], -1)), -1)
