"""Pictures of two coloured shapes and a sentence about each: a world for models of pictures and texts that
needs no download, and an exact reader of its pictures, which needs no model.

    "a red disc above a blue square"  --scene_pictures-->  a picture of 32 x 32 pixels
    any picture                       --things_in------->  colours, shapes and boxes of what stands in it

A tenth of all scenes, chosen by the digest of what they show, is for testing alone.
"""

import zlib
from typing import NamedTuple

import numpy as np

from keras_tfm.data.worlds.figures import COLOURS, FIGURES, drawn

SIDE = 32  # of a picture, in pixels
SIDES = (9, 11, 13)  # of a thing: odd, so that the tip of a triangle is the centre of a pixel
SHAPES = ("square", "disc", "triangle", "cross")
RELATIONS = ("above", "below", "left of", "right of")
OPPOSITE = dict(zip(RELATIONS, ("below", "above", "right of", "left of"), strict=True))
BACKGROUND = 20  # grey level
GAP = 2  # the least number of pixels between two things
SHIFT = 5  # pixels between two centres at most, across the direction of the relation
BRIGHT = 128  # of the brightest channel: a thing from here on, background below
SPECK = 6  # pixels: less is no thing
NEAR = 60  # the distance, in RGB, of a thing's mean colour from the colour that it has
EVEN = 0.7  # the shorter side of a thing's box, at least, as a share of the longer one
LIKENESS = 0.8  # intersection over union of a thing and its shape, in the same box


class Thing(NamedTuple):
    """A thing in a picture: a name such as "red disc", and its box (left, top, right, bottom) in pixels.

    >>> from keras_tfm.data.worlds import Thing
    >>> Thing("red disc", (4, 2, 13, 11)).name
    'red disc'
    """

    name: str
    box: tuple[int, int, int, int]


def scene_sentences(unseen: bool = False) -> list[str]:
    """All sentences of the scenes for training, or of the `unseen` ones, for testing. Two sentences for one
    picture, "a red disc above a blue square" and "a blue square below a red disc", are on the same side.

    >>> from keras_tfm.data.worlds import scene_sentences
    >>> len(scene_sentences()), len(scene_sentences(unseen=True))
    (1966, 242)
    """
    names = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
    triples = [(a, relation, b) for a in names for relation in RELATIONS for b in names if a != b]
    return [f"a {a} {r} a {b}" for a, r, b in triples if _is_unseen(a, r, b) == unseen]


def _is_unseen(first: str, relation: str, second: str) -> bool:
    if relation in ("below", "right of"):
        first, relation, second = second, OPPOSITE[relation], first
    return zlib.crc32(f"{first} {relation} {second}".encode()) % 10 == 0


def scene_pictures(count: int, seed: int = 0, unseen: bool = False) -> tuple[np.ndarray, list[str]]:
    """(Pictures (N, 32, 32, 3), 8-bit, their sentences): picture i depends on `seed` and i alone. Sizes and
    places are drawn, sentences too, from `scene_sentences(unseen)`.

    >>> from keras_tfm.data.worlds import scene_pictures
    >>> pictures, sentences = scene_pictures(2)
    >>> pictures.shape, sentences[0]
    ((2, 32, 32, 3), 'a white square left of a red disc')
    """
    sentences, chosen = scene_sentences(unseen), []
    pictures = np.full((count, SIDE, SIDE, 3), BACKGROUND, "uint8")
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        chosen.append(sentences[rng.integers(len(sentences))])
        first, relation, second = parsed(chosen[-1])
        for name, path in zip((first, second), _places(rng, relation), strict=True):
            colour, shape = name.split()
            pictures[number, drawn(shape, path[None], SIDE)[0]] = COLOURS[colour]
    return pictures, chosen


def parsed(sentence: str) -> tuple[str, str, str]:
    """The first thing, the relation and the second thing of a sentence; ValueError for any other text.

    >>> from keras_tfm.data.worlds import parsed
    >>> parsed("a red disc left of a blue square")
    ('red disc', 'left of', 'blue square')
    """
    words = sentence.split()
    first, relation, second = " ".join(words[1:3]), " ".join(words[3:-3]), " ".join(words[-2:])
    if relation not in RELATIONS or sentence != f"a {first} {relation} a {second}":
        raise ValueError(f'expected a sentence like "a red disc above a blue square", got {sentence!r:.80}')
    return first, relation, second


