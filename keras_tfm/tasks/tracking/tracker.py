"""Tracking: following objects through videos, all that are seen or one that is given in the first frame."""

import dataclasses
import json
import pathlib
import types
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np

from keras_tfm.configs import Field, FieldError
from keras_tfm.data.batches.epochs import Batches, HeldOut
from keras_tfm.data.sources.canvas import Canvas
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.mot import write_mot
from keras_tfm.data.sources.tracked_videos import (
    KINDS,
    TrackedVideos,
    checked_tracks,
    read_tracked_videos,
)
from keras_tfm.data.sources.videos import VideoFiles
from keras_tfm.heads.track_detector import TrackDetector
from keras_tfm.serving.examples import Refused, checked_columns, not_list, not_video, refuse_empty
from keras_tfm.tasks.images.drawing import Pictures, new_pictures
from keras_tfm.tasks.images.image_task import (
    check_channels,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.records import rounded_line
from keras_tfm.tasks.signatures import ColumnNames, Endpoints
from keras_tfm.tasks.task import refuse_columns
from keras_tfm.tasks.tracking.drawing import draw_tracks
from keras_tfm.tasks.tracking.inputs import first_box, frames_in, inputs_in, opened_video
from keras_tfm.tasks.tracking.kind import TrackingKind, as_tracks
from keras_tfm.tasks.tracking.many import ManyObjects
from keras_tfm.tasks.tracking.one import OneObject
from keras_tfm.tasks.tracking.options import TrackerConfig, TrackerOptions, TrackingTraining, with_head
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.tasks.videos.decoded import listed_videos
from keras_tfm.training.folder import Path, new_file

FIELDS = tuple(field.name for field in dataclasses.fields(Canvas))


class Tracker(FineTunedTask):
    """Videos to where their objects are in each frame, and which is which, by a `backbone`: a `TransTrack`
    follows all objects, a `TransT` or `TrTr` one that is given in the first frame.

    Examples are (videos, boxes): videos as `VideoTask` has them, and of each `MOTBoxes`, or rows of frame
    (from 1), identity, left, top, width and height. An answer has a row for each object in each frame:
    "frames" (N,) from 1, "ids" (N,), "boxes" (N, 4), (left, top, right, bottom) in pixels, and "scores" (N,).
    `fields` are fields of `TrackerConfig`.

    >>> backbone = keras_tfm.models.TransT.from_size("tiny")
    >>> task = keras_tfm.tasks.Tracker(backbone)
    >>> videos, boxes = np.zeros((2, 4, 64, 64, 3), "uint8"), [[[1, 7, 8, 8, 16, 16]]] * 2
    >>> history = task.fit((videos, boxes), epochs=1)
    >>> task.predict(videos[:1], box=(8, 8, 16, 16))[0]["boxes"].shape
    (4, 4)
    """

    name = "track"
    start = "a RUN of this task"
    files = KINDS
    unit = "videos"
    digits = 2
    portion = 1
    reads_lines = False
    picture_suffixes = types.MappingProxyType({"draw": ".gif", "tracks": ".txt"})
    held_out = HeldOut(0.1)
    made_of_examples = False
    examples_class = TrackedVideos
    training = TrackingTraining(
        epochs=50, patience=None, learning_rate=1e-3, schedule="cosine", weight_decay=1e-4
    )
    optimizer_options = {"global_clipnorm": 0.1}  # Sun et al. 2020, as DETR
    model_options = TrackerOptions
    make_head = staticmethod(with_head)
    config_class = TrackerConfig
    config: TrackerConfig

    def __init__(self, backbone: keras.Model, config: TrackerConfig | None = None, **fields: Any):
        self.config = TrackerConfig(**fields) if config is None else dataclasses.replace(config, **fields)
        made = with_head(backbone)
        self.model = made.on(with_image_size(made.backbone, self.config.image_size))
        self.image_shape: tuple[int, int, int] = tuple(self.model.input["images"].shape[1:])
        check_channels(self.config, self.image_shape[-1])
        kind: type[TrackingKind] = ManyObjects if isinstance(self.model, TrackDetector) else OneObject
        self.kind = kind(self.model, self.preprocessing, self.config)

    def forget_graphs(self) -> None:
        super().forget_graphs()
        self.kind = type(self.kind)(self.model, self.preprocessing, self.config)

    @property
    def preprocessing(self) -> Canvas:
        """How frames become the model's input."""
        return Canvas(**{name: getattr(self.config, name) for name in FIELDS})

    @classmethod
    def make(cls, examples: Any, options: TrackerOptions, changes: Mapping[str, Any], **fields: Any) -> Self:
        config = dataclasses.asdict(options.base()) | with_side(changes, fields)
        family = options.model_class
        return cls(family(family.config_class.from_json(config)), **fields)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        return cls(cls.checked(task).model, **{**dataclasses.asdict(task.config), **fields})

    @property
    def file_fields(self) -> dict[str, Any]:
        return {"image_shape": self.image_shape, **dataclasses.asdict(self.preprocessing)}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        image_shape: tuple[int, int, int] = (64, 64, 3),
        **fields: Any,
    ) -> TrackedVideos:
        """Videos and the boxes of their objects."""
        refuse_columns(columns, f"{cls.name!r} reads no tables: {cls.files}")
        shape, canvas = shape_and_preprocessing(image_shape, Canvas(), **fields)
        return read_tracked_videos(paths, (1, *shape), canvas)

    @classmethod
    def describe(cls, examples: TrackedVideos) -> str:
        count = sum(len(np.unique(boxes.ids)) for boxes in examples.boxes)
        frames = sum(examples.videos.num_frames)
        return f"{len(examples.videos):,} videos of {frames:,} frames with {count:,} objects"

    def check_examples(self, examples: Any, /) -> TrackedVideos:
        """Videos, and boxes inside their frames, no more than the model finds."""
        shape = 1, *self.image_shape
        if not isinstance(examples, TrackedVideos):
            videos, boxes = checked_columns(examples, videos=not_video, boxes=not_list)
            refuse_empty(videos, "videos")
            files = VideoFiles([frames_in(video) for video in videos], shape, self.preprocessing)
            examples = TrackedVideos(files, checked_tracks(files, boxes))
        videos = examples.videos.as_clips(shape, self.preprocessing, examples.videos.sampling)
        examples = examples._replace(videos=videos)
        self.kind.check_examples(examples)
        return examples

    def batches(
        self, examples: TrackedVideos, training: TrackingTraining, is_validation: bool = False
    ) -> Batches:
        return self.kind.batches(examples, training, is_validation)

    def objective(self, training: Any) -> dict[str, Any]:
        return {"loss": self.model.loss_of_training()}

    def learner(self, training: Any) -> keras.Model:
        return self.model.learner()

    def measure(self, examples: TrackedVideos) -> dict[str, float]:
        """In percent. For many objects "mota", "idf1", "hota" and its parts, "id_switches", and beside them
        "idf1_of_true_boxes"; of one "auc" and "precision", and the same "_of_a_still_box".
        """
        return self.kind.measure(examples)

    def predict(
        self,
        videos: Any,
        /,
        *,
        box: Any = None,
        threshold: float | None = None,
        draw: Pictures | None = None,
        tracks: Pictures | None = None,
    ) -> list[dict[str, np.ndarray]]:
        """Where the objects of each video are.

        Args:
            videos: files, folders of frames or of MOT's, or arrays, as `VideoTask` has them.
            box: of a family for one object, where it is in the first frame: left, top, width and height in
                pixels, for all videos, as text or numbers; by default what the file beside the frames says.
            threshold: of a family for many, the score from which an object is followed, by default the
                configuration's.
            draw: a folder, or a file for each video, for GIFs with the boxes and identities over the frames.
            tracks: a folder, or a file for each video, for answers in MOT's format.

        Raises:
            ValueError: for what is no video, an option of the other kind, and a box outside of the frame.
        """
        videos, answers = self.answerable(listed_videos(videos)), []
        self._refuse_options(box, threshold)
        written = {
            name: new_pictures(videos, folder, self.picture_suffixes[name])
            for name, folder in (("draw", draw), ("tracks", tracks))
            if folder is not None
        }
        for row, source in enumerate(videos):
            try:
                video = opened_video(source)
                start = first_box(source, video, box) if self.kind.needs_box else None
                found = as_tracks(self.kind.follow(video, start, threshold=threshold))
                if "draw" in written:
                    draw_tracks(video, found, written["draw"][row])
            except Refused as refused:
                raise ValueError(f"row {row}: {refused}") from None
            if "tracks" in written:
                with new_file(written["tracks"][row]) as work:
                    write_mot(work, found)
            answers.append({name: getattr(found, name) for name in ("frames", "ids", "boxes", "scores")})
        return answers

    def _refuse_options(self, box: Any, threshold: float | None) -> None:
        """FieldError for an option of the other kind."""
        if box is not None and not self.kind.needs_box:
            raise FieldError("{} is of a family for one object; this one follows all.", Field("box"))
        if threshold is not None and self.kind.needs_box:
            raise FieldError("{threshold} is of a family for many objects; this one follows one.")

    def as_line(self, answer: dict[str, np.ndarray]) -> str:
        return rounded_line(answer, {"boxes": 2, "scores": 4})

    def as_value(self, answer: dict[str, np.ndarray]) -> Any:
        return json.loads(self.as_line(answer))

    def refusal(self, example: Any) -> str | None:
        try:
            opened_video(example)
        except Refused as refused:
            return str(refused)
        return None

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        refuse_columns(columns, f"{self.name!r} reads no tables: {self.files}")
        return inputs_in(pathlib.Path(path))

    def export_endpoints(self, *rest: Any, **options: Any) -> Endpoints:
        """A step from frame to frame, as pure functions: the state is an argument and a result.

        For many objects: this frame, the one before (the same for the first), and `track_states` and
        `track_boxes`, at first zeros; out come these for the next frame, `boxes` (B, Q, 4) and
        `expected_boxes` in pixels, and `scores` (B, Q), which `serving.tracks.associate` makes tracks of. Of
        one object: the first frame and the object's box in it, this frame and the last box; out come its
        `boxes` (B, 4) and `scores` (B,). Boxes are (left, top, right, bottom).
        """
        return self.kind.endpoints()
