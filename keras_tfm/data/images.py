"""Images: files and arrays to the batches that a model takes.

Raw images are 8-bit, 0 .. 255, or floating-point, 0 .. 1. They are read, resized and shifted in the form they
came in; `scale_images` alone turns them into what a model takes, in training and when served.
"""

import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.epochs import finished, one_after_another, shuffled
from keras_tfm.data.sources import DataError

SUFFIXES = (".png", ".jpg", ".jpeg")


class LabelledImages(NamedTuple):
    """Images (N, H, W, C), 8-bit, and labels (N,) that count into `class_names`."""

    images: np.ndarray
    labels: np.ndarray
    class_names: list[str]


def read_image_folder(folder, height, width, channels) -> LabelledImages:
    """Reads a folder of PNG and JPEG images, one folder inside it a class; the classes are in order of name.

    Every image is resized to `height` x `width` and kept in memory. Hidden files are passed over. Raises
    DataError when there are not two classes, when a class is empty, when a file is no image or is cut short.
    """
    classes = [path for path in _visible(pathlib.Path(folder)) if path.is_dir()]
    if len(classes) < 2:
        raise DataError(
            folder, None, f"expected a folder of images for each class, got {len(classes)} folders"
        )
    images, labels = [], []
    for label, path in enumerate(classes):
        files = _visible(path)
        if not files:
            raise DataError(path, None, "expected images, the folder is empty")
        images += [_read_image(file, height, width, channels) for file in files]
        labels += [label] * len(files)
    return LabelledImages(np.stack(images), np.array(labels, "int32"), [path.name for path in classes])


def read_images(path, height, width, channels) -> tuple[np.ndarray, list[str]]:
    """The images (N, H, W, C) of a PNG or JPEG file, or of a folder and the folders in it, in order of name,
    and their paths. Resized and refused as `read_image_folder` does.
    """
    path = pathlib.Path(path)
    inside = _visible(path) if path.is_dir() else [path]
    files = [file for part in inside for file in (_visible(part) if part.is_dir() else [part])]
    if not files:
        raise DataError(path, None, "expected images, the folder is empty")
    return np.stack([_read_image(file, height, width, channels) for file in files]), list(map(str, files))


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(folder, None, f"cannot be read: {error.strerror or error}") from None


def _read_image(path: pathlib.Path, height: int, width: int, channels: int) -> np.ndarray:
    if path.suffix.lower() not in SUFFIXES or not path.is_file():
        raise DataError(path, None, f"expected a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    try:
        return decode_image(path.read_bytes(), height, width, channels).numpy()
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
        raise DataError(path, None, "expected a whole PNG or JPEG image") from None


def decode_image(data, height, width, channels):
    """The bytes of a PNG or JPEG file, a string tensor (), to an 8-bit image (height, width, channels).

    `channels` is 1 (colours become their luminance) or 3 (an alpha channel is dropped). An orientation in
    EXIF is not followed. Raises InvalidArgumentError, also in a graph, where the bytes are no image.
    """
    image = tf.io.decode_image(data, channels=channels, expand_animations=False)
    image.set_shape((None, None, channels))
    return resize_images(image, height, width)


def decode_images(data, height, width, channels):
    """`decode_image` for each of the strings (B,): 8-bit images (B, height, width, channels)."""
    return tf.map_fn(
        lambda item: decode_image(item, height, width, channels),
        data,
        fn_output_signature=tf.TensorSpec((height, width, channels), tf.uint8),
    )


def resize_images(images, height, width):
    """Resizes images (..., H, W, C) by an antialiased bilinear filter; 8-bit ones are rounded to 8 bits."""
    if tuple(images.shape[-3:-1]) == (height, width):
        return images
    resized = tf.image.resize(images, (height, width), antialias=True)
    return tf.saturate_cast(tf.round(resized), tf.uint8) if images.dtype == tf.uint8 else resized


def scale_images(images, height, width, mean, std):
    """Raw images (B, H, W, C) to what a model takes: resized, 8 bits to 0 .. 1, then (x - mean) / std.

    `mean` and `std` are numbers, one for all channels or one for each.
    """
    images = resize_images(tf.convert_to_tensor(images), height, width)
    scale = 255.0 if images.dtype == tf.uint8 else 1.0
    return (tf.cast(images, tf.float32) / scale - tf.constant(mean)) / tf.constant(std)


def check_images(images, channels) -> np.ndarray:
    """Raw images as an array (B, H, W, C), from (B, H, W) where `channels` is 1; ValueError for what is none.

    8-bit images are taken as they are; floating-point ones become float32 and must lie in 0 .. 1.
    """
    images = np.asarray(images)
    if images.ndim == 3 and channels == 1:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] != channels or 0 in images.shape[1:]:
        expected = "(B, H, W) or (B, H, W, 1)" if channels == 1 else f"(B, H, W, {channels})"
        raise ValueError(f"`images` must have the shape {expected}; it is {images.shape}.")
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise ValueError(f"`images` must be uint8, 0 to 255, or floats, 0 to 1; they are {images.dtype}.")
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(
            f"Floating-point `images` must lie in 0 .. 1; they span {images.min()} to {images.max()}."
        )
    return images.astype("float32", copy=False)


