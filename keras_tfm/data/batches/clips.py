"""Batches of clips of videos, with labels."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.sources.image_files import MAX_BYTES
from keras_tfm.data.sources.videos import VideoFiles


class ClipBatches(ImageBatches):
    """Batches ({"videos": (B, T, H, W, C)}, labels (B,)) of clips of `VideoFiles`.

    They are shuffled and changed as `ImageBatches` are: the frames of a clip are the channels of one image
    meanwhile, so that all are cropped, mirrored and coloured alike. (What erases fills with noise, which
    differs between frames.) With a `seed` each epoch draws which of the clips of a video is shown; without
    one it is the middle one. All frames are held in memory if they fit; if not, each clip is decoded when it
    is needed, by this process.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((5, 8, 8, 3), "uint8")] * 4, shape=(2, 8, 8, 3))
    >>> normalize = keras_tfm.data.Preprocessing().normalized
    >>> batches = keras_tfm.data.ClipBatches(videos, [0, 1, 0, 1], normalize, batch_size=2, seed=0)
    >>> inputs, labels = next(iter(batches.dataset()))
    >>> inputs["videos"].shape
    TensorShape([2, 2, 8, 8, 3])
    """

    input_name = "videos"

    def __init__(
        self,
        videos: VideoFiles,
        labels: Sequence[int] | np.ndarray,
        prepare: Callable[[tf.Tensor], tf.Tensor],
        batch_size: int,
        seed: int | None = None,
        max_shift: int = 0,
        augmentation: Augmentation | None = None,
        num_classes: int | None = None,
    ) -> None:
        self.shape = videos.pixels

        def prepare_clips(images: tf.Tensor) -> tf.Tensor:
            return prepare(self._as_clips(images))

        super().__init__(
            videos, labels, prepare_clips, batch_size, seed, max_shift, augmentation, num_classes
        )
        counts = videos.num_frames
        with tf.device("cpu"):
            self.times = tf.constant(np.concatenate([video.times for video in videos.videos]))
            self.ends = tf.constant([video.end for video in videos.videos], tf.float64)
            self.firsts = tf.constant(np.cumsum([0, *counts]), tf.int64)
            self.frames = self.clips = None
            if seed is None:
                whole = len(videos) * int(np.prod(self.shape)) <= MAX_BYTES
                self.clips = tf.constant(np.asarray(videos)) if whole else None
            elif videos.fits_memory:
                self.frames = tf.constant(videos.frames())
        self.decodes_later = self.frames is None and self.clips is None

    def _examples(self, order, number):
        key = None if self.seed is None else tf.stack([number, tf.constant(self.seed, tf.int64)])
        return order.map(lambda row: self._clip(row, key), tf.data.AUTOTUNE, deterministic=True)

    def _clip(self, row, key):
        """The clip of a video in the epoch with this key, as an image (H, W, T C)."""
        if self.clips is not None:
            return self._as_image(self.clips[row])
        places = self._places(row, key)
        if self.frames is not None:
            return self._as_image(tf.gather(self.frames, self.firsts[row] + places))
        # Stateless for TensorFlow too: a video's clip depends on its row and places alone.
        clip = tf.numpy_function(self.images.clip, [row, places], tf.uint8, stateful=False)
        return self._as_image(tf.ensure_shape(clip, self.shape))

    def _places(self, row, key):
        """The places (T,) of the frames of that clip."""
        share = tf.constant(0.5, tf.float64)
        if key is not None:
            share = tf.random.stateless_uniform(
                [], tf.random.experimental.stateless_fold_in(key, row), dtype=tf.float64
            )
        return places_of(
            self.times[self.firsts[row] : self.firsts[row + 1]],
            self.ends[row],
            self.shape[0],
            self.images.sampling.frame_step,
            self.images.sampling.seconds_per_frame,
            share,
        )

    def _as_image(self, clip):
        length, height, width, channels = clip.shape
        image = tf.transpose(clip, (1, 2, 0, 3))
        return tf.reshape(image, (height, width, length * channels))  # (H, W, T C)

    def _as_clips(self, images):
        length, height, width = self.shape[:3]
        clips = tf.reshape(images, (-1, height, width, length, images.shape[-1] // length))
        return tf.transpose(clips, (0, 3, 1, 2, 4))  # (B, T, H, W, C)


def places_of(times, end, num_frames, every=None, seconds=None, share=0.5):
    """`serving.video_files.places_of` as a graph: int64 (num_frames,) for times (N,), float64."""
    count, steps = tf.size(times, tf.int64), tf.range(num_frames, dtype=tf.int64)
    if every is not None:
        starts = tf.maximum(tf.constant(0, tf.int64), count - 1 - (num_frames - 1) * every) + 1
        places = tf.cast(share * tf.cast(starts, tf.float64), tf.int64) + steps * every
    else:
        length, each = end - times[0], tf.cast(steps, tf.float64)
        if seconds is None:
            moments = times[0] + (each + share) * length / num_frames
        else:
            spare = tf.maximum(tf.constant(0.0, tf.float64), length - num_frames * seconds)
            moments = times[0] + share * spare + each * seconds
        places = tf.searchsorted(times, moments, "right", tf.int64) - 1
    places = tf.clip_by_value(places, 0, count - 1)
    return tf.where(count == num_frames, steps, places)
