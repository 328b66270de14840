"""Pictures of clouds of points from three sides, with Pillow, which the extra `plot` brings.

front    x to the right, z upwards      side    y to the right, z upwards
above    x to the right, y upwards
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_tfm.serving.point_files import AXES, cloud_of
from keras_tfm.tasks.images.drawing import Pictures, new_pictures, pillow
from keras_tfm.training.folder import new_file

SIDE, MARGIN, DOT = 240, 24, 2  # pixels of a view, around it, and of half a point
VIEWS = {
    "front": (0, 2, 1),
    "side": (1, 2, 0),
    "above": (0, 1, 2),
}  # axes to the right, upwards, of the depth
NEAR, FAR = np.array([13, 42, 99]), np.array([160, 200, 240])  # colours


def draw_clouds(
    clouds: Sequence[Any], texts: Sequence[str], num_points: int, vertical: str, folder: Pictures
) -> None:
    """Write each of the clouds, from three sides and with its text, to a PNG in the `folder`: a file's by its
    name, others by their number. ImportError where Pillow is missing.
    """
    PIL = pillow()
    paths = new_pictures(clouds, folder)
    for cloud, text, path in zip(clouds, texts, paths, strict=True):
        picture = PIL.Image.new("RGB", (3 * SIDE, SIDE + MARGIN), "white")
        pen = PIL.ImageDraw.Draw(picture)
        points = np.roll(cloud_of(cloud, num_points), 2 - AXES.index(vertical), axis=1)  # upwards is last
        for place, (name, (right, up, depth)) in enumerate(VIEWS.items()):
            pen.text((place * SIDE + MARGIN // 2, SIDE), name, fill="gray")
            for (x, y), colour in zip(*_dots(points, right, up, depth), strict=True):
                x, y = x + place * SIDE, y
                pen.ellipse((x - DOT, y - DOT, x + DOT, y + DOT), fill=colour)
        pen.text((MARGIN // 2, MARGIN // 4), text, fill="black")
        with new_file(path) as work:
            picture.save(work, "PNG")


def _dots(points: np.ndarray, right: int, up: int, depth: int) -> tuple[list, list]:
    """Where each point is in a view, in pixels (N, 2), and its colour, the farthest first."""
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (SIDE - 2 * MARGIN) / max((high - low).max(), np.finfo(float).tiny)
    placed = (points - (low + high) / 2) * scale  # the same scale in all views
    farness = (points[:, depth] - low[depth]) / max(high[depth] - low[depth], np.finfo(float).tiny)
    farness = farness if depth == 1 else 1 - farness  # the front looks along y, the others against an axis
    order = np.argsort(-farness, kind="stable")
    places = np.stack([SIDE / 2 + placed[:, right], SIDE / 2 - placed[:, up]], axis=-1)
    colours = np.round(NEAR + farness[:, None] * (FAR - NEAR)).astype(int)
    return places[order].tolist(), [tuple(colour) for colour in colours[order].tolist()]
