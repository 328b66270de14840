"""Batches of images without labels: crops of several sizes, images with hidden patches, patches to be found.

Caron et al. 2021, "Emerging Properties in Self-Supervised Vision Transformers", He et al. 2022, "Masked
Autoencoders Are Scalable Vision Learners", and Dai et al. 2021, "UP-DETR: Unsupervised Pre-training for
Object Detection with Transformers". The crops deviate from Caron et al. in that each is blurred with the same
probability, one half, its colours always change a little, and none is solarised.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.augmentation import KeySeeds, as_floats, drawing
from keras_tfm.data.batches.clips import ClipBatches
from keras_tfm.data.batches.images import ImageBatches
from keras_tfm.data.batches.views import Views

_LAYERS = keras.layers
GREY: list[tuple[Any, dict[str, Any]]] = [
    (_LAYERS.RandomBrightness, {"factor": 0.4, "value_range": (0, 1)}),
    (_LAYERS.RandomContrast, {"factor": 0.4, "value_range": (0, 1)}),
    (_LAYERS.RandomGaussianBlur, {"factor": 1.0, "kernel_size": 3, "value_range": (0, 1)}),
]
COLOURS: list[tuple[Any, dict[str, Any]]] = [
    (_LAYERS.RandomSaturation, {"factor": (0.4, 0.6), "value_range": (0, 1)}),
    (_LAYERS.RandomHue, {"factor": 0.1, "value_range": (0, 1)}),
    (_LAYERS.RandomGrayscale, {"factor": 0.2}),
]


class Crops(NamedTuple):
    """`number` crops of each image, of the `size` (height, width); their shares of it are in `areas`.

    >>> crops = keras_tfm.data.Crops(number=8, size=(96, 96), areas=(0.05, 0.4))
    >>> crops.number, crops.size
    (8, (96, 96))
    """

    number: int
    size: tuple[int, int]
    areas: tuple[float, float]


class CropBatches(ImageBatches):
    """Batches ({name: (B, number, height, width, C)},) of crops of raw images.

    `kinds` is {name: Crops}. `flips` mirrors half of the crops; `normalize` turns raw crops into a model's
    input. With a `seed` each epoch is shuffled, as by `ImageBatches`; without it the images keep their order,
    and the crops are drawn by a fixed seed.

    >>> kinds = {"large": keras_tfm.data.Crops(number=2, size=(8, 8), areas=(0.4, 1.0))}
    >>> images, normalize = np.zeros((6, 16, 16, 3), "uint8"), keras_tfm.data.Preprocessing().normalized
    >>> (crops,) = next(iter(keras_tfm.data.CropBatches(images, kinds, normalize, batch_size=3).dataset()))
    >>> crops["large"].shape
    TensorShape([3, 2, 8, 8, 3])
    """

    def __init__(
        self,
        images: Any,
        kinds: dict[str, Crops],
        normalize: Callable,
        batch_size: int,
        seed: int | None = None,
        flips: bool = True,
    ):
        super().__init__(images, np.zeros(len(images), "int32"), normalize, batch_size, seed)
        self.kinds = kinds
        self.flips = flips
        self.seeds = KeySeeds()
        layers = GREY + (COLOURS if images.shape[-1] == 3 else [])
        self.layers = [drawing(self.seeds, make, **options) for make, options in layers]

    def _batch(self, step, images, rows):
        self.seeds.begin(tf.random.experimental.stateless_fold_in(step, self.seed or 0))
        images = as_floats(images)
        return ({name: self._crops(images, kind) for name, kind in self.kinds.items()},)

    def _crops(self, images, kind):
        """(B, H, W, C) -> (B, number, height, width, C)."""
        views = Views.drawn(tf.shape(images)[0] * kind.number, kind.areas, self.seeds.next())
        return self._shown(images, views.mirrored(self.seeds.next()) if self.flips else views, kind)

    def _shown(self, images, views, kind):
        """The views, `number` of each image, in other colours, as a model's input."""
        x = views.cropped(images, kind.size, tf.repeat(tf.range(tf.shape(images)[0]), kind.number))
        for layer in self.layers:
            x = layer(x, training=True)
        x = self.prepare(tf.clip_by_value(x, 0.0, 1.0))
        return tf.reshape(x, (-1, kind.number, *kind.size, x.shape[-1]))


