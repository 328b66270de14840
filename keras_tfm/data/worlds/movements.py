"""Videos of coloured shapes and digits that move: a world for models of video that needs no download.

A scene shows some objects on a still background. The first is the actor, which performs one of eight actions;
each action comes with its reverse, and all have the same middle frame, so that no still frame says which it
is. The others stand still, or move and bounce off the edges; objects that meet hide each other. What is drawn
is known exactly: boxes, identities, masks, the action and a sentence.
"""

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.data.worlds.figures import COLOURS, SHAPES, drawn

ACTIONS = (
    "moves left", "moves right", "moves up", "moves down", "circles clockwise", "circles anticlockwise",
    "grows", "shrinks",
)  # fmt: skip
SIDE = 64  # of a frame, in pixels
SIDES = (12.0, 18.0)  # of an object in the middle of its scene
TRAVEL = 24.0  # pixels that an actor moves in a scene
RADIUS = 7.5  # of an actor's circle
GROWTH = 1.8  # how many times as large an actor becomes


class Scene(NamedTuple):
    """A video, and what it shows: M objects in T frames.

    Args:
        frames: (T, 64, 64, 3), 8-bit.
        boxes: (T, M, 4), left, top, right and bottom in pixels of the whole objects, hidden parts too.
        ids: (M,), the objects' identities; the actor's is first.
        masks: (T, M, 64, 64), which pixels show an object, without the hidden ones.
        names: the objects' colours and shapes, such as "red square".
        action: the actor's, one of `ACTIONS`.
        sentence: what happens, such as "the red square moves left and crosses the blue disc".
    """

    frames: np.ndarray
    boxes: np.ndarray
    ids: np.ndarray
    masks: np.ndarray
    names: tuple[str, ...]
    action: str
    sentence: str


def moving_shapes(
    count: int,
    seed: int = 0,
    num_frames: int = 16,
    num_objects: tuple[int, int] = (1, 3),
    bounce: bool = False,
) -> Iterator[Scene]:
    """Yield scenes, 2 ms of work each: scene i depends on `seed` and i alone, and has action i
    modulo 8. Scenes for testing are of another seed than scenes for training.

    Args:
        num_objects: the least and the largest number of objects.
        bounce: whether the objects beside the actor move; they bounce off the edges.

    >>> from keras_tfm.data.worlds import moving_shapes
    >>> scene = next(moving_shapes(1, seed=7, num_objects=(2, 2)))
    >>> scene.frames.shape, scene.boxes.shape, scene.action
    ((16, 64, 64, 3), (16, 2, 4), 'moves left')
    """
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        objects = int(rng.integers(num_objects[0], num_objects[1] + 1))
        yield _scene(rng, ACTIONS[number % len(ACTIONS)], num_frames, objects, bounce)


