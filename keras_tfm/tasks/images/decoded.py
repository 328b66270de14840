"""The reader of images where TensorFlow is: files are decoded as in training and in SavedModels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.image_files import ImageFiles, size_in
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.serving.examples import Refused, check, is_file, not_image
from keras_tfm.serving.image_readers import from_0_to_1, portion_of
from keras_tfm.serving.reading import Read, Reader, refused_or


class DecodedImages(Reader):
    """Files of any size, given by paths or bytes, as 8-bit pixels (H, W, C) of a `shape`; arrays of any size
    and this number of channels as they are, until they are joined.
    """

    def __init__(self, shape: tuple[int, int, int], preprocessing: Preprocessing):
        self.shape, self.preprocessing = shape, preprocessing
        self.portion = portion_of(shape)

    def read(self, examples: Sequence[Any]) -> list:
        places = [place for place, example in enumerate(examples) if is_file(example)]
        sources = [examples[place] for place in places]
        images, problems = ImageFiles(sources, self.shape, self.preprocessing).read()
        files = {
            place: Refused(problems[row]) if row in problems else Read([images[row]])
            for row, place in enumerate(places)
        }
        return [files.get(place) or refused_or(self.read_one, x) for place, x in enumerate(examples)]

    def row(self, example: Any) -> np.ndarray:
        check(example, not_image)
        image = np.asarray(example)
        image = image[..., None] if image.ndim == 2 else image
        channels = self.shape[-1]
        if image.shape[-1] != channels or not image.size:
            expected = "(H, W) or (H, W, 1)" if channels == 1 else f"(H, W, {channels})"
            raise Refused(f"expected an image of the shape {expected}, got {np.shape(example)}")
        return image

    def join(self, rows: Sequence[np.ndarray], widths: Any = None) -> dict[str, np.ndarray]:
        alike = len({(row.shape, row.dtype) for row in rows}) == 1
        parts = [np.stack(rows)] if alike else [row[None] for row in rows]
        return {"images": np.concatenate([self._fitted(part) for part in parts])}

    def _fitted(self, images: np.ndarray) -> np.ndarray:
        """Images (B, H, W, C) as numbers from 0 to 1, of the model's size."""
        return from_0_to_1(self.preprocessing.fitted(tf.constant(images), *self.shape[:2]).numpy())


class Sized(NamedTuple):
    """An image that stands on the model's canvas already, or a file, and the image's own (height, width)."""

    image: Any
    size: Any


class ImagesOnCanvas(DecodedImages):
    """Images that are whole on the model's canvas, beside their own sizes; `Sized` ones among them."""

    def read(self, examples: Sequence[Any]) -> list:
        sized = [x if isinstance(x, Sized) else Sized(x, None) for x in examples]
        read = super().read([x.image for x in sized])
        return [
            found if isinstance(found, Refused) else Read([(found.rows[0], own_size(*x))])
            for found, x in zip(read, sized, strict=True)
        ]

    def join(self, rows: Sequence[Any], widths: Any = None) -> dict[str, np.ndarray]:
        images, sizes = zip(*rows, strict=True)
        return {**super().join(images, widths), "sizes": np.array(sizes, "int64")}


def own_size(image: Any, size: Any = None) -> Any:
    """The (height, width) of an image, an array or a file, unless its `size` is given; (1, 1) of a file that
    has none.
    """
    if size is not None:
        return size
    if not is_file(image):
        return np.shape(image)[:2]
    try:
        return size_in(image) or (1, 1)
    except OSError:
        return 1, 1


def listed_images(images: Any) -> Any:
    """A single file as a list, and `ImageFiles` as their sources; all else as it is."""
    if is_file(images):
        return [images]
    return images.sources if isinstance(images, ImageFiles) else images
