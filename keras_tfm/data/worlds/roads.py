"""Drawn roads with lines between their lanes: a world for lane finders, without a download.

A camera stands over a flat road. With the horizon at the height f, what lies at the height y is about
1 / (y - f) away, and the line that is a distance d to the right of the camera is seen at

    x = twist / (y - f)^2 + bend / (y - f) + turn + breadth d (y - f),

which is the curve of `heads.lane_positions`. Roads differ in all of these, in the number of their lines, in
light, ground, sky and noise, and in cars, which hide lines that go on behind them.
"""

import dataclasses
import os
import pathlib
from typing import Any

import numpy as np

from keras_tfm.data.sources.lanes import NOWHERE, Lanes, write_lanes

HEIGHT, WIDTH = 90, 160  # pixels
STEP = 5  # pixels between the heights at which lines are known
GAP = 0.06  # of the image's height, between the horizon and the farthest point of a line
HORIZONS = 0.27, 0.33  # the camera nods
WHITE, YELLOW = (235, 235, 230), (225, 180, 60)


def drawn_roads(count: int, seed: int = 0, empty: float = 0.0) -> Lanes:
    """Pictures (N, 90, 160, 3), 8-bit, of roads with 2 to 5 lines; a share `empty` of them without a road.
    Picture i depends on `seed` and i alone.

    >>> from keras_tfm.data.worlds import drawn_roads
    >>> data = drawn_roads(count=3)
    >>> data.images.shape, len(data.heights[0])
    ((3, 90, 160, 3), 12)
    """
    heights = np.arange(30, HEIGHT, STEP).astype("float32") / HEIGHT
    images, lanes = np.empty((count, HEIGHT, WIDTH, 3), "uint8"), []
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        road = None if rng.random() < empty else Road.drawn(rng)
        images[number] = _picture(rng, road)
        lanes.append(np.empty((0, len(heights)), "float32") if road is None else road.lines(heights))
    sizes = np.broadcast_to(np.array([HEIGHT, WIDTH], "int64"), (count, 2))
    return Lanes(images, sizes, [heights] * count, lanes)


def write_drawn_roads(folder: str | os.PathLike, count: int, **options: Any) -> None:
    """Write pictures to a new `folder`, and their lanes to its lanes.json, in TuSimple's format. It needs
    TensorFlow, which encodes them.
    """
    import tensorflow as tf

    place = pathlib.Path(folder)
    (place / "images").mkdir(parents=True)
    data = drawn_roads(count, **options)
    files = [place / f"images/{number:06}.png" for number in range(count)]
    for file, image in zip(files, np.asarray(data.images), strict=True):
        tf.io.write_file(str(file), tf.io.encode_png(image))
    answers = [
        {"h_samples": heights * HEIGHT, "lanes": lanes * WIDTH}
        for heights, lanes in zip(data.heights, data.lanes, strict=True)
    ]
    write_lanes(place / "lanes.json", files, answers)


