"""Chains whose shapes are written in their letters: a world for models of proteins that needs no download.

A chain goes from residue to residue, 3.8 angstroms at a time, and after each it goes straight on or turns
left, right, up or down, as it sees these. Each letter of the twenty stands for one of the five, so that four
letters mean the same; no chain meets itself. Where residues far apart along the chain come near each other is
in no letter: it follows from all turns between them. An alignment holds further spellings of the chain, in
each of which some letters mean something else.
"""

from typing import NamedTuple

import numpy as np

STEP = 3.8  # angstroms between the CA of neighbours
NEAR = 8.0  # angstroms: two residues that are nearer touch
LETTERS = 20
QUARTER = np.pi / 2
# The axis and the angle of each of the five moves, in the frame of a residue, which looks along x.
MOVES = (
    ((0, 0, 1), 0.0),
    *(((0, 0, 1), s * QUARTER) for s in (1, -1)),
    *(((0, 1, 0), s * QUARTER) for s in (1, -1)),
)


class Chains(NamedTuple):
    """C chains of N residues.

    Args:
        numbers: (C, N), the letters of each residue, from 0 to 19.
        alignment: (C, S, N), spellings; the first of each chain is its `numbers`.
        frames: (C, N, 4, 4), where each residue is and looks, in angstroms: rotation and place.
    """

    numbers: np.ndarray
    alignment: np.ndarray
    frames: np.ndarray


def chains(
    count: int, length: int = 16, num_sequences: int = 4, errors: float = 0.1, seed: int = 0
) -> Chains:
    """`count` chains of `length` residues, each spelt `num_sequences` times.

    In all spellings, the first among them, a letter means another move with probability `errors`.

    >>> from keras_tfm.data.worlds import chains

    >>> made = chains(3, length=8)
    >>> made.numbers.shape, made.alignment.shape, made.frames.shape
    ((3, 8), (3, 4, 8), (3, 8, 4, 4))
    """
    for name, size in (("count", count), ("length", length), ("num_sequences", num_sequences)):
        if size < 1:
            raise ValueError(f"`{name}` must be at least 1; it is {size}.")
    if not 0 <= errors <= 1:
        raise ValueError(f"`errors` must lie in [0, 1]; it is {errors}.")
    rng = np.random.default_rng(seed)
    moves, frames = zip(*(_walk(rng, length) for _ in range(count)), strict=True)
    means = np.repeat(np.stack(moves)[:, None], num_sequences, axis=1)  # (C, S, N)
    wrong = rng.random(means.shape) < errors
    means = np.where(wrong, rng.integers(0, len(MOVES), means.shape), means)
    alignment = means + len(MOVES) * rng.integers(0, LETTERS // len(MOVES), means.shape)
    return Chains(
        alignment[:, 0].astype("int32"), alignment.astype("int32"), np.stack(frames).astype("float32")
    )


def touching(places: np.ndarray, least_apart: int = 4) -> np.ndarray:
    """Which residues, at `places` (..., N, 3) and `least_apart` along the chain, touch: (..., N, N)."""
    distances = np.linalg.norm(places[..., :, None, :] - places[..., None, :, :], axis=-1)
    index = np.arange(places.shape[-2])
    return (distances < NEAR) & (np.abs(index[:, None] - index) >= least_apart)


def _walk(rng, length):
    """(Moves (N,), frames (N, 4, 4)) of a chain that does not meet itself; the last move leads nowhere."""
    while True:
        moves = rng.integers(0, len(MOVES), length)
        frames = [np.eye(4)]
        for move in moves[:-1]:
            step = np.eye(4)
            step[:3, :3] = _rotation(*MOVES[move])
            step[:3, 3] = step[:3, :3] @ (STEP, 0, 0)
            frames.append(frames[-1] @ step)
        places = np.stack(frames)[:, :3, 3]
        gaps = np.linalg.norm(places[:, None] - places, axis=-1) + 2 * STEP * np.eye(length)
        if gaps.min() > STEP - 1e-3:
            return moves, np.stack(frames)


def _rotation(axis, angle):
    """The rotation (3, 3) by `angle` about a unit `axis` (Rodrigues)."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
