"""Pairs of whole frames to learn to follow many objects from, with the objects of both.

A target (B, M, 10) has in each row one object: its class and box in the frame before, and the same in this
frame. The class is `NO_OBJECT` in a frame that does not show it, in both where the row fills up the array.
"""

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.canvas import WHOLE
from keras_tfm.data.batches.epochs import Batches, count_batches, rows_of_epoch
from keras_tfm.data.batches.targets import NO_OBJECT
from keras_tfm.data.batches.views import Views, are_inside, between_pixels, nearest_pixels
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.tracked_videos import TrackedVideos, frame_size

NOTHING = [NO_OBJECT, 0.0, 0.0, 0.0, 0.0]
NOBODY = -1  # an identity that fills up a row


class FramePairs(Batches):
    """Batches ({"previous_images", "images": (B, H, W, C), "pixel_mask": (B, H, W)}, targets (B, M, 10)).

    An epoch shows each frame but the first of each video once, beside one that comes 1 to `max_gap` frames
    before it. Without a `seed` that is the frame before, and the frames keep their order.

    Args:
        shape: the canvas's, (H, W, C).
        seed: shuffles and changes the pairs of each epoch, always in the same way; both frames alike.
        flips: whether half of the pairs are mirrored.
        areas: (least, most) of a crop's share of the frame, as `CanvasBatches` has it.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((5, 8, 8, 3), "uint8")] * 2, shape=(1, 8, 8, 3))
    >>> boxes = keras_tfm.data.checked_tracks(videos, [[[1, 7, 0, 0, 4, 4]]] * 2)
    >>> examples = keras_tfm.data.TrackedVideos(videos, boxes)
    >>> batches = keras_tfm.data.FramePairs(examples, keras_tfm.data.Canvas(), (8, 8, 3), batch_size=4)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["images"].shape, targets.shape, batches.num_batches
    (TensorShape([4, 8, 8, 3]), TensorShape([4, 2, 10]), 2)
    """

    def __init__(
        self,
        examples: TrackedVideos,
        canvas: Canvas,
        shape: tuple[int, int, int],
        batch_size: int,
        seed: int | None = None,
        max_gap: int = 1,
        flips: bool = False,
        areas: tuple[float, float] = WHOLE,
    ):
        self.videos, self.canvas, self.shape = examples.videos, canvas, shape
        self.seed, self.max_gap, self.flips, self.areas = seed, max_gap, flips, areas
        lengths = self.videos.num_frames
        firsts = np.cumsum([0, *lengths])
        sizes = np.array([frame_size(video) for video in self.videos.videos], "int64")
        frames = [(row, place) for row, length in enumerate(lengths) for place in range(1, length)]
        ids, boxes = _tables(examples, lengths, sizes)
        with tf.device("cpu"):
            self.frames = tf.constant(frames, tf.int64)  # (pairs, 2): the video, and the place of this frame
            self.firsts, self.sizes = tf.constant(firsts, tf.int64), tf.constant(sizes)
            self.ids, self.boxes = tf.constant(ids), tf.constant(boxes)
            self.pixels = tf.constant(self.videos.frames()) if self.videos.fits_memory else None
        self.batch_size = min(batch_size, len(frames))
        self.num_batches = count_batches(len(frames), self.batch_size, seed)

    def _epoch(self, number: tf.Tensor) -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(rows_of_epoch(len(self.frames), self.seed, number))
        pairs = rows.map(lambda row: self._pair(row, number), tf.data.AUTOTUNE, deterministic=True)
        batches = pairs.batch(self.batch_size, self.seed is not None).enumerate()
        return batches.map(lambda step, batch: self._batch(tf.stack([number, step]), *batch))

    def _pair(self, row: tf.Tensor, number: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Both frames (2, H, W, C), their objects (2, M, 5), matched row by row, and their own size (2,)."""
        video, place = tf.unstack(self.frames[row])
        before = place - 1
        if self.seed is not None and self.max_gap > 1:
            key = tf.random.experimental.stateless_fold_in(
                tf.stack([number, tf.constant(self.seed, tf.int64)]), row
            )
            most = tf.minimum(place, self.max_gap)
            before = place - tf.random.stateless_uniform([], key, 1, most + 1, tf.int64)
        places = tf.stack([before, place])
        numbers = self.firsts[video] + places
        if self.pixels is not None:
            pixels = tf.gather(self.pixels, numbers)
        else:  # stateless for TensorFlow too: a frame depends on its video and place alone
            pixels = tf.numpy_function(self.videos.clip, [video, places], tf.uint8, stateful=False)
            pixels = tf.ensure_shape(pixels, (2, *self.shape))
        return (
            pixels,
            matched(tf.gather(self.ids, numbers), tf.gather(self.boxes, numbers)),
            self.sizes[video],
        )

    def _batch(self, step: tf.Tensor, pixels: tf.Tensor, objects: tf.Tensor, sizes: tf.Tensor) -> tuple:
        size = self.shape[:2]
        pixel_mask, frames = self.canvas.pixel_mask(sizes, *size), [pixels[:, 0], pixels[:, 1]]
        targets = [objects[:, 0], objects[:, 1]]
        if self.seed is not None and (self.flips or self.areas != WHOLE):
            views, content = self._views(step, tf.shape(sizes)[0]), self.canvas.content(sizes, *size)
            places = views.places(content, content, size)
            pixel_mask &= are_inside(places, content)
            whole = self.areas == WHOLE
            frames = [nearest_pixels(x, places) if whole else between_pixels(x, places) / 255 for x in frames]
            targets = [views.of_boxes(x) for x in targets]
        before, now = (self.canvas.masked(x, pixel_mask) for x in frames)
        inputs = {"previous_images": before, "images": now, "pixel_mask": pixel_mask}
        return inputs, tf.concat(targets, axis=-1)

    def _views(self, step: tf.Tensor, count: tf.Tensor) -> Views:
        assert self.seed is not None
        key = tf.random.experimental.stateless_fold_in(step, self.seed)
        views = Views.drawn(count, self.areas, key)
        return views.mirrored(key + 1) if self.flips else views


def _tables(examples: TrackedVideos, lengths: list[int], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(The identities (F, M), the boxes (F, M, 4)) of the frames of all videos, one after another; boxes are
    centres and sides, as shares of the image's sides.
    """
    numbers, firsts = [], np.cumsum([0, *lengths])
    for first, boxes in zip(firsts, examples.boxes, strict=False):
        numbers.append(first + boxes.frames - 1)
    most = max(int(np.bincount(x - x.min()).max()) for x in numbers)
    ids = np.full((firsts[-1], most), NOBODY, "int64")
    shares = np.zeros((firsts[-1], most, 4), "float32")
    for row, (frames, boxes) in enumerate(zip(numbers, examples.boxes, strict=True)):
        order = np.argsort(frames, kind="stable")
        places = frames[order]
        slots = np.arange(len(places)) - np.searchsorted(places, places)  # the how manieth box of its frame
        corners = boxes.boxes[order] / np.tile(sizes[row, ::-1], 2)
        ids[places, slots] = boxes.ids[order]
        shares[places, slots] = np.concatenate(
            [(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1
        )
    return ids, shares


def matched(ids: tf.Tensor, boxes: tf.Tensor) -> tf.Tensor:
    """Objects (2, 2 M, 5) of two frames, each object in one row, by their identities (2, M) and boxes (2, M,
    4): first the identities of the first frame, then the new ones of the second.
    """
    are_there = ids != NOBODY
    objects = tf.concat([tf.where(are_there, 0.0, NO_OBJECT)[..., None], boxes], axis=-1)
    are_same = (ids[0, :, None] == ids[1]) & are_there[0, :, None] & are_there[1]  # (M, M)
    later = tf.gather(objects[1], tf.argmax(tf.cast(are_same, tf.int32), axis=1))
    later = tf.where(tf.reduce_any(are_same, axis=1)[:, None], later, tf.constant(NOTHING))
    new = tf.where(tf.reduce_any(are_same, axis=0)[:, None], tf.constant(NOTHING), objects[1])
    nothing = tf.broadcast_to(tf.constant(NOTHING), tf.shape(new))
    return tf.stack([tf.concat([objects[0], nothing], axis=0), tf.concat([later, new], axis=0)])
