"""The kinds of tracking, of one object and of many: a `Tracker` delegates to an object of one of them."""

import abc
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.mot import MOTBoxes
from keras_tfm.data.sources.preprocessing import decode_pixels
from keras_tfm.data.sources.tracked_videos import TrackedVideos
from keras_tfm.serving.video_files import Video
from keras_tfm.tasks.signatures import Endpoints
from keras_tfm.tasks.tracking.options import TrackerConfig, TrackingTraining


class Seen(NamedTuple):
    """The objects in a frame: `ids` (M,), `boxes` (M, 4), (left, top, right, bottom) in pixels, and `scores`
    (M,).
    """

    ids: Any
    boxes: Any
    scores: Any


class TrackingKind(abc.ABC):
    """How a `model` learns to follow, and follows. Abstract.

    Its function of two frames and a state is pure: what it knows of the frames before is an argument and a
    result.
    """

    needs_box: bool  # whether an object is given in the first frame

    def __init__(self, model: Any, canvas: Canvas, config: TrackerConfig):
        self.model, self.canvas, self.config = model, canvas, config
        self.image_shape: tuple[int, int, int] = tuple(model.input["images"].shape[1:])

    @abc.abstractmethod
    def check_examples(self, examples: TrackedVideos) -> None:
        """ValueError for examples that the model cannot learn from."""

    @abc.abstractmethod
    def batches(self, examples: TrackedVideos, training: TrackingTraining, is_validation: bool) -> Batches:
        """The batches to train on, or the batches for validation."""

    @abc.abstractmethod
    def follow(
        self, video: Video, box: Any = None, first: int = 0, threshold: float | None = None
    ) -> Iterator[Seen]:
        """Yield what is seen in each frame of a video, from the place `first` on, where one object has the
        `box` (4,), (left, top, right, bottom) in pixels. Only the frames in use and the state are held.
        """

    @abc.abstractmethod
    def measure(self, examples: TrackedVideos) -> dict[str, float]:
        """How well the objects of the videos are followed, in percent, beside what it is compared with."""

    @abc.abstractmethod
    def endpoints(self) -> Endpoints:
        """{endpoint: (function, input signature)} of a SavedModel."""

    def decoded(self, data: tf.Tensor) -> tf.Tensor:
        """The bytes of an image file as 8-bit pixels (H, W, C) at its own size."""
        return decode_pixels(data, self.image_shape[-1])


def as_tracks(frames: Iterator[Seen]) -> MOTBoxes:
    """What was seen in the frames 1, 2, …, as MOT's files have it."""
    numbers, seen = [], []
    for number, each in enumerate(frames, 1):
        numbers.append(np.full(len(each.ids), number))
        seen.append(each)
    ids, boxes, scores = (np.concatenate(list(column)) for column in zip(*seen, strict=True))
    return MOTBoxes(np.concatenate(numbers), ids, boxes, scores, np.ones(len(ids), "int64"))
