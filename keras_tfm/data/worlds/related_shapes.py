"""Pictures of coloured shapes and all relations between them: a world for scene graphs without a download.

    +-----------------+
    | #####        o  |     a red square left of a blue disc
    | #+++#           |     a white cross inside the red square
    | #####           |     the white cross left of the blue disc
    +-----------------+

Each two shapes are in one relation, which their boxes decide: `relation_of`.
"""

from typing import NamedTuple

import numpy as np

from keras_tfm.data.worlds.figures import COLOURS, drawn

SHAPES = ("square", "disc", "triangle", "cross")
HOLLOW = ("square", "disc")  # what another shape can be inside of
PREDICATES = ("above", "inside", "left of")
BACKGROUND = 20  # grey level
MOST = 4  # shapes in a picture, at least 2
INSIDE = 1 / 3  # how often the last shape of a picture is inside another one
SIDES = (0.17, 0.27)  # of a shape, in sides of the picture
OUTER, INNER = (0.36, 0.45), (0.36, 0.46)  # of a shape around another one; of that, in sides of the outer one
GAP = 0.03  # least distance of boxes, in sides of the picture
CLEAR = 0.05  # how much further apart two centres are along the relation than across


class RelatedPictures(NamedTuple):
    """Pictures (N, side, side, 3), 8-bit, and of each its boxes (M, 4), (left, top, right, bottom) in pixels,
    their M names, and all relations, (row of the subject, predicate, row of the object).

    >>> from keras_tfm.data.worlds import related_pictures
    >>> data = related_pictures(3)
    >>> data.labels[2], data.relations[2]
    (['blue square', 'purple disc'], [(1, 'inside', 0)])
    """

    images: np.ndarray
    boxes: list[list[list[float]]]
    labels: list[list[str]]
    relations: list[list[tuple[int, str, int]]]


def related_pictures(count: int, seed: int = 0, side: int = 64) -> RelatedPictures:
    """`count` pictures of 2 to 4 shapes of different names; picture i depends on `seed`, `side` and i alone.

    >>> from keras_tfm.data.worlds import related_pictures
    >>> related_pictures(2, side=96).images.shape
    (2, 96, 96, 3)
    """
    data = RelatedPictures(np.full((count, side, side, 3), BACKGROUND, "uint8"), [], [], [])
    names = [(colour, shape) for colour in COLOURS for shape in SHAPES]
    for number, picture in enumerate(data.images):
        rng = np.random.default_rng((seed, number))
        paths, is_outer = _places(rng, side)
        chosen: list[tuple[str, str]] = []
        for outer in is_outer:
            fitting = [
                name
                for name in names
                if name not in chosen
                and not (outer and name[1] not in HOLLOW)
                # What is inside another shape has another colour.
                and not (is_outer[0] and len(chosen) == len(paths) - 1 and name[0] == chosen[0][0])
            ]
            chosen.append(fitting[rng.integers(len(fitting))])
        for (colour, shape), path in zip(chosen, paths, strict=True):
            picture[drawn(shape, path[None], side)[0]] = COLOURS[colour]
        corners = np.concatenate([paths[:, :2] - paths[:, 2:] / 2, paths[:, :2] + paths[:, 2:] / 2], axis=1)
        data.boxes.append(corners.tolist())
        data.labels.append([" ".join(name) for name in chosen])
        data.relations.append(relations_of(data.boxes[-1]))
    return data


def relations_of(boxes: list[list[float]]) -> list[tuple[int, str, int]]:
    """The relation of each two of these boxes, (subject, predicate, object).

    >>> from keras_tfm.data.worlds import relations_of
    >>> relations_of([[0, 0, 9, 9], [20, 4, 30, 14], [3, 3, 6, 6]])
    [(0, 'left of', 1), (2, 'inside', 0), (2, 'left of', 1)]
    """
    relations = []
    for first in range(len(boxes)):
        for second in range(first + 1, len(boxes)):
            predicate, is_turned = relation_of(boxes[first], boxes[second])
            pair = (second, first) if is_turned else (first, second)
            relations.append((pair[0], predicate, pair[1]))
    return relations


def relation_of(box: list[float], other: list[float]) -> tuple[str, bool]:
    """The predicate of two boxes (left, top, right, bottom), and whether the `other` is its subject: a box
    that lies in another is "inside" it; else it is "left of" or "above" one whose centre is further to the
    right, or below, by the larger of both distances.
    """
    for first, second, is_turned in ((box, other, False), (other, box, True)):
        starts = first[0] >= second[0] and first[1] >= second[1]
        if starts and first[2] <= second[2] and first[3] <= second[3]:
            return "inside", is_turned
    across = other[0] + other[2] - box[0] - box[2]
    down = other[1] + other[3] - box[1] - box[3]
    predicate, distance = ("left of", across) if abs(across) > abs(down) else ("above", down)
    return predicate, distance < 0


def _places(rng: np.random.Generator, side: int) -> tuple[np.ndarray, list[bool]]:
    """The centres and sides (M, 3) of shapes, in pixels, and which one has the last one inside it."""
    has_inner = rng.random() < INSIDE
    count = int(rng.integers(2, MOST + 1))
    while True:
        sides = rng.uniform(*SIDES, count)
        if has_inner:
            sides[0] = rng.uniform(*OUTER)
            sides[-1] = sides[0] * rng.uniform(*INNER)
        sides = np.round(sides * side / 2) * 2 + 1  # odd, so that a shape's tip is the centre of a pixel
        corners = np.floor(rng.uniform(size=(count, 2)) * (side - sides[:, None] + 1))
        if has_inner:  # around the centre of the first one, a disc's too
            centre = corners[0] + sides[0] / 2 + rng.uniform(-0.06, 0.06, 2) * sides[0]
            corners[-1] = np.round(centre - sides[-1] / 2)
        paths = np.concatenate([corners + sides[:, None] / 2, sides[:, None]], axis=1)
        if _are_clear(paths, side, has_inner):
            return paths, [has_inner] + [False] * (count - 1)


def _are_clear(paths: np.ndarray, side: int, has_inner: bool) -> bool:
    """Whether shapes lie apart, and the direction from one to the other is no diagonal."""
    for i in range(len(paths)):
        for j in range(i + 1, len(paths)):
            if has_inner and (i, j) == (0, len(paths) - 1):
                continue
            apart = np.abs(paths[i, :2] - paths[j, :2])
            is_diagonal = abs(apart[0] - apart[1]) < CLEAR * side
            if is_diagonal or max(apart) < (paths[i, 2] + paths[j, 2]) / 2 + GAP * side:
                return False
    return True
