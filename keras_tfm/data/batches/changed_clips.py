"""Batches of clips as inputs and targets, which a function makes of each."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.clips import ClipBatches
from keras_tfm.data.sources.videos import VideoFiles


class ChangedClipBatches(ClipBatches):
    """Batches (inputs, targets) that `change(videos, key)` makes of clips (B, T, H, W, C) from 0 to 1 and a
    key, integers (2,). With a `seed` clips are drawn anew in each epoch, mirrored if `flip`.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((5, 8, 8, 3), "uint8")] * 4, shape=(3, 8, 8, 3))
    >>> halves = lambda videos, key: ({"videos": videos[:, :2]}, videos[:, 2:])
    >>> batches = keras_tfm.data.batches.changed_clips.ChangedClipBatches(videos, halves, batch_size=2)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["videos"].shape, targets.shape
    (TensorShape([2, 2, 8, 8, 3]), TensorShape([2, 1, 8, 8, 3]))
    """

    def __init__(
        self,
        videos: VideoFiles,
        change: Callable[[tf.Tensor, tf.Tensor], tuple],
        batch_size: int,
        seed: int | None = None,
        flip: bool = False,
    ) -> None:
        def as_floats(clips: tf.Tensor) -> tf.Tensor:
            return tf.cast(clips, tf.float32) / (255.0 if clips.dtype == tf.uint8 else 1.0)

        rows = np.zeros(len(videos), "int32")
        augmentation = Augmentation("light", True, 1.0) if flip and seed is not None else None
        super().__init__(videos, rows, as_floats, batch_size, seed, augmentation=augmentation)
        self.change = change

    def _batch(self, step, images, rows):
        inputs, _ = super()._batch(step, images, rows)
        key = tf.random.experimental.stateless_fold_in(step, self.seed or 0)
        return self.change(inputs["videos"], tf.random.experimental.stateless_fold_in(key, 1))
