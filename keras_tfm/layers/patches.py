"""Images as sequences of patches (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", section 3.1).

    a a b b                              0: a a a a
    a a b b     patches of P = 2, C = 1  1: b b b b
    c c d d    ------------------------> 2: c c c c
    c c d d                              3: d d d d

    (B, H, W, C)                         (B, N, P P C)

Patches are numbered row by row. Within a patch the numbers are ordered by (row, column, channel), so that a
linear projection of patches equals a convolution of stride P: its kernel (P, P, C, D) is reshaped to (P P C,
D).
"""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from keras_tfm.layers.base import Layer, copy_of, require_sizes
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.signatures import Initializer, Sides, Tensor

MOST_FIRST = 8  # tokens before the patches of a model: class, distillation and register tokens


def extract_patches(images: Tensor, patch_size: Sides) -> Tensor:
    """Cut images (B, H, W, C) into N = (H / P) (W / P) patches, flattened: (B, N, P P C).

    `patch_size` is P or a (height, width) pair. Raises ValueError if the patches do not divide the image,
    which is neither cropped nor padded, or if the image's height or width is not known.

    >>> keras_tfm.layers.extract_patches(np.ones((1, 8, 8, 3)), patch_size=4).shape
    TensorShape([1, 4, 48])
    """
    patch_height, patch_width = height_and_width(patch_size, "patch_size")
    if len(images.shape) != 4:
        raise ValueError(f"`images` must have the shape (B, H, W, C); it is {tuple(images.shape)}.")
    rows, columns = patch_grid(images.shape[1:3], patch_size)
    channels = images.shape[3]
    x = ops.reshape(images, (-1, rows, patch_height, columns, patch_width, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, P, P, C)
    return ops.reshape(x, (-1, rows * columns, patch_height * patch_width * channels))  # (B, N, P P C)


def combine_patches(patches: Tensor, patch_size: Sides, image_size: Sides) -> Tensor:
    """The inverse of `extract_patches`: patches (B, N, P P C) -> images (B, H, W, C).

    `image_size` is the side of the images or their (H, W). Raises ValueError if the sizes do not fit
    together.

    >>> keras_tfm.layers.combine_patches(np.ones((1, 4, 48)), patch_size=4, image_size=8).shape
    TensorShape([1, 8, 8, 3])
    """
    patch_height, patch_width = height_and_width(patch_size, "patch_size")
    height, width = height_and_width(image_size, "image_size")
    rows, columns = patch_grid((height, width), patch_size)
    area = patch_height * patch_width
    if len(patches.shape) != 3 or patches.shape[1] != rows * columns or patches.shape[2] % area:
        raise ValueError(
            f"`patches` must have the shape (B, {rows * columns}, {area} C) for patches of {patch_height} x "
            f"{patch_width} in images of {height} x {width}; it is {tuple(patches.shape)}."
        )
    channels = patches.shape[2] // area
    x = ops.reshape(patches, (-1, rows, columns, patch_height, patch_width, channels))
    x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, P, columns, P, C)
    return ops.reshape(x, (-1, height, width, channels))


def patch_grid(image_size, patch_size):
    """The (rows, columns) of patches of an image. Raises ValueError if the patches do not divide the
    image.
    """
    patch_height, patch_width = height_and_width(patch_size, "patch_size")
    height, width = image_size
    if height is None or width is None:
        raise ValueError(f"The images' height and width must be known; they are {height} and {width}.")
    if height < patch_height or width < patch_width or height % patch_height or width % patch_width:
        raise ValueError(
            f"Images of {height} x {width} are not divisible into patches of {patch_height} x {patch_width}."
        )
    return height // patch_height, width // patch_width


def grid_of_model(family, config):
    """The (rows, columns) of the patches of a `family` of models with this `config`; None if it has none."""
    if hasattr(family, "grid_of"):
        return family.grid_of(config)
    if isinstance(grid := getattr(config, "grid", None), tuple):
        return grid
    if hasattr(config, "image_size") and hasattr(config, "patch_size"):
        return patch_grid(height_and_width(config.image_size), config.patch_size)
    return None


def height_and_width(size, name="size"):
    """The (height, width) of a size given as one number or as two. Raises ValueError for anything else."""
    pair = tuple(size) if isinstance(size, list | tuple) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise ValueError(f"`{name}` must be a positive integer, or a (height, width) pair; it is {size}.")
    return pair


def require_floats(**pixels):
    """Raises ValueError, naming the argument, for pixels that are not floating-point numbers."""
    for name, values in pixels.items():
        dtype = keras.backend.standardize_dtype(values.dtype)
        if not keras.backend.is_float_dtype(dtype):
            raise ValueError(f"`{name}` must be floating-point, such as pixels / 255; they are {dtype}.")


