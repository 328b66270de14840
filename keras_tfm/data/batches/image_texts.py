"""Batches of images or clips with their texts, for contrastive training and for captions."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.clips import ClipBatches
from keras_tfm.data.batches.images import ImageBatches


class WithTexts(ImageBatches):
    """Batches of what a subclass shows, with the inputs of the texts {input: (N, T)} added. Abstract."""

    def __init__(
        self,
        shown: Any,
        texts: Mapping[str, tf.Tensor],
        prepare: Callable[[tf.Tensor], tf.Tensor],
        batch_size: int,
        seed: int | None = None,
        max_shift: int = 0,
    ):
        super().__init__(shown, np.zeros(len(shown), "float32"), prepare, batch_size, seed, max_shift)
        with tf.device("cpu"):
            self.texts = {name: tf.identity(x) for name, x in texts.items()}

    def _batch(self, step, images, rows):
        inputs, targets = super()._batch(step, images, rows)
        return inputs | {name: tf.gather(x, rows) for name, x in self.texts.items()}, targets


class ImageTextBatches(WithTexts):
    """Batches ({"images": (B, H, W, C), ...}, zeros (B,)) of raw images and the inputs of their texts.

    `images` are an array or `ImageFiles`, `texts` {input: (N, T)}. The image and the text of a row belong
    together, so no targets are needed. Order and shifts are as in `ImageBatches`.

    >>> images, texts = np.zeros((4, 8, 8, 3), "uint8"), {"token_ids": np.arange(12).reshape(4, 3)}
    >>> normalize = keras_tfm.data.Preprocessing().normalized
    >>> batches = keras_tfm.data.ImageTextBatches(images, texts, normalize, batch_size=2)
    >>> inputs, _ = next(iter(batches.dataset()))
    >>> inputs["images"].shape, inputs["token_ids"].numpy().tolist()
    (TensorShape([2, 8, 8, 3]), [[0, 1, 2], [3, 4, 5]])
    """


class VideoTextBatches(WithTexts, ClipBatches):
    """`ImageTextBatches` of clips of `VideoFiles`, "videos" (B, T, H, W, C), drawn as in `ClipBatches`.

    >>> videos = keras_tfm.data.VideoFiles([np.zeros((5, 8, 8, 3), "uint8")] * 4, shape=(2, 8, 8, 3))
    >>> texts = {"token_ids": np.arange(12).reshape(4, 3)}
    >>> normalize = keras_tfm.data.Preprocessing().normalized
    >>> batches = keras_tfm.data.VideoTextBatches(videos, texts, normalize, batch_size=2)
    >>> next(iter(batches.dataset()))[0]["videos"].shape
    TensorShape([2, 2, 8, 8, 3])
    """


class WithCaptions(WithTexts):
    """Batches of what a subclass shows and of captions, ragged ids (N, None). Abstract."""

    def __init__(
        self,
        shown: Any,
        texts: tf.RaggedTensor,
        prepare: Callable[[tf.Tensor], tf.Tensor],
        batch_size: int,
        **order: Any,
    ):
        padded = {"token_ids": texts.to_tensor(), "lengths": texts.row_lengths()}
        super().__init__(shown, padded, prepare, batch_size, **order)

    def _batch(self, step, images, rows):
        inputs, _ = super()._batch(step, images, rows)
        token_ids, lengths = inputs.pop("token_ids"), inputs.pop("lengths")
        mask = tf.sequence_mask(lengths - 1, tf.shape(token_ids)[1] - 1)  # (B, T)
        mask.set_shape((None, token_ids.shape[1] - 1))
        inputs["decoder_token_ids"] = token_ids[:, :-1] * tf.cast(mask, token_ids.dtype)
        inputs["decoder_padding_mask"] = mask
        return inputs, token_ids[:, 1:], tf.cast(mask, tf.float32)


class CaptionBatches(WithCaptions):
    """Training batches `(inputs, labels, weights)` of images and captions for an encoder-decoder.

        inputs["images"]                                        (B, H, W, C)
        inputs["decoder_token_ids"], ["decoder_padding_mask"]   (B, T)  a caption without its last id
        labels                                                  (B, T)  a caption without its first id
        weights                                                 (B, T)  1.0 for a label, 0.0 for padding

    `texts` are ragged ids (N, None). T is the length of the longest caption, so that all batches have one
    shape and are compiled once.
    """


class VideoCaptionBatches(WithCaptions, ClipBatches):
    """`CaptionBatches` of clips of `VideoFiles`: "videos" (B, T, H, W, C), drawn as in `ClipBatches`."""
