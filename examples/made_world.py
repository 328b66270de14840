"""A made world of pictures and sentences, which `match_pictures.py` and `caption_pictures.py` learn.

Two things, digits and shapes in one of five colours each, stand beside or above one another on a dark canvas
of 56 x 56 pixels, in places and sizes that differ from picture to picture: "a red three left of a blue
square". A picture has one such sentence. To write some of them into a folder, a text beside each picture:

    python examples/made_world.py FOLDER --count 50
"""

import argparse
import itertools
import pathlib

import numpy as np
import tensorflow as tf

from keras_tfm.data import ImageTexts

SIDE = 56
COLOURS = {
    "red": (230, 40, 40), "green": (40, 200, 60), "blue": (60, 90, 240), "yellow": (240, 220, 50),
    "white": (240, 240, 240),
}  # fmt: skip
# The rows of each thing's picture, 5 pixels a row, the leftmost the highest bit.
THINGS = {
    "zero": (14, 17, 17, 17, 17, 17, 14), "one": (4, 12, 4, 4, 4, 4, 14), "two": (14, 17, 1, 2, 4, 8, 31),
    "three": (14, 17, 1, 6, 1, 17, 14), "four": (2, 6, 10, 18, 31, 2, 2), "five": (31, 16, 30, 1, 1, 17, 14),
    "six": (6, 8, 16, 30, 17, 17, 14), "seven": (31, 1, 2, 4, 8, 8, 8), "eight": (14, 17, 17, 14, 17, 17, 14),
    "nine": (14, 17, 17, 15, 1, 2, 12), "square": (0, 31, 31, 31, 31, 31, 0),
    "triangle": (0, 4, 4, 14, 14, 31, 31), "cross": (0, 4, 4, 31, 4, 4, 0),
    "ring": (0, 14, 17, 17, 17, 14, 0),
}  # fmt: skip
RELATIONS = {"left of": (0, -1), "above": (-1, 0)}  # in which direction the first thing stands of the second


def sentences(count, seed):
    """`count` different sentences, in an order that `seed` fixes."""
    kinds = list(itertools.product(COLOURS, THINGS))
    every = [
        (first, relation, second)
        for first, relation, second in itertools.product(kinds, RELATIONS, kinds)
        if first != second
    ]
    chosen = np.random.default_rng(seed).permutation(len(every))[:count]
    return [every[number] for number in chosen]


def as_text(sentence):
    """The one caption of a picture."""
    (colour, thing), relation, (other, second) = sentence
    return f"a {colour} {thing} {relation} a {other} {second}"


def draw(sentence, rng):
    """A picture (SIDE, SIDE, 3), 8-bit, of a sentence."""
    canvas = rng.integers(0, 40, (SIDE, SIDE, 3)).astype("uint8")
    first, relation, second = sentence
    middle = np.array([SIDE // 2, SIDE // 2])
    for kind, sign in ((first, 1), (second, -1)):
        colour, thing = kind
        place = middle + sign * 13 * np.array(RELATIONS[relation]) + rng.integers(-3, 4, 2)
        put(canvas, place, THINGS[thing], COLOURS[colour], rng.integers(2, 4))
    return canvas


def put(canvas, place, rows, colour, scale):
    """Draw a thing with its centre at `place`, each of its pixels `scale` x `scale`."""
    bits = np.array([[row >> bit & 1 for bit in range(4, -1, -1)] for row in rows], bool)
    bits = bits.repeat(scale, 0).repeat(scale, 1)
    top, left = place - np.array(bits.shape) // 2
    canvas[top : top + bits.shape[0], left : left + bits.shape[1]][bits] = colour


def pictures(known, seed, copies=1):
    """Pairs of pictures and their sentences, each sentence drawn `copies` times."""
    rng = np.random.default_rng(seed)
    chosen = [sentence for _ in range(copies) for sentence in known]
    return ImageTexts(np.stack([draw(sentence, rng) for sentence in chosen]), list(map(as_text, chosen)))


def main():
    """Write pictures and the sentence of each into a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=50)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    images, texts = pictures(sentences(arguments.count, seed=0), seed=3)
    for number, (image, text) in enumerate(zip(images, texts, strict=True)):
        path = arguments.folder / f"{number:04d}.png"
        path.write_bytes(tf.io.encode_png(image).numpy())
        path.with_suffix(".txt").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
