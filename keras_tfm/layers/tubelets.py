"""Videos as tubelets: patches that are several frames long (Arnab et al. 2021, "ViViT", section 3.2).

(B, F, H, W, C), F frames ------> (B, F / f, H / P, W / P, D)
"""

from typing import Any, cast

from keras import ops

from keras_tfm.layers.base import Layer, copy_of
from keras_tfm.layers.patches import PatchEmbedding
from keras_tfm.layers.signatures import Initializer


class TubeletEmbedding(Layer):
    """Linearly projected tubelets of videos: (B, F, H, W, C) -> (B, frames, rows, columns, `dim`).

    `tubelet_size` is (frames, height, width) and must divide the video; with one frame the tubelets are the
    patches of each frame. Within a tubelet the numbers are ordered by (row, column, frame, channel).

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
        self.dim = dim
        self.tubelet_size = cast(tuple[int, int, int], tuple(tubelet_size))
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        initial = {"use_bias": use_bias, "kernel_initializer": copy_of(kernel_initializer)}
        self.patches = PatchEmbedding(dim, self.tubelet_size[1:], **initial)

    def build(self, videos_shape):
        if len(videos_shape) != 5:
            raise ValueError(f"`videos` must have the shape (B, F, H, W, C); it is {tuple(videos_shape)}.")
        self.compute_output_shape(videos_shape)  # raises for videos that cannot be cut into tubelets
        _, _, height, width, channels = videos_shape
        self.patches.build((None, height, width, self.tubelet_size[0] * channels))

    def call(self, videos):
        """(B, F, H, W, C) -> (B, frames, rows, columns, dim)."""
        length = self.tubelet_size[0]
        _, count, height, width, channels = videos.shape
        x = ops.reshape(videos, (-1, length, height, width, channels))  # (B frames, f, H, W, C)
        x = ops.transpose(x, (0, 2, 3, 1, 4))  # (B frames, H, W, f, C)
        x = self.patches(ops.reshape(x, (-1, height, width, length * channels)))
        return ops.reshape(x, (-1, count // length, *x.shape[1:]))  # (B, frames, rows, columns, D)

    def compute_output_shape(self, videos_shape):
        batch_size, count, *frame = videos_shape
        length = self.tubelet_size[0]
        if count is None or count < length or count % length:
            raise ValueError(f"Videos of {count} frames are not divisible into tubelets of {length}.")
        return (batch_size, count // length, *self.patches.compute_output_shape((batch_size, *frame))[1:])