class PatchEmbedding(Layer):
    """Linearly projected patches of images or maps: (B, H, W, C) -> a map (B, rows, columns, `dim`).

    Args:
        dim: D, the width of the output.
        patch_size: P or a (height, width) pair.
        stride: the distance between the starts of neighbouring patches; by default the patch size.
        padding: the zeros on each side of the image, a number or a (vertical, horizontal) pair.
        use_bias: whether the projection has a bias.

    Raises:
        ValueError: if neither `stride` nor `padding` is given and the patches do not divide the image. With
            one of them it is a convolution, which leaves out incomplete patches at the end.

    >>> keras_tfm.layers.PatchEmbedding(dim=16, patch_size=4)(np.ones((1, 8, 8, 3))).shape
    TensorShape([1, 2, 2, 16])
    """

    def __init__(
        self,
        dim: int,
        patch_size: Sides,
        stride: Sides | None = None,
        padding: int | tuple[int, int] = 0,
        use_bias: bool = True,
        kernel_initializer: Initializer = "lecun_normal",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        height_and_width(patch_size, "patch_size")
        if stride is not None:
            height_and_width(stride, "stride")
        require_sizes(dim=dim)
        self.dim = dim
        self.patch_size = patch_size
        self.stride = stride
        self.padding = padding
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer

    def build(self, images_shape):
        if len(images_shape) != 4:
            raise ValueError(f"`images` must have the shape (B, H, W, C); it is {tuple(images_shape)}.")
        self.num_channels = images_shape[-1]
        self.compute_output_shape(images_shape)  # raises for images that cannot be cut into patches
        patch_height, patch_width = height_and_width(self.patch_size)
        initializer = copy_of(self.kernel_initializer)
        self.projection = keras.layers.Dense(
            self.dim, use_bias=self.use_bias, kernel_initializer=initializer, name="projection"
        )
        self.projection.build((None, None, patch_height * patch_width * images_shape[-1]))

    def call(self, images):
        """Floating-point images (B, H, W, C) -> (B, rows, columns, D)."""
        require_floats(images=images)
        if images.shape[-1] != self.num_channels:
            raise ValueError(
                f"{self.name!r} was built for images of {self.num_channels} channels; their shape is "
                f"{tuple(images.shape)}."
            )
        _, rows, columns, _ = self.compute_output_shape(images.shape)
        x = self.projection(extract_patches(self._apart(images, (rows, columns)), self.patch_size))
        return ops.reshape(x, (-1, rows, columns, self.dim))  # (B, rows, columns, D)

    def _apart(self, images, grid):
        """`images` padded, with overlapping patches copied so that they lie side by side."""
        if self.stride is None and not self.padding:
            return images
        vertical, horizontal = pair_of(self.padding)
        images = ops.pad(images, ((0, 0), (vertical, vertical), (horizontal, horizontal), (0, 0)))
        strides = height_and_width(self.stride or self.patch_size)
        sides = zip(grid, strides, height_and_width(self.patch_size), strict=True)
        for axis, (count, stride, size) in enumerate(sides, start=1):
            indices = np.arange(count)[:, None] * stride + np.arange(size)  # (count, P)
            images = ops.take(images, indices.ravel(), axis=axis)
        return images

    def compute_output_shape(self, images_shape):
        if (self.stride is None and not self.padding) or None in tuple(images_shape[1:3]):
            return (images_shape[0], *patch_grid(images_shape[1:3], self.patch_size), self.dim)
        stride = self.stride or self.patch_size
        grid = grid_of_windows(images_shape[1:3], self.patch_size, stride, self.padding)
        return (images_shape[0], *grid, self.dim)


class PatchMerging(Layer):
    """Merges 2 x 2 cells of a map into one: (B, H, W, D) -> (B, H / 2, W / 2, `dim`).

    The four vectors, column by column, are concatenated and projected without a bias (Liu et al. 2021, "Swin
    Transformer", section 3.1, where `dim` is 2 D). A map of odd size is padded with zeros. `norm` is a layer
    applied to the four vectors, the "input" of the projection, or to its "output" (Liu et al. 2022, "Swin
    Transformer V2"); `normalize` says which.

    >>> keras_tfm.layers.PatchMerging(dim=16)(np.ones((1, 4, 4, 8))).shape
    TensorShape([1, 2, 2, 16])
    """

    def __init__(
        self,
        dim: int,
        norm: keras.layers.Layer | None = None,
        normalize: Literal["input", "output"] = "input",
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if normalize not in ("input", "output"):
            raise ValueError(f"`normalize` must be 'input' or 'output'; it is {normalize!r}.")
        self.dim = dim
        self.norm = norm
        self.normalize = normalize
        self.kernel_initializer = kernel_initializer

    def build(self, x_shape):
        if len(x_shape) != 4 or None in tuple(x_shape[1:]):
            raise ValueError(f"`x` must have the shape (B, height, width, D); it is {tuple(x_shape)}.")
        width = 4 * x_shape[3]
        initializer = copy_of(self.kernel_initializer)
        self.projection = Dense(self.dim, use_bias=False, kernel_initializer=initializer, name="projection")
        self.projection.build((*x_shape[:3], width))
        if self.norm is not None:
            self.norm.build((*x_shape[:3], width if self.normalize == "input" else self.dim))

    def call(self, x):
        """(B, H, W, D) -> (B, H / 2, W / 2, dim)."""
        _, height, width, dim = x.shape
        if height % 2 or width % 2:
            x = ops.pad(x, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
        rows, columns = (height + 1) // 2, (width + 1) // 2
        x = ops.reshape(x, (-1, rows, 2, columns, 2, dim))
        x = ops.transpose(x, (0, 1, 3, 4, 2, 5))  # (B, H/2, W/2, 2 columns, 2 rows, D)
        x = ops.reshape(x, (-1, rows, columns, 4 * dim))  # (B, H/2, W/2, 4 D)
        if self.norm is not None and self.normalize == "input":
            x = self.norm(x)
        x = self.projection(x)
        return self.norm(x) if self.norm is not None and self.normalize == "output" else x

    def compute_output_shape(self, x_shape):
        batch_size, height, width, _ = x_shape
        halves = (None if side is None else (side + 1) // 2 for side in (height, width))
        return (batch_size, *halves, self.dim)


class PixelShuffle(Layer):
    """A map whose sides are `factor` times as long, made of its channels: (B, H, W, factor² C) -> (B, factor
    H, factor W, C).

    Shi et al. 2016, "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
    Convolutional Neural Network", section 3.2. The channels are ordered as the numbers of a patch, by (row,
    column, channel); in PyTorch they are by (channel, row, column).

    >>> keras_tfm.layers.PixelShuffle(2)(np.ones((1, 3, 4, 8))).shape
    TensorShape([1, 6, 8, 2])
    """

    def __init__(self, factor: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(factor=factor)
        self.factor = factor

    def build(self, x_shape):
        if len(x_shape) != 4 or x_shape[-1] % self.factor**2:
            raise ValueError(
                f"`x` must have the shape (B, height, width, {self.factor**2} C); it is {tuple(x_shape)}."
            )

    def call(self, x):
        """(B, H, W, factor² C) -> (B, factor H, factor W, C)."""
        return ops.depth_to_space(x, self.factor) if self.factor > 1 else x

    def compute_output_shape(self, x_shape):
        batch_size, *sides, dim = x_shape
        sides = [None if side is None else side * self.factor for side in sides]
        return (batch_size, *sides, dim // self.factor**2)


def flatten_map(x: Tensor) -> Tensor:
    """The cells of a map as a sequence, row by row: (B, rows, columns, D) -> (B, N, D).

    >>> keras_tfm.layers.flatten_map(np.ones((1, 3, 3, 8))).shape
    TensorShape([1, 9, 8])
    """
    _, rows, columns, dim = x.shape
    return ops.reshape(x, (-1, rows * columns, dim))  # (B, N, D)


def grid_of_windows(map_size, size, stride, padding=0):
    """The numbers of windows of `size`, `stride` apart, along the axes of a map with `padding` on each side.

    `map_size` is (rows, columns), of videos (frames, rows, columns); each other argument is a number for all
    axes, or one for each. A side that is not known, None, stays None. Raises ValueError if a window is larger
    than the padded map.
    """
    rank = len(map_size)
    numbers = zip(map_size, *(for_axes(x, rank) for x in (size, stride, padding)), strict=True)
    grid = tuple(
        None if side is None else (side + 2 * margin - length) // step + 1
        for side, length, step, margin in numbers
    )
    if any(count is not None and count < 1 for count in grid):
        sides, window = (" x ".join(map(str, x)) for x in (map_size, for_axes(size, rank)))
        raise ValueError(f"A map of {sides} is smaller than a window of {window}.")
    return grid


def same_grid(map_size, stride):
    """The lengths ceil(side / stride) of a map's sides, as Keras's padding "same" gives; None stays None."""
    steps = zip(map_size, for_axes(stride, len(map_size), "stride"), strict=True)
    return tuple(None if side is None else -(-side // step) for side, step in steps)


def pair_of(number):
    """A (vertical, horizontal) pair, of one number for both axes or of a pair."""
    return for_axes(number, 2)


def for_axes(numbers, rank, name="size"):
    """One number for each of `rank` axes, of one for all or of one for each. ValueError for other counts."""
    values = tuple(numbers) if isinstance(numbers, list | tuple) else (numbers,) * rank
    if len(values) != rank:
        raise ValueError(f"`{name}` must be one number, or one for each of {rank} axes; it is {numbers}.")
    return values


def require_axes(**sizes):
    """Raises ValueError, naming the argument, unless each is a positive integer, or one for each of 2 or 3
    axes.
    """
    for name, size in sizes.items():
        values = size if isinstance(size, list | tuple) else (size, size)
        if len(values) not in (2, 3) or not all(isinstance(side, int) and side > 0 for side in values):
            raise ValueError(
                f"`{name}` must be a positive integer, or one for each of 2 or 3 axes; it is {size}."
            )
