"""What is where in images, as `CanvasBatches` and the losses of detectors and segmenters take it.

Objects are (class, x, y, width, height): the centre and the sizes of a box as shares of the image's sides.
The class `NO_OBJECT` fills up the row. Behind them may stand the box of what is visible of the object, (x, y,
width, height); then the class `IGNORED` stands for a region whose objects nobody has marked. Or relations,
(row of the subject, row of the object, predicate), `NO_OBJECT` for none.

Masks are 8-bit: one of the classes of all pixels, or a set with one for each segment. Losses and metrics
ignore pixels of the value `NONE`: there is no image, or the class is unknown. In a set a mask has 1 + the
number of its segment's class inside, and 0 outside; a mask without such pixels stands for no segment, and
fills up the set.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.image_files import MAX_BYTES
from keras_tfm.data.sources.mask_files import encoded_mask
from keras_tfm.data.sources.segments import SegmentSets
from keras_tfm.data.sources.stated_sizes import resized

NO_OBJECT = -1.0
IGNORED = -2.0
NONE = 255


def object_targets(
    boxes: Sequence[np.ndarray],
    classes: Sequence[Sequence[float]],
    visible: Sequence[np.ndarray] | None = None,
) -> np.ndarray:
    """Targets (N, M, 5) of boxes (left, top, right, bottom), (m, 4) as shares of the sides, and classes; or
    (N, M, 9), with the boxes of what is `visible`.

    M is the largest number of boxes in an image, at least 1.
    """
    most = max(1, *map(len, boxes)) if boxes else 1
    parts = [boxes] if visible is None else [boxes, visible]
    targets = np.zeros((len(boxes), most, 1 + 4 * len(parts)), "float32")
    targets[..., 0] = NO_OBJECT
    for target, numbers, *corners in zip(targets, classes, *parts, strict=True):
        count = len(numbers)
        target[:count, 0] = numbers
        for first, box in zip((1, 5), corners, strict=False):
            target[:count, first : first + 2] = (box[:, :2] + box[:, 2:]) / 2
            target[:count, first + 2 : first + 4] = box[:, 2:] - box[:, :2]
    return targets


def relation_targets(
    boxes: Sequence[np.ndarray],
    classes: Sequence[Sequence[int]],
    relations: Sequence[Sequence[tuple[int, int, int]]],
) -> np.ndarray:
    """Targets (N, M, 8): `object_targets` and, behind them, the image's relations (row of the subject,
    predicate, row of the object) as (row of the subject, row of the object, predicate), -1 for none.

    M is the largest number of boxes or of relations in an image, at least 1.
    """
    objects = object_targets(boxes, classes)
    most = max(objects.shape[1], *map(len, relations))
    targets = np.full((len(boxes), most, 8), NO_OBJECT, "float32")
    targets[:, : objects.shape[1], :5] = objects
    for target, each in zip(targets, relations, strict=True):
        target[: len(each), 5:] = np.array([(s, o, p) for s, p, o in each], "float32").reshape(-1, 3)
    return targets


def on_canvas(
    sets: Iterable[np.ndarray], count: int, most: int, canvas: Canvas, shape: tuple[int, int, int]
) -> np.ndarray | list[bytes]:
    """Masks of images' own sizes, `count` sets (m, H, W) of at most `most`, on a canvas of the `shape`:
    targets (count, most, H, W), each pixel from the nearest one. Where these would take more than
    `MAX_BYTES`, a PNG of each image, with its own m masks, at least 1.
    """
    height, width, _ = shape
    fits = count * most * height * width <= MAX_BYTES

    def placed(masks: np.ndarray) -> np.ndarray:
        rows, columns = canvas.content(tf.constant(masks.shape[1:], tf.int64), height, width).numpy().tolist()
        whole = np.full((max(len(masks), most if fits else 1), height, width), NONE, "uint8")
        whole[:, :rows, :columns] = 0
        whole[: len(masks), :rows, :columns] = resized(masks, (rows, columns))
        return whole

    if fits:
        return np.stack([placed(masks) for masks in sets])
    return [encoded_mask(placed(masks).reshape(-1, width)) for masks in sets]


def segment_targets(
    sets: SegmentSets, names: Sequence[str], canvas: Canvas, shape: tuple[int, int, int]
) -> np.ndarray | list[bytes]:
    """The segments of images `on_canvas`, by the places of their classes in `names`.

    >>> masks = np.array([[[True, False]], [[True, True]]])  # two segments of one row
    >>> sets = keras_tfm.data.SegmentSets.of([masks], [["cat", "dog"]])
    >>> canvas, names = keras_tfm.data.Canvas(), ["ground", "cat", "dog"]
    >>> keras_tfm.data.batches.targets.segment_targets(sets, names, canvas, (1, 2, 3)).tolist()
    [[[[2, 0]], [[3, 3]]]]
    """
    number = {name: place for place, name in enumerate(names, 1)}
    masks = (
        masks * np.array([number[name] for name in labels], "uint8")[:, None, None] for masks, labels in sets
    )
    return on_canvas(masks, len(sets), max(1, *sets.counts), canvas, shape)
