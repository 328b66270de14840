"""Solids as clouds of points: a world for models of points that needs no download.

A solid is a profile, distances from an axis and heights, that is turned about the axis in so many steps: a
rectangle in 4 is a box, in 3 a prism, in 64 a cylinder; a triangle is a pyramid or a cone, a circle beside
the axis a torus. A cloud is drawn from the surface of a solid that is stretched, turned in space and moved,
with noise on every point; what it is stays known.
"""

import os
import pathlib
from typing import Any

import numpy as np

from keras_tfm.serving.point_files import surface_points

ROUND = 64  # steps of a solid without edges
ARC = np.linspace(-np.pi / 2, np.pi / 2, 33)
CIRCLE = np.linspace(-np.pi, np.pi, 33)
# {name: (distances from the axis, heights, steps)}; in four steps sides are 1.41 times the distance
SOLIDS: dict[str, tuple[Any, Any, int]] = {
    "box": ((0, 1.41, 1.41, 0), (-1, -1, 1, 1), 4),
    "capsule": (0.6 * np.cos(ARC), 0.6 * np.sin(ARC) + 0.7 * np.sign(ARC), ROUND),
    "cone": ((0, 1, 0), (-1, -1, 1), ROUND),
    "cylinder": ((0, 0.9, 0.9, 0), (-1, -1, 1, 1), ROUND),
    "double cone": ((0, 1, 0), (-1, 0, 1), ROUND),
    "hourglass": ((0, 1, 0, 1, 0), (-1, -1, 0, 1, 1), ROUND),
    "prism": ((0, 1.2, 1.2, 0), (-1, -1, 1, 1), 3),
    "pyramid": ((0, 1.41, 0), (-1, -1, 1), 4),
    "sphere": (np.cos(ARC), np.sin(ARC), ROUND),
    "torus": (0.75 + 0.25 * np.cos(CIRCLE), 0.25 * np.sin(CIRCLE), ROUND),
}
STRETCH = 1.3  # how many times as long one axis may become, or as short
NOISE = 0.02  # standard deviation on each coordinate
PLACES = 5.0  # how far from the origin a cloud may stand, along each axis


def solid_mesh(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The surface of a solid of `SOLIDS` as a mesh: vertices (N, 3), and triangles (F, 3), their indices.

    >>> from keras_tfm.data.worlds import solid_mesh

    >>> vertices, triangles = solid_mesh("pyramid")
    >>> vertices.shape, triangles.shape
    ((12, 3), (16, 3))
    """
    radii, heights, steps = SOLIDS[name]
    angles = 2 * np.pi * np.arange(steps)[:, None] / steps
    parts = np.broadcast_arrays(radii * np.cos(angles), radii * np.sin(angles), heights)
    vertices = np.stack(parts, axis=-1).astype("float64")  # (steps, P, 3)
    count = vertices.shape[1]
    step, place = np.indices((steps, count - 1))
    first, second = step * count + place, (step + 1) % steps * count + place
    quads = [(first, second, second + 1), (first, second + 1, first + 1)]
    triangles = np.concatenate([np.stack(corners, axis=-1).reshape(-1, 3) for corners in quads])
    return vertices.reshape(-1, 3), triangles


def solid_clouds(
    count: int, seed: int = 0, num_points: int = 512, noise: float = NOISE
) -> tuple[np.ndarray, np.ndarray]:
    """(Clouds (`count`, `num_points`, 3), float32, the names of their solids (`count`,)). Cloud i depends on
    `seed` and i alone, and is of solid i modulo 10. Clouds for testing are of another seed than clouds for
    training.

    >>> from keras_tfm.data.worlds import solid_clouds
    >>> clouds, names = solid_clouds(count=3, num_points=100)
    >>> clouds.shape, names.tolist()
    ((3, 100, 3), ['box', 'capsule', 'cone'])
    """
    names = np.array(list(SOLIDS))[np.arange(count) % len(SOLIDS)]
    meshes = {name: solid_mesh(name) for name in SOLIDS}
    clouds = [
        _cloud(np.random.default_rng((seed, number)), *meshes[name], num_points, noise)
        for number, name in enumerate(names.tolist())
    ]
    return np.array(clouds, "float32").reshape(count, num_points, 3), names


def write_solid_clouds(folder: str | os.PathLike, count: int, **options: Any) -> None:
    """Write `solid_clouds` of these options to a new `folder`, with a folder of .xyz files for each solid."""
    for number, (cloud, name) in enumerate(zip(*solid_clouds(count, **options), strict=True)):
        place = pathlib.Path(folder, name)
        place.mkdir(parents=True, exist_ok=True)
        np.savetxt(place / f"{number:05}.xyz", cloud, fmt="%.4f")


def _cloud(
    rng: np.random.Generator, vertices: np.ndarray, triangles: np.ndarray, num_points: int, noise: float
) -> np.ndarray:
    """The points (num_points, 3) of a solid that is stretched, turned and moved."""
    stretched = vertices * STRETCH ** rng.uniform(-1, 1, 3)
    points = surface_points(stretched, triangles, num_points, rng.integers(2**32))
    rotation, _ = np.linalg.qr(rng.standard_normal((3, 3)))  # or a reflection: solids are symmetric
    return (points + rng.normal(0, noise, points.shape)) @ rotation + rng.uniform(-PLACES, PLACES, 3)
