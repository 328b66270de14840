"""Batches of clips of videos with the masks of their objects, which are moved alike."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.clips import ClipBatches
from keras_tfm.data.sources.video_segments import VideoSegments, frames_of


class SegmentedClipBatches(ClipBatches):
    """Batches ({"videos": (B, T, H, W, C)}, targets (B, T, M, H, W)) of clips and the masks of their objects.

    A mask has 1 + the place of its object's class in `names` in the pixels of the object, 0 elsewhere; where
    a video has fewer than M objects, masks without pixels fill up. With a `seed` clips are drawn, shuffled
    and shifted as in `ClipBatches`, and half of them are mirrored if `flips`.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((3, 8, 8, 3), "uint8")] * 2, shape=(2, 8, 8, 3))
    >>> masks = [np.ones((1, 3, 8, 8), "bool")] * 2
    >>> examples = keras_tfm.data.VideoSegments.of(videos, masks, [["cat"], ["dog"]])
    >>> normalize = keras_tfm.data.Preprocessing().normalized
    >>> batches = keras_tfm.data.SegmentedClipBatches(examples, ["cat", "dog"], normalize, batch_size=2)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["videos"].shape, targets.shape, targets.numpy().max((1, 2, 3, 4)).tolist()
    (TensorShape([2, 2, 8, 8, 3]), TensorShape([2, 2, 1, 8, 8]), [1, 2])
    """

    def __init__(
        self,
        examples: VideoSegments,
        names: Sequence[str],
        prepare: Callable[[tf.Tensor], tf.Tensor],
        batch_size: int,
        seed: int | None = None,
        max_shift: int = 0,
        flips: bool = False,
    ) -> None:
        def as_they_are(clips: tf.Tensor) -> tf.Tensor:
            return clips  # with the masks as further channels, see `_clip`

        videos = examples.videos
        rows = np.zeros(len(videos), "int32")
        super().__init__(videos, rows, as_they_are, batch_size, seed, max_shift)
        self.prepare_clips, self.flips = prepare, flips
        self.segments, self.most = examples.segments, max(1, *examples.segments.counts)
        self.numbers = {name: number for number, name in enumerate(names, 1)}

    def _clip(self, row, key):
        """The clip of a video, and its masks as further channels, as an image (H, W, T (C + M))."""
        clip = self._as_clips(super()._clip(row, key)[None])[0]
        # Stateless for TensorFlow too: masks depend on the row and the places alone.
        masks = tf.numpy_function(self._masks, [row, self._places(row, key)], tf.uint8, stateful=False)
        masks = tf.ensure_shape(masks, (*self.shape[:3], self.most))
        return self._as_image(tf.concat([tf.reshape(clip, self.shape), masks], axis=-1))

    def _masks(self, row: np.int64, places: np.ndarray) -> np.ndarray:
        """The masks (T, H, W, M) of the objects of a video in the frames at these places, 8-bit."""
        length, height, width, _ = self.shape
        found = np.zeros((length, height, width, self.most), "uint8")
        ((tubes, labels),) = self.segments[row : row + 1]
        masks = frames_of(tubes, self.images.num_frames[row])[:, places]  # (m, T, own height, own width)
        for number, (label, mask) in enumerate(zip(labels, masks, strict=True)):
            pixels = tf.constant(mask[..., None].astype("uint8") * 255)
            is_inside = self.images.preprocessing.fitted(pixels, height, width).numpy()[..., 0] > 127
            found[..., number] = is_inside * self.numbers[label]
        return found

    def _batch(self, step, images, rows):
        inputs, _ = super()._batch(step, images, rows)
        clips = inputs[self.input_name]  # (B, T, H, W, C + M)
        if self.seed is not None and self.flips:
            key = tf.random.experimental.stateless_fold_in(step, self.seed)
            is_mirrored = tf.random.stateless_uniform((tf.shape(rows)[0], 1, 1, 1, 1), key + 1) < 0.5
            clips = tf.where(is_mirrored, tf.reverse(clips, [3]), clips)
        pixels, masks = clips[..., : -self.most], clips[..., -self.most :]
        return {self.input_name: self.prepare_clips(pixels)}, tf.transpose(masks, (0, 1, 4, 2, 3))