class ImageBatches:
    """Batches ({"images": (B, H, W, C)}, labels (B,)) of raw images and their labels.

    With `seed` each epoch is shuffled, and shifted by up to `max_shift` pixels each way, in a manner of its
    own that the seed fixes; what does not fill a batch is left out of that epoch, so that all its steps are
    one compiled program. Without it all come in their order. `prepare` makes the model's input of raw images.
    """

    def __init__(self, images, labels, prepare, batch_size, seed=None, max_shift=0):
        with tf.device("cpu"):  # a data set may be larger than an accelerator's memory
            self.images, self.labels = tf.constant(images), tf.constant(labels)
        self.prepare = prepare
        self.batch_size = min(batch_size, len(images))
        self.seed = seed
        self.max_shift = max_shift
        full, rest = divmod(len(images), self.batch_size)
        self.num_batches = full if seed is not None else full + bool(rest)

    def dataset(self, epoch=0):
        """The batches of one epoch, which its number and the seed alone decide."""
        return finished(self._epoch(tf.constant(epoch, tf.int64)), self.num_batches)

    def epochs(self):
        """The batches of epoch 0, 1, … without end, for `fit(..., steps_per_epoch=num_batches)`."""
        return one_after_another(self._epoch, self.num_batches)

    def _epoch(self, number):
        count = len(self.images)
        order = tf.range(count, dtype=tf.int64)
        if self.seed is not None:
            order = tf.cast(shuffled(count, self.seed, number), tf.int64)
        rows = tf.data.Dataset.from_tensor_slices(order).batch(self.batch_size, self.seed is not None)
        return rows.enumerate().map(lambda step, rows: self._batch(tf.stack([number, step]), rows))

    def _batch(self, step, rows):
        images = tf.gather(self.images, rows)
        if self.seed is not None and self.max_shift:
            images = shift_images(
                images, self.max_shift, tf.random.experimental.stateless_fold_in(step, self.seed)
            )
        return {"images": self.prepare(images)}, tf.gather(self.labels, rows)


def shift_images(images, max_shift, seed):
    """Moves each image (B, H, W, C) by up to `max_shift` pixels each way, zeros (black) moving in."""
    batch_size, height, width, _ = tf.unstack(tf.shape(images))
    offsets = tf.random.stateless_uniform((2, batch_size, 1), seed, 0, 2 * max_shift + 1, tf.int32)
    edges = (max_shift, max_shift)
    images = tf.pad(images, ((0, 0), edges, edges, (0, 0)))
    images = tf.gather(images, offsets[0] + tf.range(height), axis=1, batch_dims=1)
    return tf.gather(images, offsets[1] + tf.range(width), axis=2, batch_dims=1)
