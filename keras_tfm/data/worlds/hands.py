"""Hands as chains of joints, and boxes that they hold: a world for models of poses, without a download.

A wrist and five fingers of four joints each, numbered from the thumb's root to the little finger's tip.
Fingers spread and bend by angles of their own, the hand turns, and a camera before it sees it in perspective;
or points lie around its bones, on all sides. Lengths are in hands, from the wrist to the tip of the middle
finger.
"""

from typing import NamedTuple

import numpy as np

from keras_tfm.data.sources.lines import Path
from keras_tfm.data.sources.poses import write_poses

# For each finger: its root in the palm's plane, where it points, in degrees, and the lengths of its bones.
ROOTS = np.array([(-0.2, 0.18), (-0.14, 0.48), (-0.03, 0.5), (0.07, 0.47), (0.16, 0.42)])
DIRECTIONS = np.array([-45.0, -8.0, 0.0, 6.0, 14.0])
LENGTHS = np.array(
    [(0.18, 0.15, 0.12), (0.22, 0.14, 0.1), (0.24, 0.15, 0.11), (0.22, 0.14, 0.11), (0.17, 0.1, 0.09)]
)
PARENTS = (
    -1,
    *(joint - 1 if (joint - 1) % 4 else 0 for joint in range(1, 21)),
)  # -1: the wrist's
NAMES = (
    "wrist",
    *(f"{finger} {i}" for finger in ("thumb", "index", "middle", "ring", "little") for i in range(1, 5)),
)
BOX = tuple(
    (i, i | bit) for i in range(8) for bit in (1, 2, 4) if not i & bit
)  # the edges between its corners
DISTANCE = 3.0  # of the wrist from the camera, in hands
THICKNESS = 0.04


class Hands(NamedTuple):
    """`joints` (N, J, 3), the wrist at the origin; J is 21, or 29 with the corners of a box. Their `places`
    (N, J, 2) in the image, 0 in its middle, and `points` (N, P, 3) around the hand's bones.
    """

    joints: np.ndarray
    places: np.ndarray
    points: np.ndarray


def drawn_hands(count: int, seed: int = 0, has_box: bool = False, num_points: int = 128) -> Hands:
    """`count` hands from the `seed`; with `has_box` each holds a box.

    >>> from keras_tfm.data.worlds import drawn_hands
    >>> hands = drawn_hands(2, has_box=True)
    >>> hands.joints.shape, hands.places.shape, hands.points.shape
    ((2, 29, 3), (2, 29, 2), (2, 128, 3))
    """
    rng = np.random.default_rng(seed)
    hands = _bent(rng, count)
    shown = hands
    if has_box:
        centre = hands[:, [4 * finger + 2 for finger in range(5)]].mean(axis=1) + rng.normal(
            0, 0.05, (count, 3)
        )
        corners = np.indices((2, 2, 2)).reshape(3, 8).T - 0.5
        corners = corners * rng.uniform(0.2, 0.5, (count, 1, 3))
        corners = np.einsum("nij,nkj->nki", _turns(rng, count, 180), corners)
        shown = np.concatenate([hands, corners + centre[:, None]], axis=1)
    turns = _turns(rng, count, 60)
    shown, hands = (np.einsum("nij,nkj->nki", turns, x) for x in (shown, hands))
    moved = shown + np.array([0, 0, DISTANCE])
    places = moved[..., :2] / moved[..., 2:] * DISTANCE + rng.normal(0, 0.003, (*shown.shape[:2], 2))
    return Hands(*(x.astype("float32") for x in (shown, places, _around(rng, hands, num_points))))


def skeleton(has_box: bool = False) -> tuple[list[str], list[tuple[int, int]]]:
    """The names of the joints, and the pairs of them that are bones, or edges of the box.

    >>> from keras_tfm.data.worlds import skeleton
    >>> names, edges = skeleton()
    >>> names[edges[1][0]], names[edges[1][1]]
    ('thumb 1', 'thumb 2')
    """
    bones = [(parent, joint) for joint, parent in enumerate(PARENTS) if parent >= 0]
    if not has_box:
        return list(NAMES), bones
    corners = [f"corner {i}" for i in range(1, 9)]
    return [*NAMES, *corners], bones + [(21 + first, 21 + second) for first, second in BOX]


def write_drawn_hands(
    path: Path, count: int, seed: int = 0, has_box: bool = False, num_points: int = 128
) -> None:
    """Write `drawn_hands` to a new .npz of poses, with their names and edges."""
    hands, (names, edges) = drawn_hands(count, seed, has_box, num_points), skeleton(has_box)
    arrays = {"joints": hands.joints, "joints_2d": hands.places, "points": hands.points}
    write_poses(path, {**arrays, "joint_names": names, "edges": edges})


def _bent(rng: np.random.Generator, count: int) -> np.ndarray:
    """Hands (N, 21, 3) in the plane x, y, pointing along y, fingers bent towards z."""
    joints = np.zeros((count, 21, 3))
    for finger in range(5):
        aside = np.deg2rad(DIRECTIONS[finger] + rng.normal(0, 6, count))
        along = np.stack([np.sin(aside), np.cos(aside), np.zeros(count)], axis=-1)
        at = np.broadcast_to([*ROOTS[finger], 0.0], (count, 3))
        joints[:, 4 * finger + 1] = at
        angle, closed = np.zeros(count), rng.uniform(0, 1, count)
        for bone, length in enumerate(LENGTHS[finger]):
            angle = angle + np.deg2rad(70 * closed * rng.uniform(0.7, 1.3, count))
            at = at + length * (along * np.cos(angle)[:, None] + np.array([0, 0, 1]) * np.sin(angle)[:, None])
            joints[:, 4 * finger + 2 + bone] = at
    return joints


def _turns(rng: np.random.Generator, count: int, most: float) -> np.ndarray:
    """Rotations (N, 3, 3) about any axis by up to `most` degrees: Rodrigues' formula."""
    axes = rng.normal(size=(count, 3))
    x, y, z = (axes / np.linalg.norm(axes, axis=-1, keepdims=True)).T
    angle, none = np.deg2rad(rng.uniform(0, most, count))[:, None, None], np.zeros(count)
    crossed = np.array([(none, -z, y), (z, none, -x), (-y, x, none)]).transpose(2, 0, 1)
    return np.eye(3) + np.sin(angle) * crossed + (1 - np.cos(angle)) * crossed @ crossed


def _around(rng: np.random.Generator, hands: np.ndarray, num_points: int) -> np.ndarray:
    """Points (N, P, 3) near the bones of hands (N, 21, 3), each bone by its length."""
    ends = np.arange(1, 21)
    starts = np.array(PARENTS)[ends]
    bones = hands[:, ends] - hands[:, starts]  # (N, 20, 3)
    shares = np.linalg.norm(bones, axis=-1).mean(axis=0)
    chosen = rng.choice(20, (len(hands), num_points), p=shares / shares.sum())
    rows = np.arange(len(hands))[:, None]
    along = rng.uniform(0, 1, (*chosen.shape, 1)) * bones[rows, chosen]
    return hands[rows, starts[chosen]] + along + rng.normal(0, THICKNESS / 2, (*chosen.shape, 3))
