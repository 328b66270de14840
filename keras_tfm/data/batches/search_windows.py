"""Pairs of windows to learn to follow one object from: a template of it, and a part of another frame.

    frame s --- the object, and half its mean side around it --------------> template
    frame t --- about twice as wide, moved and scaled at random -----------> search, and the object's box

Positions are in pixels, and the left upper corner of the image is (0, 0). Chen et al. 2021, "Transformer
Tracking", sections 3.4 and 4.1.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches, count_batches, rows_of_epoch
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.tracked_videos import TrackedVideos, pixels_of

TEMPLATE, SEARCH = 0.5, 1.5  # the margin of each window, in sums of the object's sides


def side_of(sizes: tf.Tensor, margin: float) -> tf.Tensor:
    """The sides (...) of windows around objects of these `sizes` (..., 2)."""
    around = margin * tf.reduce_sum(sizes, axis=-1, keepdims=True)
    return tf.math.ceil(tf.sqrt(tf.reduce_prod(sizes + around, axis=-1)))


def window(image: tf.Tensor, centre: tf.Tensor, side: tf.Tensor, size: tuple[int, int]) -> tf.Tensor:
    """The square of an `image` (H, W, C), float32, around a `centre` (x, y), resized to `size`: (*size, C).

    Outside the image are the means of its channels.
    """
    fill = tf.reduce_mean(image, axis=(0, 1))
    edges = tf.cast(tf.shape(image)[:2], tf.float32)
    steps = side / tf.constant(size, tf.float32)
    first = centre[::-1] - side / 2 + steps / 2 - 0.5  # the middles of the first and last pixels, (y, x)
    last = first + steps * (tf.constant(size, tf.float32) - 1)
    # `crop_and_resize` takes shares of the distance between the outermost middles, and shows nothing beyond:
    # around the image are pixels that it may show a part of.
    ends = (tf.concat([first, last], axis=0) + 1) / tf.tile(edges + 1, [2])
    padded = tf.pad((image - fill)[None], ((0, 0), (1, 1), (1, 1), (0, 0)))
    return tf.image.crop_and_resize(padded, ends[None], [0], size)[0] + fill


def in_window(box: tf.Tensor, centre: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
    """A `box` (left, top, right, bottom) as (x, y, width, height) around its centre in parts of a window's
    sides.
    """
    corners = (box - tf.tile(centre, [2])) / side + 0.5
    return tf.concat([(corners[:2] + corners[2:]) / 2, corners[2:] - corners[:2]], axis=0)


class TargetPairs(Batches):
    """Batches ({"template_images": (B, h, w, C), "images": (B, H, W, C)}, boxes (B, 4)).

    Each epoch shows each object of each video once, in two drawn frames that are at most `max_gap` apart. The
    box is (x, y, width, height) around its centre in parts of the search window, which is `moved` by up to
    that share of its side and scaled by up to the factor 1 + `scaled` or its inverse. Without a `seed` the
    frames are the object's first and middle one, and the window is in the middle of the object.

    Args:
        template_shape, shape: (height, width, channels) of both windows.
        flips: whether half of the pairs are mirrored, both windows alike.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((5, 8, 8, 3), "uint8")] * 2, shape=(1, 8, 8, 3))
    >>> boxes = keras_tfm.data.checked_tracks(videos, [[[1, 7, 2, 2, 4, 4]]] * 2)
    >>> examples, normal = keras_tfm.data.TrackedVideos(videos, boxes), keras_tfm.data.Preprocessing()
    >>> batches = keras_tfm.data.TargetPairs(examples, normal, (4, 4, 3), (8, 8, 3), batch_size=2)
    >>> inputs, boxes = next(iter(batches.dataset()))
    >>> inputs["template_images"].shape, inputs["images"].shape, boxes[0].numpy().round(2).tolist()
    (TensorShape([2, 4, 4, 3]), TensorShape([2, 8, 8, 3]), [0.5, 0.5, 0.25, 0.25])
    """

    def __init__(
        self,
        examples: TrackedVideos,
        preprocessing: Preprocessing,
        template_shape: tuple[int, int, int],
        shape: tuple[int, int, int],
        batch_size: int,
        seed: int | None = None,
        max_gap: int = 100,
        moved: float = 0.25,
        scaled: float = 0.25,
        flips: bool = False,
    ):
        self.examples, self.preprocessing = examples, preprocessing
        self.template_shape, self.shape = template_shape, shape
        self.seed, self.max_gap, self.flips = seed, max_gap, flips
        self.moved, self.scaled = moved, scaled
        # For each object: the video, and its frames with their boxes.
        self.objects = [
            (row, boxes.frames[places], boxes.boxes[places])
            for row, boxes in enumerate(examples.boxes)
            for places in (np.flatnonzero(boxes.ids == identity) for identity in np.unique(boxes.ids))
        ]
        self.batch_size = min(batch_size, len(self.objects))
        self.num_batches = count_batches(len(self.objects), self.batch_size, seed)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(rows_of_epoch(len(self.objects), self.seed, number))
        pairs = rows.map(lambda row: self._pair(row, number), tf.data.AUTOTUNE, deterministic=True)
        return pairs.batch(self.batch_size, self.seed is not None).map(self._named)

    def _pair(self, row: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        # Stateless for TensorFlow too: the frames depend on the row and the epoch alone.
        kinds = [tf.float32] * 4
        first, template_box, image, box = tf.numpy_function(
            self._frames, [row, number], kinds, stateful=False
        )
        channels = self.shape[-1]
        first.set_shape((None, None, channels))
        image.set_shape((None, None, channels))
        template_box.set_shape(4)
        box.set_shape(4)
        draws = tf.constant([0.5, 0.5, 0.5, 1.0])
        if self.seed is not None:
            key = tf.random.experimental.stateless_fold_in(
                tf.stack([number, tf.constant(self.seed, tf.int64)]), row
            )
            draws = tf.random.stateless_uniform([4], key)
        centre, size = (template_box[:2] + template_box[2:]) / 2, template_box[2:] - template_box[:2]
        template = window(first, centre, side_of(size, TEMPLATE), self.template_shape[:2])
        side = side_of(box[2:] - box[:2], SEARCH) * (1 + self.scaled) ** (2 * draws[2] - 1)
        centre = (box[:2] + box[2:]) / 2 + side * self.moved * (2 * draws[:2] - 1)
        search, target = window(image, centre, side, self.shape[:2]), in_window(box, centre, side)
        if self.flips:
            is_mirrored = draws[3] < 0.5
            template, search = (tf.where(is_mirrored, x[:, ::-1], x) for x in (template, search))
            target = tf.where(is_mirrored, tf.concat([1 - target[:1], target[1:]], axis=0), target)
        return template, search, target

    def _frames(self, row: np.int64, number: np.int64) -> tuple[np.ndarray, ...]:
        """Two frames of an object, from 0 to 1, each with its box."""
        video, frames, boxes = self.objects[row]
        first, second = 0, len(frames) // 2
        if self.seed is not None:
            rng = np.random.default_rng([self.seed, int(number), int(row)])
            first = int(rng.integers(len(frames)))
            near = np.flatnonzero(abs(frames - frames[first]) <= self.max_gap)
            second = int(rng.choice(near))
        images = {}
        for place in sorted({first, second}):
            (frame,) = self.examples.videos.videos[video].frames([frames[place] - 1])
            images[place] = (pixels_of(frame, self.shape[-1]) / 255).astype("float32")
        of_first, of_second = boxes[[first, second]].astype("float32")
        return images[first], of_first, images[second], of_second

    def _named(self, templates: Any, images: Any, boxes: Any) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        named = {"template_images": templates, "images": images}
        return {name: self.preprocessing.normalized(x) for name, x in named.items()}, boxes
