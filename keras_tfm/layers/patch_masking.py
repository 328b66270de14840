"""Random masking of patches, as masked autoencoders learn by it (He et al. 2022, "Masked Autoencoders Are
Scalable Vision Learners", section 3).

Each patch has a random number; those with the least are visible, in the order of their numbers:

    noise      .7 .1 .9 .4        half of the patches are hidden: ranks 2 0 3 1
    tokens      a  b  c  d   -->  visible b d   -->  restored  m b m d, where m is a learned mask token
"""

from keras import ops

from keras_tfm.layers.base import Layer, own


def patch_ranks(noise):
    """Of how many numbers in its row of `noise` (B, N) each one is greater: (B, N), whole numbers."""
    return ops.argsort(ops.argsort(noise, axis=1), axis=1)


def num_visible(num_patches, mask_ratio):
    """How many of N patches stay, the others being `mask_ratio` of them, rounded up."""
    return int(num_patches * (1 - mask_ratio))


def is_hidden(noise, mask_ratio):
    """Which patches `PatchMasking` hides: (B, N), boolean."""
    return patch_ranks(noise) >= num_visible(noise.shape[1], mask_ratio)


class PatchMasking(Layer):
    """Leaves the visible patches, and the `prefix` tokens before them, of a sequence.

    (B, prefix + N, D) and noise (B, N) -> (B, prefix + M, D), where M of N patches are visible.
    """

    def __init__(self, mask_ratio=0.75, prefix=0, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= mask_ratio < 1:
            raise ValueError(f"`mask_ratio` must lie in [0, 1); it is {mask_ratio}.")
        self.mask_ratio = mask_ratio
        self.prefix = prefix

    def build(self, x_shape, noise_shape):
        num_patches = noise_shape[1]
        if num_patches is None or not num_visible(num_patches, self.mask_ratio):
            raise ValueError(f"`mask_ratio` {self.mask_ratio} leaves none of {num_patches} patches visible.")
        if x_shape[1] not in (None, self.prefix + num_patches):
            raise ValueError(
                f"`noise` must have a number for each of {x_shape[1]} - {self.prefix} patches; "
                f"it has {num_patches}."
            )
        self.built = True

    def call(self, x, noise):
        """(B, prefix + N, D) -> (B, prefix + M, D)."""
        order = ops.argsort(noise, axis=1)[:, : num_visible(noise.shape[1], self.mask_ratio)]  # (B, M)
        visible = ops.take_along_axis(x[:, self.prefix :], order[..., None], axis=1)
        return ops.concatenate([x[:, : self.prefix], visible], axis=1) if self.prefix else visible

    def compute_output_shape(self, x_shape, noise_shape):
        return (x_shape[0], self.prefix + num_visible(noise_shape[1], self.mask_ratio), x_shape[2])


class PatchRestoring(Layer):
    """Puts visible patches back to their places, a learned mask token to all others.

    (B, prefix + M, D) and noise (B, N) -> (B, prefix + N, D).
    """

    def __init__(self, prefix=0, initializer="zeros", **kwargs):
        super().__init__(**kwargs)
        self.prefix = prefix
        self.initializer = initializer

    def build(self, x_shape, noise_shape):
        self.mask_token = self.add_weight((1, 1, x_shape[2]), own(self.initializer), name="mask_token")
        self.built = True

    def call(self, x, noise):
        """(B, prefix + M, D) -> (B, prefix + N, D)."""
        num_patches, visible = noise.shape[1], x[:, self.prefix :]
        shape = (ops.shape(x)[0], num_patches - visible.shape[1], x.shape[2])
        hidden = ops.broadcast_to(ops.cast(self.mask_token, x.dtype), shape)
        patches = ops.concatenate([visible, hidden], axis=1)  # (B, N, D), by their ranks
        patches = ops.take_along_axis(patches, patch_ranks(noise)[..., None], axis=1)
        return ops.concatenate([x[:, : self.prefix], patches], axis=1) if self.prefix else patches

    def compute_output_shape(self, x_shape, noise_shape):
        return (x_shape[0], self.prefix + noise_shape[1], x_shape[2])
