"""Random changes of images for training, by Keras's layers; a batch's key determines all draws.

    light    a random crop, mirrored half of the time
    strong   that, two operations of RandAugment (Cubuk et al. 2020), a rectangle erased (Zhong et al. 2020)

MixUp (Zhang et al. 2018) and CutMix (Yun et al. 2019) mix the images of a batch, and their labels. Deviates
from RandAugment in that all images of a batch get the same two operations, with different strengths. Keras's
own layer does that too, but computes all of its eleven operations for each batch: 2.5 s for 16 images of
224 x 224.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_tfm.data.batches.views import Views

Changed = tuple[tf.Tensor, tf.Tensor]
KINDS = ("none", "light", "strong")
NUM_OPERATIONS = 2
ERASED = 0.25  # the share of images in which a rectangle is erased, as for DeiT


class KeySeeds(keras.random.SeedGenerator):
    """The seeds of one batch's draws, derived one after another from its `key`."""

    def __init__(self) -> None:
        super().__init__(0)
        self.begin(tf.zeros([2], tf.int64))

    def begin(self, key: tf.Tensor) -> None:
        """Start again, for the batch with this key, int64 (2,)."""
        self.key, self.count = key, 0

    def next(self, ordered: bool = True) -> tf.Tensor:
        self.count += 1
        return tf.random.experimental.stateless_fold_in(self.key, self.count)


class Augmentation:
    """Changes raw images at random: `augmentation(images, labels, key) -> (images, labels)`.

    Labels are (B,), or soft labels (B, classes), which `mixup`, `cutmix` and `label_smoothing` need.

    Args:
        kind: "none", "light" or "strong".
        flips: whether half of the images are mirrored.
        least_area: the smallest share of an image that a crop may have.
        mixup, cutmix: the parameters alpha of their Beta distributions, 0 for none. With both, each batch
            gets one of the two.
        label_smoothing: the share of the label that is spread over all classes.

    Raises:
        ValueError: for another `kind`.

    >>> augmentation = keras_tfm.data.Augmentation("light", label_smoothing=0.1)
    >>> images, labels = keras.ops.zeros((2, 8, 8, 3)), keras.ops.one_hot([0, 1], 2)
    >>> images, labels = augmentation(images, labels, key=np.array([1, 2]))
    >>> images.shape
    TensorShape([2, 8, 8, 3])
    >>> labels.numpy().round(2)
    array([[0.95, 0.05],
           [0.05, 0.95]], dtype=float32)
    """

    def __init__(
        self,
        kind: str = "none",
        flips: bool = True,
        least_area: float = 0.25,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        label_smoothing: float = 0.0,
    ):
        if kind not in KINDS:
            raise ValueError(f"`kind` must be {', '.join(KINDS[:-1])} or {KINDS[-1]}; it is {kind!r}.")
        self.kind, self.flips, self.least_area = kind, flips, least_area
        self.label_smoothing = label_smoothing
        self.seeds = KeySeeds()
        layers = keras.layers
        self.operations: list = []
        if kind == "strong":
            self.erase = drawing(self.seeds, layers.RandomErasing, (ERASED, ERASED), value_range=(0, 1))
            self.operations = [drawing(self.seeds, make, **options) for make, options in OPERATIONS]
        self.mixes = [drawing(self.seeds, layers.MixUp, mixup)] if mixup else []
        self.mixes += [drawing(self.seeds, layers.CutMix, (cutmix, cutmix))] if cutmix else []

    @property
    def is_soft(self) -> bool:
        """Whether the labels must be soft."""
        return bool(self.mixes) or self.label_smoothing > 0

    def __call__(self, images: tf.Tensor, labels: tf.Tensor, key: tf.Tensor) -> Changed:
        self.seeds.begin(key)
        if self.kind != "none" or self.mixes:
            images = as_floats(images)
        shape = images.shape
        if self.kind != "none":
            # Keras's RandomCrop crops all images of a batch at the same place.
            views = Views.drawn(tf.shape(images)[0], (self.least_area, 1.0), self.seeds.next())
            views = views.mirrored(self.seeds.next()) if self.flips else views
            images = views.cropped(images, images.shape[1:3])
        for _ in range(NUM_OPERATIONS if self.operations else 0):
            # Images of one channel have no colour to remove.
            layers = [x for x in self.operations if shape[-1] == 3 or not isinstance(x, OF_COLOURS)]
            images = self._one_of([functools.partial(layer, training=True) for layer in layers], images)
        if self.kind == "strong":
            images = self.erase(images)
        if self.mixes:
            images, labels = self._one_of(
                [functools.partial(_mixed, layer) for layer in self.mixes], images, labels
            )
        if self.label_smoothing:
            labels = labels * (1 - self.label_smoothing) + self.label_smoothing / labels.shape[-1]
        if images.dtype != tf.uint8:
            images = tf.clip_by_value(images, 0.0, 1.0)
        return tf.ensure_shape(images, shape), labels

    def _one_of(self, changes: Sequence[Callable], *tensors: tf.Tensor) -> Any:
        """Apply one of `changes`, which the next seed chooses; the others are not computed."""
        if len(changes) == 1:
            return changes[0](*tensors)
        choice = tf.random.stateless_uniform([], self.seeds.next(), 0, len(changes), tf.int32)
        return tf.switch_case(choice, [lambda change=change: change(*tensors) for change in changes])


def drawing(seeds: KeySeeds, make: Any, *arguments: Any, **options: Any) -> Any:
    """A Keras layer, made by `make`, that draws with `seeds`."""
    takes = "seed" in inspect.signature(make.__init__).parameters
    seed = {"seed": 0} if takes else {}  # without it the layer would draw a seed from Python's generator
    layer = make(*arguments, dtype="float32", **options, **seed)
    layer.generator = seeds
    return layer


def _mixed(layer: Any, images: tf.Tensor, labels: tf.Tensor) -> Changed:
    changed = layer({"images": images, "labels": labels}, training=True)
    return changed["images"], changed["labels"]


def as_floats(images: tf.Tensor) -> tf.Tensor:
    """Raw images as numbers from 0 to 1."""
    return tf.cast(images, tf.float32) / 255 if images.dtype == tf.uint8 else images


_LAYERS = keras.layers
OF_COLOURS = _LAYERS.RandomColorDegeneration
# The strengths equal RandAugment's at 9 of 10, Cubuk et al. 2020, for pixels from 0 to 1.
OPERATIONS: list[tuple[Any, dict[str, Any]]] = [
    (_LAYERS.RandomShear, {"x_factor": 0.3, "y_factor": 0.3}),
    (_LAYERS.RandomTranslation, {"height_factor": 0.3, "width_factor": 0.3}),
    (_LAYERS.RandomRotation, {"factor": 30 / 360}),
    (_LAYERS.RandomBrightness, {"factor": 0.4, "value_range": (0, 1)}),
    (_LAYERS.RandomContrast, {"factor": 0.4, "value_range": (0, 1)}),
    (_LAYERS.RandomColorDegeneration, {"factor": 0.8, "value_range": (0, 1)}),
    (_LAYERS.RandomSharpness, {"factor": 0.8, "value_range": (0, 1)}),
    (_LAYERS.RandomPosterization, {"factor": (4, 8), "value_range": (0, 1)}),
    (_LAYERS.Solarization, {"threshold_factor": (0.3, 1.0), "value_range": (0, 1)}),
    (_LAYERS.AutoContrast, {"value_range": (0, 1)}),
    (_LAYERS.Equalization, {"value_range": (0, 1)}),
]