class PatchBatches(CropBatches):
    """Batches ({"images": (B, H, W, C), "patches": (B, P, h, w, C)}, targets (B, P, 5)) of raw images.

    Patches of any place and sides, of `least` of the image's to all but `least`, are resized to `size` (h, w)
    and change their colours; a target is (0, x, y, width, height), the patch's centre and sides as shares of
    the image's. Nothing is mirrored, as in Dai et al. 2021. `fit` gives raw images the model's size, where
    they may have another. The other arguments are as in `CropBatches`.

    >>> images, normalize = np.zeros((6, 16, 16, 3), "uint8"), keras_tfm.data.Preprocessing().normalized
    >>> batches = keras_tfm.data.PatchBatches(images, 4, (8, 8), normalize, batch_size=3)
    >>> inputs, targets = next(iter(batches.dataset()))
    >>> inputs["patches"].shape, targets.shape
    (TensorShape([3, 4, 8, 8, 3]), TensorShape([3, 4, 5]))
    """

    def __init__(
        self,
        images: Any,
        num_patches: int,
        size: tuple[int, int],
        normalize: Callable,
        batch_size: int,
        seed: int | None = None,
        least: float = 0.05,
        fit: Callable | None = None,
    ):
        kinds = {"patches": Crops(num_patches, size, (0.0, 1.0))}
        super().__init__(images, kinds, normalize, batch_size, seed, flips=False)
        self.least, self.fit = least, fit

    def _batch(self, step, images, rows):
        self.seeds.begin(tf.random.experimental.stateless_fold_in(step, self.seed or 0))
        images, kind = images if self.fit is None else self.fit(images), self.kinds["patches"]
        images = as_floats(images)
        count = tf.shape(images)[0] * kind.number
        draws = tf.random.stateless_uniform((2, count, 2), self.seeds.next())
        sides = self.least + (1 - 2 * self.least) * draws[0]  # (B P, 2): x, y
        start = (1 - sides) * draws[1]
        views = Views.whole(count)._replace(start=start[:, ::-1], sides=sides[:, ::-1])
        targets = tf.concat([tf.zeros((count, 1)), start + sides / 2, sides], axis=-1)
        inputs = {"images": self.prepare(images), "patches": self._shown(images, views, kind)}
        return inputs, tf.reshape(targets, (-1, kind.number, 5))


class WithHidden(ImageBatches):
    """Batches of what a subclass shows, of which parts are hidden by `hide`. Abstract."""

    def __init__(
        self,
        shown: Any,
        prepare: Callable,
        batch_size: int,
        hide: Callable,
        num_patches: int,
        **options: Any,
    ):
        super().__init__(shown, np.zeros(len(shown), "int32"), prepare, batch_size, **options)
        self.hide = hide
        self.num_patches = num_patches

    def _batch(self, step, images, rows):
        inputs, _ = super()._batch(step, images, rows)
        key = tf.random.experimental.stateless_fold_in(step, self.seed or 0)
        key = tf.random.experimental.stateless_fold_in(key, 1)  # the augmentation has used the first key
        noise = tf.random.stateless_uniform((tf.shape(rows)[0], self.num_patches), key)
        return self.hide(inputs[self.input_name], noise)


class MaskedBatches(WithHidden):
    """Batches of raw images of which a model learns to reconstruct hidden patches.

    `hide(images, noise)` returns inputs, targets and weights for a model's input and `noise`
    (B, `num_patches`), which is uniform in [0, 1). The other `options` go to `ImageBatches`.

    >>> def hide(images, noise):  # hide the patches with much noise
    ...     return {"images": images, "is_hidden": noise > 0.25}, images, noise > 0.25
    >>> images, normalize = np.zeros((4, 8, 8, 3), "uint8"), keras_tfm.data.Preprocessing().normalized
    >>> batches = keras_tfm.data.MaskedBatches(images, normalize, 2, hide, num_patches=16)
    >>> inputs, targets, weights = next(iter(batches.dataset()))
    >>> inputs["is_hidden"].shape
    TensorShape([2, 16])
    """


class MaskedClipBatches(WithHidden, ClipBatches):
    """`MaskedBatches` of clips of `VideoFiles`, drawn as in `ClipBatches`; `num_patches` are the places that
    `hide(videos, noise)` hides some of.
    """