@dataclasses.dataclass(frozen=True)
class Road:
    """The numbers of a road and its camera, which has `middle` lanes to its left, in shares of the image."""

    horizon: float
    twist: float
    bend: float
    turn: float
    breadth: float
    middle: float
    num_lines: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> "Road":
        num_lines = int(rng.integers(2, 6))
        return cls(
            horizon=rng.uniform(*HORIZONS),
            twist=rng.uniform(-0.0008, 0.0008),
            bend=rng.uniform(-0.015, 0.015),
            turn=rng.uniform(0.4, 0.6),
            breadth=rng.uniform(0.7, 1.0),
            middle=rng.uniform(0.2, 0.8) * (num_lines - 1),
            num_lines=num_lines,
        )

    def positions(self, y: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """x at the heights y of what is so many lanes, `numbers`, to the right of the first line."""
        near = np.maximum(y - self.horizon, GAP / 2)
        return self._centre(near) + self.breadth * near * (numbers - self.middle)

    def numbers(self, y: np.ndarray, x: np.ndarray) -> np.ndarray:
        """How many lanes to the right of the first line a place is."""
        near = np.maximum(y - self.horizon, GAP / 2)
        return (x - self._centre(near)) / (self.breadth * near) + self.middle

    def _centre(self, near: np.ndarray) -> np.ndarray:
        return self.twist / near**2 + self.bend / near + self.turn

    def lines(self, heights: np.ndarray) -> np.ndarray:
        """x of the lines (M, P) that have two points or more in the image, `NOWHERE` at other heights."""
        x = self.positions(heights, np.arange(self.num_lines)[:, None])
        is_there = (heights > self.horizon + GAP) & (x >= 0) & (x <= 1)
        return np.where(is_there, x, NOWHERE)[is_there.sum(axis=1) > 1].astype("float32")


def _picture(rng: np.random.Generator, road: Road | None) -> np.ndarray:
    """A picture (90, 160, 3) of a road, or of the ground alone."""
    rows, columns = np.indices((HEIGHT, WIDTH)) + 0.5
    y, x = rows / HEIGHT, columns / WIDTH
    horizon = rng.uniform(*HORIZONS) if road is None else road.horizon
    ground, sky = rng.integers(50, 150, 3), rng.integers(120, 250, 3)
    picture = np.where((y > horizon)[..., None], ground, sky * (0.7 + 0.3 * y / horizon)[..., None])
    if road is not None:
        picture = _with_road(rng, picture, road, y, x)
    picture *= rng.uniform(0.6, 1.1) * (1 + rng.uniform(-0.2, 0.2) * (x - 0.5))[..., None]
    picture += rng.normal(0, rng.uniform(2, 10), picture.shape)
    return np.round(np.clip(picture, 0, 255)).astype("uint8")


def _with_road(
    rng: np.random.Generator, picture: np.ndarray, road: Road, y: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """The picture with the road, its lines and perhaps cars."""
    near = np.maximum(y - road.horizon, 1e-3)
    place, last = road.numbers(y, x), road.num_lines - 1
    borders = rng.uniform(0.1, 0.4, 2)
    on_road = (y > road.horizon + GAP / 2) & (place > -borders[0]) & (place < last + borders[1])
    asphalt = rng.uniform(60, 130) + rng.uniform(-8, 8, 3)
    picture = np.where(on_road[..., None], asphalt, picture)
    width, dashes = rng.uniform(0.05, 0.09), rng.uniform(0.5, 1.0) / near + rng.uniform(0, 2)
    pixel = 1 / (WIDTH * road.breadth * near)  # in lanes
    for number in range(road.num_lines):
        is_solid = rng.random() < (0.85 if number in (0, last) else 0.2)
        colour = rng.uniform(0.75, 1) * np.array(WHITE if rng.random() < 0.75 else YELLOW)
        # A line covers a part of each pixel: all of it, or what is left of it at its edges and far away.
        covered = np.clip((width / 2 - abs(place - number)) / pixel + 0.5, 0, np.maximum(width / pixel, 0.3))
        covered = np.clip(covered, 0, 1) * ((dashes % 2 < 1.2) | is_solid) * (y > road.horizon + GAP / 2)
        picture += covered[..., None] * (colour - picture)
    for bottom in np.sort(rng.uniform(road.horizon + 0.08, 1.0, rng.integers(0, 4))):
        lane = rng.integers(max(last, 1)) + rng.uniform(0.4, 0.6)
        middle, size = (
            road.positions(np.array(bottom), np.array(lane)),
            0.6 * road.breadth * (bottom - road.horizon),
        )
        across, above = abs(x - middle) / size, (bottom - y) / (size * WIDTH / HEIGHT)
        paint = rng.integers(20, 230, 3)
        picture[(across < 0.5) & (above > 0) & (above < 0.8)] = paint
        picture[(across < 0.4) & (above > 0.45) & (above < 0.7)] = paint * 0.3  # the rear window
        picture[(across < 0.5) & (above > 0) & (above < 0.12)] = 25  # tyres and shadow
    return picture
