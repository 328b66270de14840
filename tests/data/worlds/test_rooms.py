"""Bedrooms: all that are drawn obey the rule, each part of it notices its breach, arrays hold whole rooms."""

import numpy as np
import pytest

from keras_tfm.data.worlds.rooms import (
    CATEGORIES,
    MOST,
    SIDE,
    Piece,
    arrays_to_rooms,
    drawn_rooms,
    faults,
    obeys,
    room_arrays,
)

DOOR = Piece("door", 2, (0, 15, 0), (3, 1, 8))
BED = Piece("bed", 0, (2, 0, 0), (4, 8, 2))
STANDS = Piece("night stand", 0, (0, 0, 0), (2, 2, 3)), Piece("night stand", 0, (6, 0, 0), (2, 2, 2))
LAMP = Piece("lamp", 0, (0, 0, 3), (2, 2, 1))
DESK = Piece("desk", 3, (14, 4, 0), (6, 2, 3))
CHAIR = Piece("chair", 1, (12, 6, 0), (2, 2, 4))
WARDROBE = Piece("wardrobe", 1, (0, 8, 0), (4, 2, 7))
ROOM = [DOOR, BED, *STANDS, LAMP, DESK, CHAIR, WARDROBE]


def test_all_drawn_rooms_obey():
    rooms = drawn_rooms(300, seed=5)
    assert all(map(obeys, rooms))
    assert {len(room) for room in rooms} == set(range(3, MOST + 1))
    assert {piece.category for room in rooms for piece in room} == set(CATEGORIES)
    assert rooms[:7] == drawn_rooms(7, seed=5) != drawn_rooms(7, seed=6)
    assert len({frozenset(room) for room in rooms}) == 300


def test_no_boxes_overlap():
    for room in drawn_rooms(50):
        filled = np.zeros((SIDE, SIDE, SIDE), int)
        for piece in room:
            x, y, across, up = piece.area
            filled[x : x + across, y : y + up, piece.location[2] :][..., : piece.size[2]] += 1
        volume = sum(np.prod(piece.size) for piece in room)  # less if a piece were outside
        assert filled.max() == 1 and filled.sum() == volume


def test_most_disturbed_rooms_do_not_obey():
    rng, rooms = np.random.default_rng(0), drawn_rooms(300, seed=1)
    for room in rooms:
        number, axis = rng.integers(len(room)), rng.integers(2)
        location = list(room[number].location)
        location[axis] += rng.choice([-2, -1, 1, 2])
        room[number] = room[number]._replace(location=tuple(location))
    assert np.mean([obeys(room) for room in rooms]) < 0.25


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        ("number", [DOOR], []),
        ("number", [], [DOOR._replace(orientation=3, location=(15, 13, 0))]),
        ("size", [WARDROBE], [WARDROBE._replace(size=(4, 2, 6))]),
        ("wall", [WARDROBE], [WARDROBE._replace(location=(1, 8, 0))]),
        ("wall", [WARDROBE], [WARDROBE._replace(location=(0, 8, 1))]),
        ("wall", [DOOR], [DOOR._replace(orientation=0)]),
        ("space", [WARDROBE], [WARDROBE._replace(location=(0, 7, 0))]),  # beside the bed
        ("space", [WARDROBE], [WARDROBE._replace(location=(0, 10, 0))]),  # before the door
        ("space", [DOOR], [DOOR._replace(location=(14, 15, 0))]),  # through the wall
        ("company", [LAMP], [LAMP._replace(location=(0, 0, 2))]),
        ("company", [LAMP], [LAMP, LAMP]),
        ("company", [LAMP], [LAMP._replace(location=(14, 4, 3), orientation=3)]),  # on the desk
        ("company", [STANDS[1]], [STANDS[1]._replace(orientation=2)]),
        ("company", [STANDS[1]], [STANDS[1]._replace(location=(6, 1, 0))]),
        ("company", [CHAIR], []),
        ("company", [CHAIR], [CHAIR._replace(orientation=3)]),
        ("company", [CHAIR], [CHAIR._replace(location=(12, 5, 0))]),
        ("company", [CHAIR], [CHAIR._replace(location=(11, 6, 0))]),
    ],
)
def test_each_part_of_the_rule_notices_its_breach(part, old, new):
    assert faults(ROOM) == set()
    assert part in faults([piece for piece in ROOM if piece not in old] + new)


def test_a_room_obeys_whatever_the_order_of_its_pieces_and_the_wall():
    turned = [
        Piece("door", 3, (15, 13, 0), (3, 1, 8)),
        Piece("bed", 1, (0, 4, 0), (6, 8, 2)),
        Piece("night stand", 1, (0, 10, 0), (2, 2, 2)),
        Piece("lamp", 1, (0, 10, 2), (2, 2, 2)),
        Piece("desk", 2, (2, 14, 0), (4, 2, 3)),
        Piece("chair", 0, (3, 12, 0), (2, 2, 4)),
        Piece("wardrobe", 0, (11, 0, 0), (5, 2, 8)),
    ]
    assert obeys(turned) and obeys(turned[::-1]) and obeys(ROOM[::-1])


def test_arrays_hold_whole_rooms():
    rooms = drawn_rooms(20, seed=2)
    arrays = room_arrays(rooms)
    assert {name: x.shape[1:] for name, x in arrays.items()} == {
        "category": (10,), "orientation": (10,), "location": (10, 3), "size": (10, 3)
    }  # fmt: skip
    assert arrays_to_rooms(arrays) == rooms
    arrays = room_arrays([[BED]], length=3)
    assert arrays["category"].tolist() == [[1, 8, 7]]
    assert arrays["orientation"].tolist() == [[0, 4, 4]]
    assert arrays["location"].tolist() == [[[2, 0, 0], [16] * 3, [16] * 3]]
    assert arrays["size"].tolist() == [[[4, 8, 2], [9] * 3, [9] * 3]]
    assert arrays_to_rooms(arrays) == [[BED]]
    with pytest.raises(ValueError, match="`length` must be greater than the pieces of each room, 1; it is 1"):
        room_arrays([[BED]], length=1)
