"""Furnished bedrooms: a world for models of rooms that needs no download, and an exact checker of any room.

A room is a list of pieces of furniture, boxes on a grid of 16 x 16 steps of 25 cm. It obeys the rule if

- it has one door and one bed, and each piece has a size of its category;
- doors, beds, desks and wardrobes stand on the floor with their backs to the wall from which they face away,
  and the spaces that they need lie in the room and do not meet: two steps in front of a door and of a desk,
  one in front of a wardrobe, two on both sides of a bed;
- a night stand stands beside the head of a bed and faces as it does, a lamp stands on a night stand, a chair
  in front of the middle of a desk and faces it; each desk has its chair, and no place is taken twice.

It follows that nothing overlaps.

    y        wall 2              A piece of orientation 0 has its back to wall 0 and faces to larger y,
    15  +-------------+          at 1 it faces to larger x, at 2 to smaller y, at 3 to smaller x.
        |             |
      wall 1        wall 3
        |             |
     0  +-------------+
        0   wall 0   15  x
"""

import collections
import itertools
from typing import NamedTuple

import numpy as np

SIDE, WALLS = 16, 4
# The widths, depths and heights of each category, in steps. None is greater than LARGEST.
SIZES = {
    "door": ((3, 4), (1,), (8,)),
    "bed": ((4, 6), (8,), (2,)),
    "night stand": ((2,), (2,), (2, 3)),
    "lamp": ((2,), (2,), (1, 2)),
    "desk": ((4, 6), (2,), (3,)),
    "chair": ((2,), (2,), (4,)),
    "wardrobe": ((3, 4, 5), (2,), (7, 8)),
}
LARGEST = 8
CATEGORIES = tuple(SIZES)
SPACES = {"door": (0, 2), "bed": (2, 0), "desk": (0, 2), "wardrobe": (0, 1)}  # on both sides, and in front
MOST = 9  # pieces of a room that is drawn


class Piece(NamedTuple):
    """A piece of furniture: its category, the wall at its back, the corner of its box with the least x, y
    and z, and its width along the wall, depth and height.

    >>> from keras_tfm.data.worlds import Piece
    >>> Piece("bed", orientation=1, location=(0, 5, 0), size=(4, 8, 2)).area
    (0, 5, 8, 4)
    """

    category: str
    orientation: int
    location: tuple[int, int, int]
    size: tuple[int, int, int]

    @property
    def area(self) -> tuple[int, int, int, int]:
        """The least x and y, and the extents in x and y, of the floor below."""
        x, y, _ = self.location
        width, depth, _ = self.size
        return (x, y, depth, width) if self.orientation % 2 else (x, y, width, depth)


def drawn_rooms(count: int, seed: int = 0) -> list[list[Piece]]:
    """Rooms of 3 to 9 pieces that obey the rule: a door, a bed, up to two night stands, each with a lamp or
    without, then a desk and its chair, a wardrobe, or both. Room i depends on `seed` and i alone.

    >>> from keras_tfm.data.worlds import drawn_rooms
    >>> [piece.category for piece in drawn_rooms(1)[0]]
    ['door', 'bed', 'desk', 'chair', 'wardrobe']
    """
    return [_draw_room(np.random.default_rng((seed, number))) for number in range(count)]


def obeys(room: list[Piece]) -> bool:
    """Whether a room obeys the rule.

    >>> from keras_tfm.data.worlds import drawn_rooms, obeys
    >>> room = drawn_rooms(1)[0]
    >>> obeys(room), obeys(room[1:])
    (True, False)
    """
    return not faults(room)


def faults(room: list[Piece]) -> set[str]:
    """The parts of the rule that a room breaks: "number", "size", "wall", "space" or "company".

    >>> from keras_tfm.data.worlds import drawn_rooms, faults
    >>> sorted(faults(drawn_rooms(1)[0][2:]))
    ['number']
    """
    parts = set()
    numbers = collections.Counter(piece.category for piece in room)
    if numbers["door"] != 1 or numbers["bed"] != 1:
        parts.add("number")
    if any(piece.size not in itertools.product(*SIZES[piece.category]) for piece in room):
        parts.add("size")
    leaders = [piece for piece in room if piece.category in SPACES]
    if any(_against_wall(piece) != piece.location for piece in leaders):
        parts.add("wall")
    spaces = [_space(piece) for piece in leaders]
    pairs = itertools.combinations(spaces, 2)
    if not all(map(_is_inside, spaces)) or not all(_are_apart(*pair) for pair in pairs):
        parts.add("space")
    places = {place for piece in room for place in _places(piece)}
    companions = [piece[:3] for piece in room if piece.category not in SPACES]
    is_shared = len(set(companions)) < len(companions)
    if is_shared or not places.issuperset(companions) or numbers["chair"] != numbers["desk"]:
        parts.add("company")
    return parts


def _along(piece: Piece) -> int:
    """How far along its wall a piece begins."""
    return piece.location[piece.orientation % 2]


def _corner(wall: int, along: int, ahead: int, depth: int) -> tuple[int, int]:
    """The least x and y of what stands so far along a wall and ahead of it."""
    ahead = SIDE - ahead - depth if wall >= 2 else ahead
    return (ahead, along) if wall % 2 else (along, ahead)


def _against_wall(piece: Piece) -> tuple[int, int, int]:
    """Where a piece would stand on the floor, its back to the wall."""
    return *_corner(piece.orientation, _along(piece), 0, piece.size[1]), 0


