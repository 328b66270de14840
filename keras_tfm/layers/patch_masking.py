"""Random masking of patches, for masked autoencoders.

He et al. 2022, "Masked Autoencoders Are Scalable Vision Learners", section 3. Each patch gets a random
number. The patches with the smallest numbers stay visible, sorted by their numbers. After the encoder they
are put back into place, with a learned mask token m elsewhere:

    noise      .7 .1 .9 .4        half of the patches are hidden: ranks 2 0 3 1
    tokens      a  b  c  d   -->  visible b d   -->  restored  m b m d
"""

from typing import Any

from keras import ops

from keras_tfm.configs import FieldError
from keras_tfm.layers.base import Layer, copy_of
from keras_tfm.layers.compiler.rows import rows_at
from keras_tfm.layers.signatures import Initializer, Tensor


def patch_ranks(noise):
    """The rank of each number in its row of `noise` (B, N), counted from 0: (B, N), integers."""
    return ops.argsort(ops.argsort(noise, axis=1), axis=1)


def num_visible(num_patches, mask_ratio):
    """How many of N patches stay visible: N (1 - `mask_ratio`), rounded down.

    The authors and transformers compute it in floating point, and so does this function: for some ratios one
    patch less is visible than by hand, since 1 - 0.8 is a little below 0.2: 1 of 10 patches, not 2.
    """
    return int(num_patches * (1 - mask_ratio))


def is_hidden(noise: Tensor, mask_ratio: float) -> Tensor:
    """Which patches `PatchMasking` hides: (B, N), boolean.

    >>> keras_tfm.layers.is_hidden(np.array([[0.7, 0.1, 0.9, 0.4]]), mask_ratio=0.5).numpy().tolist()
    [[True, False, True, False]]
    """
    return patch_ranks(noise) >= num_visible(noise.shape[1], mask_ratio)


class PatchMasking(Layer):
    """Keeps the visible patches of a sequence, and the `prefix` tokens before them.

    Called with (B, prefix + N, D) and noise (B, N) it returns (B, prefix + M, D), where M of N patches are
    visible. `mask_ratio` is the share of hidden patches, whose number is rounded up.

    >>> noise = np.array([[0.7, 0.1, 0.9, 0.4]])
    >>> keras_tfm.layers.PatchMasking(mask_ratio=0.5)(np.ones((1, 4, 8)), noise).shape
    TensorShape([1, 2, 8])
    """

    def __init__(self, mask_ratio: float = 0.75, prefix: int = 0, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # numbers that are equal in lower precision hide others
        if not 0 <= mask_ratio < 1:
            raise FieldError("{mask_ratio} must lie in [0, 1); it is {}.", mask_ratio)
        self.mask_ratio = mask_ratio
        self.prefix = prefix

    def build(self, x_shape, noise_shape):
        num_patches = noise_shape[1]
        if num_patches is None or not num_visible(num_patches, self.mask_ratio):
            raise FieldError(
                "{mask_ratio} must leave one of {} patches visible; it is {}.", num_patches, self.mask_ratio
            )
        if x_shape[1] not in (None, self.prefix + num_patches):
            raise ValueError(
                f"`noise` must have a number for each of {x_shape[1] - self.prefix} patches; "
                f"it has {num_patches}."
            )

    def call(self, x, noise):
        """(B, prefix + N, D) -> (B, prefix + M, D)."""
        x = ops.cast(x, self.compute_dtype)
        order = ops.argsort(noise, axis=1)[:, : num_visible(noise.shape[1], self.mask_ratio)]  # (B, M)
        visible = rows_at(x[:, self.prefix :], order)
        return ops.concatenate([x[:, : self.prefix], visible], axis=1) if self.prefix else visible

    def compute_output_shape(self, x_shape, noise_shape):
        return (x_shape[0], self.prefix + num_visible(noise_shape[1], self.mask_ratio), x_shape[2])


class PatchRestoring(Layer):
    """Puts visible patches back to their places, and a learned mask token in all others.

    Called with (B, prefix + M, D) and noise (B, N) it returns (B, prefix + N, D).

    >>> keras_tfm.layers.PatchRestoring()(np.ones((1, 2, 8)), np.array([[0.7, 0.1, 0.9, 0.4]])).shape
    TensorShape([1, 4, 8])
    """

    def __init__(self, prefix: int = 0, initializer: Initializer = "zeros", **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)  # as in `PatchMasking`
        self.prefix = prefix
        self.initializer = initializer

    def build(self, x_shape, noise_shape):
        self.mask_token = self.add_weight((1, 1, x_shape[2]), copy_of(self.initializer), name="mask_token")

    def call(self, x, noise):
        """(B, prefix + M, D) -> (B, prefix + N, D)."""
        x = ops.cast(x, self.compute_dtype)
        num_patches, visible = noise.shape[1], x[:, self.prefix :]
        shape = (ops.shape(x)[0], num_patches - visible.shape[1], x.shape[2])
        hidden = ops.broadcast_to(ops.cast(self.mask_token, x.dtype), shape)
        patches = ops.concatenate([visible, hidden], axis=1)  # (B, N, D), by their ranks
        patches = rows_at(patches, patch_ranks(noise))
        return ops.concatenate([x[:, : self.prefix], patches], axis=1) if self.prefix else patches

    def compute_output_shape(self, x_shape, noise_shape):
        return (x_shape[0], self.prefix + noise_shape[1], x_shape[2])
