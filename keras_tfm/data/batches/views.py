"""What part of an image is shown, and which way round: the geometry of pixels for all batches of images.

Pixels: the centre of pixel i is at i, so an image of N pixels spans -1/2 to N - 1/2. Shares: an edge of the
image is 0, the opposite one 1; pixel i lies at (i + 1/2) / N. Pairs are (y, x), as the axes of arrays; boxes
are (left, top, right, bottom), and targets (class, x, y, width, height, ...), in shares of the image without
the padding of its canvas.
"""

import math
from typing import NamedTuple, Self

import tensorflow as tf

from keras_tfm.data.batches.targets import IGNORED, NO_OBJECT

ASPECTS = (3 / 4, 4 / 3)  # the least and largest width of a crop, divided by its height
_EDGES = ((0, 0), (1, 1), (1, 1), (0, 0))
Places = tuple[tf.Tensor, tf.Tensor]  # rows (n, height) and columns (n, width) of an image, in pixels


class Views(NamedTuple):
    """Parts of n images: `start`, their first corners, and `sides`, (n, 2) shares; whether each `is_mirrored`
    from left to right, (n,).
    """

    start: tf.Tensor
    sides: tf.Tensor
    is_mirrored: tf.Tensor

    @classmethod
    def whole(cls, count: tf.Tensor) -> Self:
        """Views of all that there is."""
        return cls(tf.zeros((count, 2)), tf.ones((count, 2)), tf.zeros(count, tf.bool))

    @classmethod
    def drawn(
        cls, count: tf.Tensor, areas: tuple[float, float], key: tf.Tensor, by_ratio: bool = False
    ) -> Self:
        """Random crops, whose share of the area lies between the two `areas` (Szegedy et al. 2015, "Going
        Deeper with Convolutions", section 6). The share is uniform or, `by_ratio`, its logarithm is, as the
        aspect ratio's logarithm always is. A crop of more than 1 reaches beyond the image; where both are 1
        there is none. A side longer than the image is cut short; aspects are drawn so that no crop has less
        than the least area.
        """
        if areas == (1.0, 1.0):
            return cls.whole(count)
        draws = tf.random.stateless_uniform((4, count), key)

        def within(ends: tuple[float, float], row: int, by_ratio: bool) -> tf.Tensor:
            least, most = map(math.log, ends) if by_ratio else ends
            return least + (most - least) * draws[row]

        area = within(areas, 0, by_ratio)
        area = tf.exp(area) if by_ratio else area
        longest = max(1.0, areas[1] ** 0.5)
        # A crop of the aspect a or 1 / a whose longer side is cut short keeps longest * sqrt(area / a).
        widest = 2 * tf.math.log(longest / areas[0]) + tf.math.log(area)
        aspect = tf.exp(within(ASPECTS, 1, True) * tf.minimum(1.0, widest / math.log(ASPECTS[1])))
        sides = tf.sqrt(tf.stack([area / aspect, area * aspect], axis=1))
        sides = tf.minimum(sides, longest)
        return cls.whole(count)._replace(start=(1 - sides) * tf.transpose(draws[2:]), sides=sides)

    def mirrored(self, key: tf.Tensor) -> Self:
        """The same, half of them mirrored."""
        draws = tf.random.stateless_uniform(tf.shape(self.is_mirrored), key)
        return self._replace(is_mirrored=draws < 0.5)

    def places(self, content: tf.Tensor, shown: tf.Tensor, size: tuple[int, int]) -> Places:
        """Where in the images the centres of pixels of pictures of the `size` lie. The images have `content`
        (n, 2) pixels, the pictures `shown`, and what stands behind these is padding.
        """
        content, shown = tf.cast(content, tf.float32), tf.cast(shown, tf.float32)
        step = self.sides * content / shown
        first = self.start * content + step / 2 - 0.5
        rows, columns = (tf.range(side, dtype=tf.float32)[None] for side in size)
        columns = tf.where(self.is_mirrored[:, None], shown[..., 1:] - 1 - columns, columns)
        return first[:, :1] + step[:, :1] * rows, first[:, 1:] + step[:, 1:] * columns

    def cropped(self, images: tf.Tensor, size: tuple[int, int], owners: tf.Tensor | None = None) -> tf.Tensor:
        """The views (n, *size, C) of whole images (B, H, W, C), float32; view i is of the image `owners[i]`,
        by default of image i.
        """
        return between_pixels(images, self.places(images.shape[1:3], size, size), owners)

    def of_boxes(self, targets: tf.Tensor) -> tf.Tensor:
        """Targets (n, M, 5 or more) of objects in these views; a target whose centre is in none is no object,
        nor is one whose visible part is in none. A region to ignore is cut at the view's edges. Other
        numbers than a visible box behind the boxes stay as they are.
        """
        labels, boxes, others = targets[..., :1], targets[..., 1:5], targets[..., 5:]
        start, sides = self._start_and_sides()
        is_inside = (boxes[..., :2] >= start) & (boxes[..., :2] <= start + sides)
        stays = tf.reduce_all(is_inside, axis=-1, keepdims=True) & (labels >= 0)
        boxes = self._moved(boxes)
        if others.shape[-1] == 4:
            others = self._moved(others)
            stays &= _have_area(others)
            stays |= (labels == IGNORED) & _have_area(boxes)
        none = tf.constant([NO_OBJECT, 0.0, 0.0, 0.0, 0.0])
        objects = tf.where(stays, tf.concat([labels, boxes], axis=-1), none)
        return tf.concat([objects, others], axis=-1)

    def _start_and_sides(self) -> tuple[tf.Tensor, tf.Tensor]:
        """The views as (x, y), (n, 1, 2) both."""
        return self.start[:, None, ::-1], self.sides[:, None, ::-1]

    def _moved(self, boxes: tf.Tensor) -> tf.Tensor:
        """Boxes (n, M, 4), (x, y, width, height), in these views, clipped at their edges."""
        start, sides = self._start_and_sides()
        centre, half = boxes[..., :2], boxes[..., 2:] / 2
        least, most = (
            tf.clip_by_value((x - start) / sides, 0.0, 1.0) for x in (centre - half, centre + half)
        )
        x, y = tf.split((least + most) / 2, 2, axis=-1)
        x = tf.where(self.is_mirrored[:, None, None], 1 - x, x)
        return tf.concat([x, y, most - least], axis=-1)