def _space(piece: Piece) -> tuple[int, int, int, int]:
    """The least x and y, and the extents in x and y, of the space that a piece needs."""
    (sides, front), (width, depth, height) = SPACES[piece.category], piece.size
    wall, size = piece.orientation, (width + 2 * sides, depth + front, height)
    location = *_corner(wall, _along(piece) - sides, 0, depth + front), 0
    return Piece(piece.category, wall, location, size).area


def _is_inside(area: tuple[int, int, int, int]) -> bool:
    x, y, across, up = area
    return min(x, y) >= 0 and x + across <= SIDE and y + up <= SIDE


def _are_apart(area: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    (x, y, across, up), (x2, y2, across2, up2) = area, other
    return x + across <= x2 or x2 + across2 <= x or y + up <= y2 or y2 + up2 <= y


def _places(piece: Piece) -> list[tuple[str, int, tuple[int, int, int]]]:
    """The category, orientation and location of what may accompany a piece."""
    wall, (width, depth, height) = piece.orientation, piece.size
    if piece.category == "bed":
        starts = _along(piece) - 2, _along(piece) + width
        return [("night stand", wall, (*_corner(wall, start, 0, 2), 0)) for start in starts]
    if piece.category == "night stand":
        return [("lamp", wall, (*piece.location[:2], height))]
    if piece.category == "desk":
        corner = _corner(wall, _along(piece) + width // 2 - 1, depth, 2)
        return [("chair", (wall + 2) % WALLS, (*corner, 0))]
    return []


def _draw_room(rng: np.random.Generator) -> list[Piece]:
    """A room; the few that leave no place for a piece are drawn anew."""
    others = (["desk"], ["wardrobe"], ["desk", "wardrobe"])[rng.integers(3)]
    room: list[Piece] = []
    for category in ("door", "bed", *others):
        leader = _find_place(rng, category, [_space(piece) for piece in room if piece.category in SPACES])
        if leader is None:
            return _draw_room(rng)
        room.append(leader)
        if category == "bed":
            for number in rng.permutation(2)[: rng.integers(3)]:
                room.append(Piece(*_places(leader)[int(number)], _size(rng, "night stand")))
                if rng.random() < 0.5:
                    room.append(Piece(*_places(room[-1])[0], _size(rng, "lamp")))
        if category == "desk":
            room.append(Piece(*_places(leader)[0], _size(rng, "chair")))
    return room


def _size(rng: np.random.Generator, category: str) -> tuple[int, int, int]:
    width, depth, height = (choice[rng.integers(len(choice))] for choice in SIZES[category])
    return width, depth, height


def _find_place(
    rng: np.random.Generator, category: str, spaces: list[tuple[int, int, int, int]]
) -> Piece | None:
    """A piece along a wall, all free places being equally likely; None where there is none."""
    size, sides = _size(rng, category), SPACES[category][0]
    starts = SIDE - size[0] - 2 * sides + 1
    for place in rng.permutation(WALLS * starts).tolist():
        wall, along = place // starts, place % starts + sides
        piece = Piece(category, wall, (*_corner(wall, along, 0, size[1]), 0), size)
        space = _space(piece)
        if all(_are_apart(space, other) for other in spaces):
            return piece
    return None


def room_arrays(rooms: list[list[Piece]], length: int = MOST + 1) -> dict[str, np.ndarray]:
    """{"category", "orientation": (N, `length`), "location", "size": (N, `length`, 3)} of rooms, as
    `models.SceneFormer` learns them: the number of a property's values is its padding, and the category of
    what follows the last piece is one more, "stop". ValueError for a room without a place for it.

    >>> from keras_tfm.data.worlds import drawn_rooms, room_arrays
    >>> room_arrays(drawn_rooms(1))["category"].tolist()
    [[0, 1, 4, 5, 6, 8, 7, 7, 7, 7]]
    """
    most = max(map(len, rooms), default=0)
    if most >= length:
        raise ValueError(f"`length` must be greater than the pieces of each room, {most}; it is {length}.")
    arrays = {
        "category": np.full((len(rooms), length), len(CATEGORIES)),
        "orientation": np.full((len(rooms), length), WALLS),
        "location": np.full((len(rooms), length, 3), SIDE),
        "size": np.full((len(rooms), length, 3), LARGEST + 1),
    }
    for number, room in enumerate(rooms):
        for place, piece in enumerate(room):
            arrays["category"][number, place] = CATEGORIES.index(piece.category)
            for name in ("orientation", "location", "size"):
                arrays[name][number, place] = getattr(piece, name)
        arrays["category"][number, len(room)] = len(CATEGORIES) + 1
    return arrays


def arrays_to_rooms(arrays: dict[str, np.ndarray]) -> list[list[Piece]]:
    """The rooms of arrays as `room_arrays` makes them.

    >>> from keras_tfm.data.worlds import arrays_to_rooms, drawn_rooms, room_arrays
    >>> rooms = drawn_rooms(3)
    >>> arrays_to_rooms(room_arrays(rooms)) == rooms
    True
    """
    names = ("category", "orientation", "location", "size")
    rooms = []
    for pieces in zip(*(arrays[name].tolist() for name in names), strict=True):
        rows = itertools.takewhile(lambda row: row[0] < len(CATEGORIES), zip(*pieces, strict=True))
        rooms.append([Piece(CATEGORIES[c], wall, tuple(at), tuple(size)) for c, wall, at, size in rows])
    return rooms