def action_clips(count: int, seed: int = 0, num_frames: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """(Videos (N, T, 64, 64, 3), the names of their actions (N,)) of scenes of one to three objects.

    >>> from keras_tfm.data.worlds import action_clips
    >>> videos, actions = action_clips(count=2, num_frames=4)
    >>> videos.shape, actions.tolist()
    ((2, 4, 64, 64, 3), ['moves left', 'moves right'])
    """
    scenes = list(moving_shapes(count, seed, num_frames))
    return np.stack([scene.frames for scene in scenes]), np.array([scene.action for scene in scenes])


def sentence_clips(count: int, seed: int = 0, num_frames: int = 16) -> tuple[np.ndarray, list[str]]:
    """(Videos (N, T, 64, 64, 3), their sentences) of scenes of one to three objects.

    >>> from keras_tfm.data.worlds import sentence_clips
    >>> sentence_clips(count=2, num_frames=4)[1]
    ['the yellow square moves left and crosses the green three', 'the white diamond moves right']
    """
    scenes = list(moving_shapes(count, seed, num_frames))
    return np.stack([scene.frames for scene in scenes]), [scene.sentence for scene in scenes]


def tracked_clips(
    count: int, seed: int = 0, num_frames: int = 16, num_objects: tuple[int, int] = (1, 3)
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(Videos (N, T, 64, 64, 3), of each the rows (n, 6) of frame from 1, identity, left, top, width and
    height) of scenes whose objects all move.

    >>> from keras_tfm.data.worlds import tracked_clips
    >>> videos, boxes = tracked_clips(count=2, num_frames=4, num_objects=(2, 2))
    >>> videos.shape, boxes[0].shape
    ((2, 4, 64, 64, 3), (8, 6))
    """
    scenes = list(moving_shapes(count, seed, num_frames, num_objects, bounce=True))
    return np.stack([scene.frames for scene in scenes]), [_rows(scene) for scene in scenes]


def write_tracked_clips(folder: str | os.PathLike, count: int, **options: Any) -> None:
    """Write `tracked_clips` of these options to a new `folder`, one in MOT's layout for each: img1/000001.png
    and so on, and gt/gt.txt. It needs TensorFlow, which encodes the frames.
    """
    import tensorflow as tf

    for number, (frames, rows) in enumerate(zip(*tracked_clips(count, **options), strict=True)):
        video = pathlib.Path(folder, f"video-{number:04}")
        for kind in ("img1", "gt"):
            (video / kind).mkdir(parents=True)
        for place, pixels in enumerate(frames, 1):
            tf.io.write_file(str(video / "img1" / f"{place:06}.png"), tf.io.encode_png(pixels))
        lines = [",".join(f"{value:g}" for value in (*row, 1, 1, 1)) for row in rows]
        (video / "gt" / "gt.txt").write_text("\n".join(lines) + "\n", "utf-8")


def segmented_clips(
    count: int, seed: int = 0, num_frames: int = 16, num_objects: tuple[int, int] = (1, 3)
) -> tuple[np.ndarray, list[np.ndarray], list[list[str]]]:
    """(Videos (N, T, 64, 64, 3), of each the masks (M, T, 64, 64) and the colours of its objects) of scenes
    whose objects all move. An object that others hide in all frames is left out.

    >>> from keras_tfm.data.worlds import segmented_clips
    >>> videos, masks, labels = segmented_clips(count=2, num_frames=4, num_objects=(2, 2))
    >>> videos.shape, masks[0].shape, labels[0]
    ((2, 4, 64, 64, 3), (2, 4, 64, 64), ['white', 'yellow'])
    """
    scenes = list(moving_shapes(count, seed, num_frames, num_objects, bounce=True))
    masks, labels = [], []
    for scene in scenes:
        shown = np.moveaxis(scene.masks, 1, 0)  # (M, T, H, W)
        seen = np.flatnonzero(shown.reshape(len(shown), -1).any(axis=1))
        masks.append(shown[seen])
        labels.append([scene.names[place].split()[0] for place in seen])
    return np.stack([scene.frames for scene in scenes]), masks, labels


def write_segmented_clips(folder: str | os.PathLike, count: int, **options: Any) -> None:
    """Write `segmented_clips` of these options to a new `folder`, in YouTube-VIS's layout: instances.json and
    JPEGImages/0000/00000.png and so on. It needs TensorFlow, which encodes the frames.
    """
    import tensorflow as tf

    from keras_tfm.data.sources.run_lengths import packed

    videos: list[dict] = []
    annotations: list[dict] = []
    for number, (frames, masks, labels) in enumerate(zip(*segmented_clips(count, **options), strict=True)):
        names = [f"{number:04}/{place:05}.png" for place in range(len(frames))]
        videos.append({"id": number, "file_names": names, "height": SIDE, "width": SIDE})
        pathlib.Path(folder, "JPEGImages", f"{number:04}").mkdir(parents=True)
        for name, pixels in zip(names, frames, strict=True):
            tf.io.write_file(str(pathlib.Path(folder, "JPEGImages", name)), tf.io.encode_png(pixels))
        for label, tube in zip(labels, masks, strict=True):
            runs = [packed(mask).decode("ascii") if mask.any() else None for mask in tube]
            sizes = [None if each is None else {"size": [SIDE, SIDE], "counts": each} for each in runs]
            of_object = {"video_id": number, "category_id": list(COLOURS).index(label)}
            annotations.append({"id": len(annotations), **of_object, "segmentations": sizes})
    categories = [{"id": number, "name": name} for number, name in enumerate(COLOURS)]
    content = {"videos": videos, "annotations": annotations, "categories": categories}
    pathlib.Path(folder, "instances.json").write_text(json.dumps(content), "utf-8")


def _rows(scene: Scene) -> np.ndarray:
    """The rows of a scene in MOT's files, frame by frame."""
    frames, ids = np.meshgrid(np.arange(1, len(scene.boxes) + 1), scene.ids, indexing="ij")  # (T, M) both
    corner, opposite = scene.boxes[..., :2], scene.boxes[..., 2:]
    rows = np.concatenate([frames[..., None], ids[..., None], corner, opposite - corner], axis=-1)
    return rows.reshape(-1, 6)  # (T M, 6)


def _scene(rng: np.random.Generator, action: str, num_frames: int, count: int, bounce: bool) -> Scene:
    kinds = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
    names = tuple(rng.choice(kinds, count, replace=False).tolist())
    time = np.linspace(-0.5, 0.5, num_frames)
    paths = [_actor(rng, action, time)]  # (T, 3) each: the centre's x and y, and the side
    paths += [_other(rng, time, bounce) for _ in range(count - 1)]
    inside = np.stack(
        [drawn(name.split()[1], path, SIDE) for name, path in zip(names, paths, strict=True)], axis=1
    )
    masks, frames = inside.copy(), np.repeat(_background(rng)[None], num_frames, axis=0)
    for depth, number in enumerate(order := rng.permutation(count)):  # the last is in front
        masks[:, number] &= ~inside[:, order[depth + 1 :]].any(axis=1)
        colour = np.array(COLOURS[names[number].split()[0]])
        frames[masks[:, number]] = np.clip(colour + rng.integers(-10, 11), 0, 255)
    # In alphabetical order, as no frame shows in which the objects were drawn.
    crossed = sorted(names[i] for i in range(1, count) if (inside[:, 0] & inside[:, i]).any())
    sentence = f"the {names[0]} {action}" + "".join(f" and crosses the {name}" for name in crossed)
    return Scene(frames, _boxes(inside), np.arange(1, count + 1), masks, names, action, sentence)


def _actor(rng: np.random.Generator, action: str, time: np.ndarray) -> np.ndarray:
    """The path of an actor: at time 0 its place and side are drawn alike for all actions."""
    side, room = rng.uniform(*SIDES), TRAVEL / 2 + SIDES[1] * GROWTH**0.5 / 2
    x, y = rng.uniform(room, SIDE - room, 2)
    kind, _, way = action.partition(" ")
    dx, dy = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}.get(way, (0, 0))
    if kind == "circles":
        turn = 2 * np.pi * time * (1 if way == "clockwise" else -1)
        first = rng.uniform(0, 2 * np.pi)  # y points downwards: growing angles turn clockwise
        x = x + RADIUS * (np.cos(first + turn) - np.cos(first))
        y = y + RADIUS * (np.sin(first + turn) - np.sin(first))
        return np.stack([x, y, np.full_like(time, side)], axis=1)
    growth = {"grows": 1, "shrinks": -1}.get(kind, 0)
    sides = side * GROWTH ** (growth * time)
    return np.stack([x + dx * TRAVEL * time, y + dy * TRAVEL * time, sides], axis=1)


def _other(rng: np.random.Generator, time: np.ndarray, moves: bool) -> np.ndarray:
    """The path of another object, which bounces off the edges if it moves."""
    side = rng.uniform(*SIDES)
    place = rng.uniform(side / 2, SIDE - side / 2, 2)
    speed = rng.uniform(-TRAVEL * 2, TRAVEL * 2, 2) * moves
    x, y = (_within(place[i] + speed[i] * time, side) for i in range(2))
    return np.stack([x, y, np.full_like(time, side)], axis=1)


def _within(x: np.ndarray, side: float) -> np.ndarray:
    """Coordinates of an object's centre, mirrored at the edges of the frame so that it stays inside."""
    room = SIDE - side
    return side / 2 + room - abs((x - side / 2) % (2 * room) - room)


def _background(rng: np.random.Generator) -> np.ndarray:
    """A dark still picture (64, 64, 3) of 16 tiles."""
    tiles = rng.integers(0, 70, (4, 4, 3)).astype("uint8")
    return tiles.repeat(SIDE // 4, axis=0).repeat(SIDE // 4, axis=1)


def _boxes(inside: np.ndarray) -> np.ndarray:
    """Left, top, right and bottom (T, M, 4) of the covered pixels (T, M, 64, 64)."""
    ends = []
    for axis in (2, 3):  # the pixels of a column, of a row
        is_covered = np.any(inside, axis=axis)
        ends.append((is_covered.argmax(axis=-1), SIDE - is_covered[..., ::-1].argmax(axis=-1)))
    (left, right), (top, bottom) = ends
    return np.stack([left, top, right, bottom], axis=-1).astype("float32")