def _have_area(boxes: tf.Tensor) -> tf.Tensor:
    """(n, M, 1), whether boxes (n, M, 4) have an area."""
    return tf.reduce_all(boxes[..., 2:] > 0, axis=-1, keepdims=True)


def are_inside(places: Places, content: tf.Tensor) -> tf.Tensor:
    """(n, height, width), whether places lie in images of `content` (n, 2) pixels."""
    rows, columns = (
        tf.abs(place - (side - 1) / 2) <= side / 2
        for place, side in zip(places, tf.split(tf.cast(content, tf.float32), 2, axis=1), strict=True)
    )
    return rows[:, :, None] & columns[:, None]


def between_pixels(images: tf.Tensor, places: Places, owners: tf.Tensor | None = None) -> tf.Tensor:
    """Images (B, H, W, C) at evenly spaced places, float32, each of the four pixels around it."""
    rows, columns = places
    ends = tf.stack([rows[:, 0], columns[:, 0], rows[:, -1], columns[:, -1]], axis=1)
    # `crop_and_resize` takes shares of the distance between the outermost centres, and shows nothing beyond.
    # The edges are repeated, as the half pixel beyond these centres belongs to the image too.
    most = tf.constant([side + 1.0 for side in images.shape[1:3]] * 2)
    owners = tf.range(tf.shape(images)[0]) if owners is None else owners
    padded = tf.pad(images, _EDGES, "SYMMETRIC")
    size = [rows.shape[1], columns.shape[1]]
    return tf.image.crop_and_resize(padded, (ends + 1) / most, owners, size)


def nearest_pixels(images: tf.Tensor, places: Places, axis: int = 1) -> tf.Tensor:
    """Images at places, each of the pixel that is nearest; their rows are the `axis`, their columns the next
    one.
    """
    for number, place in enumerate(places, axis):
        last = images.shape[number] - 1
        place = tf.clip_by_value(tf.cast(tf.floor(place + 0.5), tf.int32), 0, last)
        images = tf.gather(images, place, axis=number, batch_dims=1)
    return images
