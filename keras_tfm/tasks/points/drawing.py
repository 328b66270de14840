"""Pictures of clouds of points and of poses from three sides, with Pillow, which the extra `plot` brings.

front    x to the right, z upwards      side    y to the right, z upwards
above    x to the right, y upwards

For another axis upwards they are turned first.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from keras_tfm.serving.point_files import cloud_of, sampled
from keras_tfm.tasks.images.drawing import COLOURS, Pictures, new_pictures, pillow
from keras_tfm.training.folder import new_file

SIDE, MARGIN, DOT = 240, 24, 2  # pixels of a view, around it, and of half a point
VIEWS = {
    "front": (0, 2, 1),
    "side": (1, 2, 0),
    "above": (0, 1, 2),
}  # axes to the right, upwards, of the depth
NEAR, FAR = np.array([13, 42, 99]), np.array([160, 200, 240])  # colours
CLOUD = (215, 215, 215)  # of the points beside a pose

Upwards = Literal["x", "y", "z", "-x", "-y", "-z"]
# {axis that points upwards: the axis, and its sign, that becomes x, y and z}: rotations
TURNS: dict[Upwards, tuple] = {
    "z": ((0, 1), (1, 1), (2, 1)),
    "-z": ((0, 1), (1, -1), (2, -1)),
    "y": ((0, 1), (2, -1), (1, 1)),
    "-y": ((0, 1), (2, 1), (1, -1)),
    "x": ((1, 1), (2, 1), (0, 1)),
    "-x": ((1, 1), (2, -1), (0, -1)),
}


def draw_clouds(
    clouds: Sequence[Any], texts: Sequence[str], num_points: int, vertical: Upwards, folder: Pictures
) -> None:
    """Write each of the clouds, from three sides and with its text, to a PNG in the `folder`: a file's by its
    name, others by their number. ImportError where Pillow is missing.
    """
    for (cloud, pen), text in zip(_pictures(clouds, folder), texts, strict=True):
        points = upright(cloud_of(cloud, num_points), vertical)
        span = _span(points)
        for left, (right, up, depth) in _views(pen):
            farness = _farness(points, depth, span)
            colours = np.round(NEAR + farness[:, None] * (FAR - NEAR)).astype(int)
            order = np.argsort(-farness, kind="stable")  # the farthest first
            _dots(pen, _placed(points, right, up, span)[order], left, map(tuple, colours[order].tolist()))
        pen.text((MARGIN // 2, MARGIN // 4), text, fill="black")


def draw_poses(
    poses: np.ndarray,
    edges: Sequence[Sequence[int]],
    sources: Sequence[Any],
    num_points: int | None,
    vertical: Upwards,
    folder: Pictures,
) -> None:
    """As `draw_clouds`, of the joints of `poses` (N, J, 3) and the bones, `edges`, between them. With
    `num_points` the `sources` are clouds, which are drawn behind them.
    """
    chains = _chains(edges)
    for (source, pen), pose in zip(_pictures(sources, folder), poses, strict=True):
        joints, cloud = upright(pose, vertical), np.empty((0, 3))
        if num_points is not None:
            cloud = upright(sampled(cloud_of(source, num_points), num_points), vertical)
        span = _span(np.concatenate([joints, cloud]))
        for left, (right, up, _) in _views(pen):
            _dots(pen, _placed(cloud, right, up, span), left, [CLOUD] * len(cloud))
            places = _placed(joints, right, up, span) + np.array([left, 0])
            for (first, second), chain in zip(edges, chains, strict=True):
                ends = [tuple(places[joint]) for joint in (first, second)]
                pen.line(ends, fill=COLOURS[chain % len(COLOURS)], width=2 * DOT)
            _dots(pen, places, 0, [tuple(NEAR)] * len(places))


def upright(points: np.ndarray, vertical: Upwards) -> np.ndarray:
    """Points (N, 3), turned so that the axis `vertical` becomes z."""
    return np.stack([sign * points[:, axis] for axis, sign in TURNS[vertical]], axis=-1)


def _pictures(sources: Sequence[Any], folder: Pictures) -> Iterator[tuple[Any, Any]]:
    """(The source, what draws on its picture) for each; a picture is written when the next one is asked
    for.
    """
    PIL = pillow()
    for source, path in zip(sources, new_pictures(sources, folder), strict=True):
        picture = PIL.Image.new("RGB", (3 * SIDE, SIDE + MARGIN), "white")
        yield source, PIL.ImageDraw.Draw(picture)
        with new_file(path) as work:
            picture.save(work, "PNG")


def _views(pen: Any) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """The left edge of each view, whose name is written there, and its axes."""
    for place, (name, axes) in enumerate(VIEWS.items()):
        pen.text((place * SIDE + MARGIN // 2, SIDE), name, fill="gray")
        yield place * SIDE, axes


def _span(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """The lowest and the highest coordinates (3,), and how many pixels a unit is: the same in all views."""
    low, high = points.min(axis=0), points.max(axis=0)
    return low, high, (SIDE - 2 * MARGIN) / max((high - low).max(), np.finfo(float).tiny)


def _placed(points: np.ndarray, right: int, up: int, span: tuple) -> np.ndarray:
    """Where each point is in a view, in pixels (N, 2)."""
    low, high, scale = span
    placed = (points - (low + high) / 2) * scale
    return np.stack([SIDE / 2 + placed[:, right], SIDE / 2 - placed[:, up]], axis=-1)


def _farness(points: np.ndarray, depth: int, span: tuple) -> np.ndarray:
    """How far each point is from the eye, from 0 to 1: (N,)."""
    low, high, _ = span
    farness = (points[:, depth] - low[depth]) / max(high[depth] - low[depth], np.finfo(float).tiny)
    return farness if depth == 1 else 1 - farness  # the front looks along y, the others against an axis


def _dots(pen: Any, places: np.ndarray, left: int, colours: Any) -> None:
    for (x, y), colour in zip(places.tolist(), colours, strict=True):
        pen.ellipse((x + left - DOT, y - DOT, x + left + DOT, y + DOT), fill=colour)


def _chains(edges: Sequence[Sequence[int]]) -> list[int]:
    """The number of the chain that each bone belongs to, for its colour: a joint with several bones, or the
    first of none, begins a chain with each.
    """
    numbers: dict[int, int] = {}  # of the chain that ends in a joint
    starts = [first for first, _ in edges]
    chains: list[int] = []
    for first, second in edges:
        goes_on = first in numbers and starts.count(first) == 1
        number = numbers[first] if goes_on else len(set(chains))
        numbers[second] = number
        chains.append(number)
    return chains
