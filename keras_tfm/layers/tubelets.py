"""Videos as tubelets: patches that are several frames long (Arnab et al. 2021, "ViViT", section 3.2).

(B, F, H, W, C), F frames ------> (B, F / f, H / P, W / P, D)

Within a tubelet the numbers are ordered by (frame, row, column, channel), so that a linear projection of
tubelets equals a convolution of such a stride: its kernel (f, P, P, C, D) is reshaped to (f P P C, D).
"""

from typing import Any, cast

import keras
from keras import ops

from keras_tfm.layers.base import Layer, copy_of, require_sizes
from keras_tfm.layers.patches import patch_grid, require_floats
from keras_tfm.layers.signatures import Initializer, Tensor


def extract_tubelets(videos: Tensor, tubelet_size: tuple[int, int, int]) -> Tensor:
    """Cut videos (B, F, H, W, C) into tubelets of (frames f, height P, width Q): (B, frames, rows, columns, f
    P Q C).

    >>> keras_tfm.layers.extract_tubelets(np.ones((1, 4, 8, 8, 3)), (2, 4, 4)).shape
    TensorShape([1, 2, 2, 2, 96])
    """
    length, height, width = tubelet_size
    moments, rows, columns = tubelet_grid(videos.shape, tubelet_size)
    channels = videos.shape[4]
    x = ops.reshape(videos, (-1, length, rows, height, columns, width * channels))
    x = ops.transpose(x, (0, 2, 4, 1, 3, 5))  # (B frames, rows, columns, f, P, Q C)
    return ops.reshape(x, (-1, moments, rows, columns, length * height * width * channels))


def tubelet_grid(videos_shape, tubelet_size):
    """The (frames, rows, columns) of tubelets of videos. Raises ValueError if tubelets do not divide them."""
    if len(videos_shape) != 5:
        raise ValueError(f"`videos` must have the shape (B, F, H, W, C); it is {tuple(videos_shape)}.")
    count, length = videos_shape[1], tubelet_size[0]
    if count is None or count < length or count % length:
        raise ValueError(f"Videos of {count} frames are not divisible into tubelets of {length}.")
    return count // length, *patch_grid(videos_shape[2:4], tubelet_size[1:])


class TubeletEmbedding(Layer):
    """Linearly projected tubelets of videos: (B, F, H, W, C) -> (B, frames, rows, columns, `dim`).

    `tubelet_size` is (frames, height, width) and must divide the video; with one frame the tubelets are the
    patches of each frame.

    >>> keras_tfm.layers.TubeletEmbedding(dim=16, tubelet_size=(2, 4, 4))(np.ones((1, 4, 8, 8, 3))).shape
    TensorShape([1, 2, 2, 2, 16])
    """

    def __init__(
        self,
        dim: int,
        tubelet_size: tuple[int, int, int],
        use_bias: bool = True,
        kernel_initializer: Initializer = "lecun_normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        is_size = isinstance(tubelet_size, list | tuple) and len(tubelet_size) == 3
        if not is_size or not all(isinstance(side, int) and side > 0 for side in tubelet_size):
            raise ValueError(f"`tubelet_size` must be (frames, height, width); it is {tubelet_size}.")
        require_sizes(dim=dim)
        self.dim = dim
        self.tubelet_size = cast(tuple[int, int, int], tuple(tubelet_size))
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer

    def build(self, videos_shape):
        tubelet_grid(videos_shape, self.tubelet_size)  # raises for videos that cannot be cut into tubelets
        initializer = copy_of(self.kernel_initializer)
        self.projection = keras.layers.Dense(
            self.dim, use_bias=self.use_bias, kernel_initializer=initializer, name="projection"
        )
        length, height, width = self.tubelet_size
        self.projection.build((None, None, None, None, length * height * width * videos_shape[4]))

    def call(self, videos):
        """Floating-point videos (B, F, H, W, C) -> (B, frames, rows, columns, dim)."""
        require_floats(videos=videos)
        return self.projection(extract_tubelets(videos, self.tubelet_size))

    def compute_output_shape(self, videos_shape):
        return (videos_shape[0], *tubelet_grid(videos_shape, self.tubelet_size), self.dim)
