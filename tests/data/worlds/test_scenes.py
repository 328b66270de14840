"""Pictures of scenes are read back; the reader is tested on pictures that are drawn by hand."""

import numpy as np
import pytest

from keras_tfm.data.worlds.figures import COLOURS
from keras_tfm.data.worlds.scenes import (
    OPPOSITE,
    Thing,
    parsed,
    scene_pictures,
    scene_sentences,
    shows,
    things_in,
)

FIVE = {  # pixels a side
    "square": ["#####"] * 5,
    "cross": ["  #  ", "  #  ", "#####", "  #  ", "  #  "],
    "disc": [" ### ", "#####", "#####", "#####", " ### "],
    "triangle": ["  #  ", "  #  ", " ### ", " ### ", "#####"],
}


def painted(*things, side=32):
    """A dark picture of things (colour, rows of characters, left, top)."""
    picture = np.full((side, side, 3), 20, "uint8")
    for colour, rows, left, top in things:
        mask = np.array([list(row) for row in rows]) != " "
        height, width = mask.shape
        picture[top : top + height, left : left + width][mask] = COLOURS.get(colour, colour)
    return picture


def scene(first, second, places):
    (a, b), (c, d) = first.split(), second.split()
    return painted(*((colour, FIVE[x], *p) for colour, x, p in zip((a, c), (b, d), places, strict=True)))


@pytest.mark.parametrize("shape", FIVE)
def test_what_stands_where_is_read(shape):
    picture = painted(("blue", FIVE[shape], 3, 4), ("white", FIVE["square"], 20, 24))
    assert things_in(picture) == [
        Thing(f"blue {shape}", (3, 4, 8, 9)),
        Thing("white square", (20, 24, 25, 29)),
    ]


def test_relations_go_by_boxes_and_centres():
    first, second = "red disc", "blue square"
    # Left and top of both things, and the relation that holds.
    cases = [
        ((10, 2), (12, 20), "above"), ((12, 20), (10, 2), "below"), ((2, 10), (20, 13), "left of"),
        ((20, 10), (2, 13), "right of"), ((2, 2), (9, 8), "left of"), ((2, 2), (8, 9), "above"),
        ((2, 2), (12, 12), None), ((2, 2), (8, 8), None),
    ]  # fmt: skip
    for *places, relation in cases:
        picture = scene(first, second, places)
        for asked, opposite in OPPOSITE.items():
            assert shows(picture, f"a {first} {asked} a {second}") == (asked == relation)
            assert shows(picture, f"a {second} {opposite} a {first}") == (asked == relation)


def test_other_things_are_refused():
    sentence, places = "a red disc above a blue square", ((10, 2), (12, 20))
    right = scene("red disc", "blue square", places)
    assert shows(right, sentence)
    for first, second in [
        ("blue disc", "red square"),
        ("red square", "blue disc"),
        ("red disc", "green square"),
        ("red disc", "red disc"),
    ]:
        assert not shows(scene(first, second, places), sentence)
    assert not shows(painted(("red", FIVE["disc"], 10, 2)), sentence)  # one alone
    assert not shows(painted(), sentence)
    third = right.copy()
    third[28:31, 1:4] = COLOURS["green"]
    assert not shows(third, sentence)
    speck = right.copy()
    speck[28:30, 1:3] = COLOURS["green"]  # too small to be a thing
    assert shows(speck, sentence)
    assert shows(np.clip(right.astype(int) + np.random.default_rng(0).integers(-30, 31, right.shape), 0, 255)
                 .astype("uint8"), sentence)  # fmt: skip


def test_what_resembles_nothing_is_unknown():
    line, corner = ["#" * 9, "#" + " " * 8, "#" + " " * 8, "#" * 2 + " " * 7], ["###  "] * 2 + ["  ###"] * 3
    assert [thing.name for thing in things_in(painted(("red", line, 4, 4)))] == ["red unknown"]
    assert [thing.name for thing in things_in(painted(("red", corner, 4, 4)))] == ["red unknown"]
    brown, half = (150, 90, 40), scene("red square", "red square", ((4, 4), (9, 4)))
    assert [thing.name for thing in things_in(painted((brown, FIVE["square"], 4, 4)))] == ["unknown square"]
    half[4:9, 9:14] = COLOURS["green"]  # two that touch
    assert [thing.name for thing in things_in(half)] == ["unknown unknown"]


def test_every_drawn_picture_shows_its_sentence_and_no_other_thing():
    pictures, sentences = scene_pictures(300, seed=3)
    assert all(map(shows, pictures, sentences))
    assert not any(map(shows, pictures[1:], sentences))
    for picture, sentence in zip(pictures, sentences, strict=True):
        first, relation, second = parsed(sentence)
        assert shows(picture, f"a {second} {OPPOSITE[relation]} a {first}")
        assert not shows(picture, f"a {first} {OPPOSITE[relation]} a {second}")


def test_sentences_for_testing_and_their_opposites_are_not_learnt():
    seen, unseen = set(scene_sentences()), set(scene_sentences(unseen=True))
    assert len(seen | unseen) == 24 * 23 * 4 and not seen & unseen
    for sentence in unseen:
        first, relation, second = parsed(sentence)
        assert f"a {second} {OPPOSITE[relation]} a {first}" in unseen
    assert set(scene_pictures(60, seed=1)[1]) <= seen
    assert set(scene_pictures(60, seed=1, unseen=True)[1]) <= unseen
    words = {word for sentence in seen for word in sentence.split()}
    assert words == {word for sentence in seen | unseen for word in sentence.split()}


def test_a_picture_depends_on_its_seed_and_number():
    pictures, sentences = scene_pictures(4, seed=5)
    again, others = scene_pictures(6, seed=5), scene_pictures(4, seed=6)
    np.testing.assert_array_equal(pictures, again[0][:4])
    assert sentences == again[1][:4] and (pictures != others[0]).any((1, 2, 3)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parsed("a red disc over a blue square"), "expected a sentence like .* got 'a red"),
        (lambda: parsed(""), "expected a sentence like"),
        (lambda: things_in(np.zeros((8, 8), "uint8")), r"`picture` must be \(H, W, 3\), 8-bit; it is"),
        (lambda: things_in(np.zeros((8, 8, 3))), "8-bit; it is .* of float64"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_in_a_line(call, message):
    with pytest.raises(ValueError, match=message):
        call()