def _places(rng: np.random.Generator, relation: str) -> np.ndarray:
    """The centres and sides (2, 3) of the first and the second thing."""
    sides = rng.choice(SIDES, 2)
    free = SIDE - sides.sum() - GAP  # pixels along the relation's direction
    before, between = np.sort(rng.integers(0, free + 1, 2))
    along = np.array([before, sides[0] + GAP + between])  # where the first and the second thing begin
    across = rng.integers(0, SIDE - sides + 1)
    while abs((across + sides / 2) @ (1, -1)) > SHIFT:
        across = rng.integers(0, SIDE - sides + 1)
    corner = np.stack([along, across] if relation in ("left of", "right of") else [across, along], axis=1)
    paths = np.concatenate([corner + sides[:, None] / 2, sides[:, None]], axis=1)
    return paths if relation in ("above", "left of") else paths[::-1]


def things_in(picture: np.ndarray) -> list[Thing]:
    """What stands in a picture (H, W, 3), 8-bit, from its top downwards: connected bright pixels, with the
    colour that is nearest to their mean and the shape that fits best into their box. "unknown" takes the
    place of a colour or a shape that nothing comes near to.

    >>> from keras_tfm.data.worlds import scene_pictures, things_in
    >>> pictures, sentences = scene_pictures(1)
    >>> [thing.name for thing in things_in(pictures[0])]
    ['white square', 'red disc']
    """
    from scipy import ndimage

    picture = np.asarray(picture)
    if picture.ndim != 3 or picture.shape[-1] != 3 or picture.dtype != np.uint8:
        raise ValueError(
            f"`picture` must be (H, W, 3), 8-bit; it is {picture.shape} of {picture.dtype.name}."
        )
    places, _ = ndimage.label(picture.max(-1) >= BRIGHT)
    things = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(places), 1):
        mask = places[rows, columns] == number
        if mask.sum() >= SPECK:
            name = f"{_colour(picture[rows, columns][mask])} {_shape(mask)}"
            things.append(Thing(name, (columns.start, rows.start, columns.stop, rows.stop)))
    return things


def _colour(pixels: np.ndarray) -> str:
    """The name of the colour of pixels (n, 3)."""
    distances = {name: np.linalg.norm(pixels.mean(0) - colour) for name, colour in COLOURS.items()}
    name = min(distances, key=lambda name: distances[name])
    return name if distances[name] <= NEAR else "unknown"


def _shape(mask: np.ndarray) -> str:
    """The name of the shape that fills its box as this `mask` (height, width) does."""
    if min(mask.shape) < EVEN * max(mask.shape):
        return "unknown"
    y, x = (2 * (np.arange(side) + 0.5) / side - 1 for side in mask.shape)
    likeness = {}
    for name, figure in FIGURES.items():
        whole = figure(x[None], y[:, None])
        likeness[name] = (mask & whole).sum() / (mask | whole).sum()
    name = max(likeness, key=lambda name: likeness[name])
    return name if likeness[name] >= LIKENESS else "unknown"


def shows(picture: np.ndarray, sentence: str) -> bool:
    """Whether a picture shows the two things of a `sentence` and no other, in the relation that it names:
    "above" is a box that ends before the other begins, with centres further apart in that direction than
    across. ValueError for a sentence of another form.

    >>> from keras_tfm.data.worlds import scene_pictures, shows
    >>> pictures, sentences = scene_pictures(2)
    >>> [shows(pictures[0], sentence) for sentence in sentences]
    [True, False]
    """
    first, relation, second = parsed(sentence)
    boxes_of = dict(things := things_in(picture))
    if len(things) != 2 or boxes_of.keys() != {first, second}:
        return False
    if relation in ("below", "right of"):
        first, second = second, first
    boxes = np.array([boxes_of[first], boxes_of[second]])
    dx, dy = np.diff(boxes[:, :2] + boxes[:, 2:], axis=0)[0]
    if relation in ("above", "below"):
        return bool(boxes[0, 3] <= boxes[1, 1] and dy > abs(dx))
    return bool(boxes[0, 2] <= boxes[1, 0] and dx > abs(dy))
