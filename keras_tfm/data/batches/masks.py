"""Batches of images with segmentation masks, which are mirrored, cropped and scaled together."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.augmentation import ASPECTS
from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import MAX_BYTES, ImageFiles

NONE = 255  # the label of pixels that losses and metrics ignore
_EDGES = ((0, 0), (1, 1), (1, 1), (0, 0))


class MaskBatches(ImageBatches):
    """Batches ({"images": (B, H, W, C)}, labels (B, H, W)) of raw images and their masks.

    Args:
        sizes: the images' own (height, width), (N, 2).
        masks: class numbers in the size of the canvas: an 8-bit array (N, H, W), or PNG files of such. Pixels
            with the label `NONE` are ignored by losses and metrics.
        shape: that of the canvas, (H, W, C).
        seed: shuffles and changes the images of each epoch, always in the same way; None does neither.
        flips: whether half of the images are mirrored.
        areas: (least, most) of a crop's share of the image, which is then resized. Above 1 the image shrinks,
            and the pixels around it are ignored.

    >>> images, masks = np.zeros((2, 8, 8, 3), "uint8"), np.ones((2, 8, 8), "uint8")
    >>> canvas, shape = keras_tfm.data.Canvas(), (8, 8, 3)
    >>> batches = keras_tfm.data.MaskBatches(images, [(8, 8)] * 2, masks, canvas, shape, batch_size=2)
    >>> inputs, labels = next(iter(batches.dataset()))
    >>> inputs["images"].shape, labels.shape
    (TensorShape([2, 8, 8, 3]), TensorShape([2, 8, 8]))
    """

    def __init__(
        self,
        images: np.ndarray | ImageFiles,
        sizes: np.ndarray,
        masks: np.ndarray | Sequence[bytes],
        canvas: Canvas,
        shape: tuple[int, int, int],
        batch_size: int,
        seed: int | None = None,
        flips: bool = False,
        areas: tuple[float, float] = (1.0, 1.0),
    ):
        super().__init__(images, masks, None, batch_size, seed)
        self.sizes = tf.constant(sizes, tf.int64)
        self.canvas, self.shape = canvas, shape
        self.flips, self.areas = flips, areas

    def _batch(self, step: tf.Tensor, images: tf.Tensor, rows: tf.Tensor) -> tuple[dict, tf.Tensor]:
        height, width, _ = self.shape
        sizes, masks = tf.gather(self.sizes, rows), tf.gather(self.labels, rows)
        if masks.dtype == tf.string:
            masks = tf.map_fn(
                lambda data: tf.ensure_shape(tf.io.decode_png(data, 1), (height, width, 1)),
                masks,
                fn_output_signature=tf.TensorSpec((height, width, 1), tf.uint8),
            )[..., 0]
        images = self.canvas.inputs(self.canvas.fitted(images, height, width), sizes)["images"]
        if self.seed is not None:
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            if self.areas != (1.0, 1.0):
                images, masks = cut_out(images, masks, self.areas, key)
            if self.flips:
                images, masks = mirror(images, masks, key + 1)
        return {"images": images}, masks


def mirror(images: tf.Tensor, masks: tf.Tensor, key: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Mirror half of the images (B, H, W, C), left to right, and their masks, (B, H, W) or (B, H, W, M)."""
    is_chosen = tf.random.stateless_uniform(tf.shape(masks)[:1], key) < 0.5

    def mirrored(x: tf.Tensor) -> tf.Tensor:
        return tf.where(tf.reshape(is_chosen, [-1] + [1] * (len(x.shape) - 1)), x[:, :, ::-1], x)

    return mirrored(images), mirrored(masks)


def cut_out(
    images: tf.Tensor, masks: tf.Tensor, areas: tuple[float, float], key: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """A random crop of each image (B, H, W, C), resized to its size, and the same of its masks, (B, H, W) or
    (B, H, W, M).

    The logarithms of the crop's share and of its aspect ratio are uniform. Pixels outside the image are 0 and
    have no class.
    """
    draws = tf.random.stateless_uniform((4, tf.shape(masks)[0]), key)
    low, high = (float(np.log(area)) for area in areas)
    area = tf.exp(low + (high - low) * draws[0])
    low, high = (float(np.log(aspect)) for aspect in ASPECTS)
    aspect = tf.exp(low + (high - low) * draws[1])
    sides = tf.sqrt(tf.stack([area / aspect, area * aspect]))  # (2, B): of the height, of the width
    sides = tf.minimum(sides, max(1.0, areas[1] ** 0.5))
    start = (1 - sides) * draws[2:]
    # `crop_and_resize` takes the centres of a crop's first and last pixels, as shares of the distance between
    # the image's outermost centres. The edges are repeated, so that the half pixels outside these centres
    # belong to the image too.
    size = tf.constant([[float(side)] for side in images.shape[1:3]])
    first = start * size + 0.5 * sides + 0.5
    ends = tf.concat([first, first + (size - 1) * sides], axis=0) / tf.tile(size + 1, [2, 1])
    boxes, rows = tf.transpose(ends), tf.range(tf.shape(masks)[0])
    shape = images.shape[1:3]
    is_one = len(masks.shape) == 3
    masks = masks[..., None] if is_one else masks
    images, masks = (tf.pad(x, _EDGES, "SYMMETRIC") for x in (images, masks))
    images = tf.image.crop_and_resize(images, boxes, rows, shape)
    masks = tf.image.crop_and_resize(masks, boxes, rows, shape, method="nearest", extrapolation_value=NONE)
    masks = tf.cast(masks, tf.uint8)
    return images, masks[..., 0] if is_one else masks


def on_canvas(mask: np.ndarray, canvas: Canvas, shape: tuple[int, int, int]) -> np.ndarray:
    """A mask of an image's own size on a canvas of the `shape`: (H, W), `NONE` for padding.

    Each cell gets the value at its centre.
    """
    rows, columns = canvas.content(tf.constant(mask.shape, tf.int64), *shape[:2]).numpy().tolist()
    whole = np.full(shape[:2], NONE, "uint8")
    places = [
        np.minimum(((np.arange(count) + 0.5) * side / count).astype(int), side - 1)
        for count, side in zip((rows, columns), mask.shape, strict=True)
    ]
    whole[:rows, :columns] = mask[np.ix_(*places)]
    return whole


def fits_memory(count: int, shape: tuple[int, int, int]) -> bool:
    """Whether this number of masks of the `shape` takes at most `MAX_BYTES`."""
    return count * shape[0] * shape[1] <= MAX_BYTES
