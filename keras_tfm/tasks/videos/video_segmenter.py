"""Segmenting videos: the masks of each object in all frames of a clip (Wang et al. 2021, "VisTR")."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Between, Count, Natural, Option, Refusal
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.batches.segmented_clips import SegmentedClipBatches
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.segments import MOST_NAMES, SegmentSets
from keras_tfm.data.sources.tracked_videos import frame_size, pixels_of
from keras_tfm.data.sources.video_segments import (
    KINDS,
    VideoSegments,
    frames_of,
    one_below_the_other,
    read_video_segments,
)
from keras_tfm.data.sources.videos import FrameSpacing, VideoFiles
from keras_tfm.heads.clip_detector import ClipSegmenter
from keras_tfm.models import VisTR
from keras_tfm.serving.examples import (
    checked_columns,
    listed,
    not_list,
    not_video,
    refuse_empty,
    refuse_rows,
    refuse_unknown,
)
from keras_tfm.serving.video_files import Video, clip_of
from keras_tfm.tasks.images.average_precision import mask_precision
from keras_tfm.tasks.images.drawing import Pictures, new_pictures
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.records import rounded_line
from keras_tfm.tasks.segmentation.drawing import OPACITY, colour_of
from keras_tfm.tasks.segmentation.examples import mask_problem
from keras_tfm.tasks.segmentation.segments import instance_masks
from keras_tfm.tasks.signatures import ColumnNames, Endpoints, Signature
from keras_tfm.tasks.task import load_any, refuse_columns
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.tasks.videos.frame_task import FrameOptions, write_gif
from keras_tfm.tasks.videos.video_task import VideoTask, refuse_cuts, shape_and_sampling, video_shape_of
from keras_tfm.training.folder import Path
from keras_tfm.training.options import PartlyTrained

NUM_MAPS = 4  # of the backbone, as in the published model, or fewer where it has no more


@dataclasses.dataclass(frozen=True, kw_only=True)
class VideoSegmenterConfig(Preprocessing, FrameSpacing):
    """How frames are prepared and chosen, and what is answered.

    Args:
        class_names: different strings, in the order of the logits.
        threshold: the score from which `predict` returns an object.
    """

    class_names: tuple[str, ...]
    threshold: Annotated[
        Annotated[float, Between(0, 1)], Option("the score, from 0 to 1, from which an object is returned")
    ] = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(set(self.class_names)) == len(self.class_names) <= MOST_NAMES:
            raise Refusal("class_names", f"1 to {MOST_NAMES} different strings", self.class_names)
        refuse_cuts(self, "masks")


@dataclasses.dataclass(frozen=True)
class VideoSegmenterOptions(FrameOptions):
    """A `VisTR` with fresh weights."""

    model_class: ClassVar[Any] = VisTR

    def base(self) -> Any:
        config = VisTR.config_of_size(self.size)
        if self.num_frames is None:
            return config
        objects = config.num_queries // config.num_frames
        changes = {"num_frames": self.num_frames, "num_queries": objects * self.num_frames}
        return dataclasses.replace(config, **changes)


@dataclasses.dataclass(frozen=True)
class VideoSegmentationTraining(PartlyTrained):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("clips in a batch")] = 8
    max_shift: Annotated[
        Natural, Option("shift clips at random by up to N pixels in each direction, filling with zeros")
    ] = 0
    flip: Annotated[bool, Option("mirror clips at random; turn it off for letters and digits")] = True


class VideoSegmenter(VideoTask, FineTunedTask):
    """Videos to the masks of their objects in all frames of a clip, by a `VisTR` as `backbone`, or one with a
    head.

    Examples are `data.VideoSegments`, or (videos, masks, labels): of each video masks (M, T, H, W), 0 or 1,
    of its objects in all of its T frames, and M names. An answer has the "labels" and "scores" of N objects,
    the surest first, their "masks" (N, F, H, W), boolean, of the video's own size, and the "frames" (F,) of
    the clip, by their numbers from 1. `fields` are fields of `VideoSegmenterConfig`.

    >>> sizes = {"image_size": 32, "num_layers": 1, "num_decoder_layers": 1, "num_queries": 8}
    >>> network = {"stem_dim": 8, "dims": [8], "depths": [1], "block": "basic"}
    >>> backbone = keras_tfm.models.VisTR.from_size("tiny", **sizes, backbone_config=network)
    >>> task = keras_tfm.tasks.VideoSegmenter(backbone, ["cat", "dog"])
    >>> videos, masks = np.zeros((4, 6, 32, 32, 3), "uint8"), [np.ones((1, 6, 32, 32), "bool")] * 4
    >>> history = task.fit((videos, masks, [["cat"]] * 4), epochs=1)
    >>> sorted(task.predict(videos[:1])[0])
    ['frames', 'labels', 'masks', 'scores']
    """

    name = "segment-videos"
    start = "a RUN of this task"
    files = KINDS
    unit = "videos"
    digits = 2
    held_out = HeldOut(0.1, 200)
    examples_class = VideoSegments
    training = VideoSegmentationTraining(
        epochs=50, patience=None, learning_rate=1e-3, schedule="cosine", weight_decay=1e-4
    )
    optimizer_options = {"global_clipnorm": 0.1}  # Wang et al. 2021, as DETR
    model_options = VideoSegmenterOptions
    make_head = ClipSegmenter
    config_class = VideoSegmenterConfig
    picture_suffixes: ClassVar[Mapping[str, str]] = {"draw": ".gif"}
    config: VideoSegmenterConfig

    def __init__(self, backbone: keras.Model, class_names: Sequence[str], **fields: Any):
        self.config = VideoSegmenterConfig(class_names=tuple(class_names), **fields)
        self.class_names = list(self.config.class_names)
        if isinstance(backbone, VisTR):
            maps = min(NUM_MAPS, len(backbone.maps))
            self.model: Any = ClipSegmenter(backbone, len(self.class_names), maps)
        elif isinstance(backbone, ClipSegmenter):
            self.model = backbone
        else:
            raise Refusal("backbone", "a VisTR", f"a {type(backbone).__name__}")
        if self.model.num_classes != len(self.class_names):
            raise Refusal("class_names", f"{self.model.num_classes}, as the head has", len(self.class_names))
        self.take_videos(self.model.backbone)
        self.most = self.model.backbone.config.num_queries // self.video_shape[0]  # objects of a clip

    @classmethod
    def make(
        cls,
        examples: VideoSegments,
        options: VideoSegmenterOptions,
        changes: Mapping[str, Any],
        **fields: Any,
    ) -> Self:
        values = dataclasses.asdict(options.base()) | with_side(changes, fields)
        return cls(VisTR(VisTR.config_class.from_json(values)), examples.segments.names, **fields)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        return cls(cls.checked(task).model, **{**dataclasses.asdict(task.config), **fields})

    @classmethod
    def reading(
        cls, options: VideoSegmenterOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            return cls.checked(load_any(start)).file_fields
        return {"video_shape": video_shape_of(dataclasses.replace(options.base(), **changes))}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        video_shape: tuple[int, int, int, int] = (4, 64, 64, 3),
        **fields: Any,
    ) -> VideoSegments:
        """Videos, of the shape, sampling and preprocessing that the fields describe, and their objects."""
        refuse_columns(columns, f"{cls.name!r} reads no tables: {cls.files}")
        shape, preprocessing, sampling = shape_and_sampling(video_shape, **fields)
        return read_video_segments(paths, shape, preprocessing, sampling)

    @classmethod
    def describe(cls, examples: VideoSegments) -> str:
        return f"{len(examples.videos):,} videos with {sum(examples.segments.counts):,} objects"

    def check_examples(self, examples: Any, /) -> VideoSegments:
        """Videos, and the masks of objects of the task's classes, no more than the model finds."""
        if isinstance(examples, VideoSegments):
            examples = examples._replace(videos=self.check_videos(examples.videos))
        else:
            kinds = {"videos": not_video, "masks": not_list, "labels": not_list}
            videos, masks, labels = checked_columns(examples, **kinds)
            videos = self.check_videos(videos)
            given = zip(videos.videos, masks, labels, strict=True)
            checked = [_checked(row, *each) for row, each in enumerate(given)]
            examples = VideoSegments.of(videos, checked, labels, self.class_names)
        refuse_empty(examples.videos, "videos")
        names = (name for each in examples.segments.segments for name, _ in each)
        refuse_unknown(names, self.class_names, "labels")
        for row, count in enumerate(examples.segments.counts):
            if count > self.most:
                expected = f"expected at most {self.most} objects, the model's, got {count:,}"
                raise ValueError(f"{examples.videos.place(row)}: {expected}")
        return examples

    def batches(
        self, examples: VideoSegments, training: VideoSegmentationTraining, is_validation: bool = False
    ) -> SegmentedClipBatches:
        order: dict[str, Any] = {}
        if not is_validation:
            order = {"seed": training.seed, "max_shift": training.max_shift, "flips": training.flip}
        return SegmentedClipBatches(examples, self.class_names, self.prepare, training.batch_size, **order)

    def objective(self, training: VideoSegmentationTraining) -> dict[str, Any]:
        return {"loss": self.model.loss_of_training()}

    def learner(self, training: VideoSegmentationTraining) -> keras.Model:
        return self.model.learner()

    def answered(self, videos: tf.Tensor) -> dict[str, tf.Tensor]:
        """`scores` (B, n, C), the mean probability of each class over the frames, and `masks` (B, n, F, rows,
        columns), logits, of the n objects in raw clips (B, F, H, W, C) of the model's size.
        """
        shape = tf.ones(tf.concat([tf.shape(videos)[:1], self.video_shape[:3]], 0), tf.bool)
        outputs = self.model({"videos": self.prepare(videos), "video_mask": shape}, training=False)
        logits, masks = (
            tf.reshape(tf.cast(outputs[name], tf.float32), (-1, self.video_shape[0], self.most, *rest))
            for name, rest in (("logits", (len(self.class_names) + 1,)), ("masks", self.model.grid))
        )
        scores = tf.reduce_mean(tf.nn.softmax(logits), axis=1)[..., :-1]
        return {"scores": scores, "masks": tf.transpose(masks, (0, 2, 1, 3, 4))}

    def predict(  # type: ignore[override]  # of one video after another
        self, videos: Any, /, *, threshold: float | None = None, draw: Pictures | None = None
    ) -> list[dict[str, Any]]:
        """The objects of the middle clip of each video of a score of `threshold`, by default the
        configuration's, and above.

        With `draw`, a folder or a file for each video, GIFs with the masks over the frames are written there.
        ValueError for the first video that is broken.
        """
        videos = listed(self.as_list(videos))
        refuse_rows(self.refusals(videos))
        least = self.config.threshold if threshold is None else threshold
        answers = list(self._found(self.check_videos(videos), least))
        if draw is not None:
            files = new_pictures(videos, draw, ".gif")
            for video, answer, file in zip(self.check_videos(videos).videos, answers, files, strict=True):
                write_gif(_drawn(video, answer), file)
        return answers

    def _found(self, videos: VideoFiles, threshold: float) -> Iterator[dict[str, Any]]:
        answer = self.traced(
            "clip", lambda: tf.function(self.answered, autograph=False, reduce_retracing=True)
        )
        for video in videos.videos:
            places = self.sampling.places(video.times, video.end, self.video_shape[0])
            found = answer(tf.constant(clip_of(video, places, videos.fitted)[None]))
            height, width = frame_size(video)
            scores, masks = found["scores"][0], found["masks"][0]  # (n, C), (n, F, rows, columns)
            flat = tf.reshape(masks, (-1, *self.model.grid, 1))
            size = (len(places) * height, width)
            tubes = tf.reshape(tf.image.resize(flat, (height, width)), (-1, *size))
            no_class = tf.concat([scores, tf.nn.relu(1 - tf.reduce_sum(scores, -1, keepdims=True))], -1)
            chosen = instance_masks(tf.math.log(no_class + 1e-9), tubes, tf.constant(size), threshold)
            yield {
                "labels": [self.class_names[number] for number in chosen["classes"].numpy()],
                "scores": chosen["scores"].numpy(),
                "masks": frames_of(chosen["masks"].numpy(), len(places)),
                "frames": places + 1,
            }

    def measure(self, examples: VideoSegments) -> dict[str, Any]:
        """YouTube-VIS's average precision of the masks of objects in all frames of the middle clip, "ap",
        "ap50" and "ap75", from 0 to 100: an overlap is the intersection over the union of the pixels of all
        frames.
        """
        answers = list(self._found(examples.videos, 0.0))
        truth, labels = [], []
        for video, answer, (tubes, names) in zip(
            examples.videos.videos, answers, examples.segments, strict=True
        ):
            shown = one_below_the_other(frames_of(tubes, len(video))[:, answer["frames"] - 1])
            seen = np.flatnonzero(shown.any(axis=(1, 2)))
            truth.append(shown[seen])
            labels.append([names[number] for number in seen])
        found = ({**answer, "masks": one_below_the_other(answer["masks"])} for answer in answers)
        return mask_precision(SegmentSets.of(truth, labels, self.class_names), found)

    def as_line(self, answer: dict[str, Any]) -> str:
        parts = {name: answer[name] for name in ("frames", "labels", "scores")}
        return rounded_line(parts | {"areas": answer["masks"].sum(axis=(2, 3))}, {"scores": 4})

    def as_value(self, answer: dict[str, Any]) -> Any:
        """What `as_line` writes: no masks."""
        return json.loads(self.as_line(answer))

    def signature(self) -> Signature:
        raise self.no_other_format()

    def export_endpoints(self) -> Endpoints:
        """`scores` (B, n, C) of classes and `masks` (B, n, F, rows, columns), logits, of the n objects of
        clips: the bytes of their frames' image files, `frame_bytes` (B, F), or decoded ones, `videos`.
        """

        def of_files(frame_bytes: tf.Tensor) -> dict[str, tf.Tensor]:
            return self.answered(self.decoded_frames(frame_bytes))

        files = tf.TensorSpec([None, self.video_shape[0]], tf.string, "frame_bytes")
        videos = tf.TensorSpec([None, *self.video_shape], tf.float32, "videos")
        return {"serving_default": (of_files, [files]), "videos": (self.answered, [videos])}


def _checked(row: int, video: Video, masks: Any, labels: Sequence[str]) -> np.ndarray:
    """Masks (M, T, H, W), boolean, of a video; ValueError for others."""
    size = len(video), *frame_size(video)
    found = np.asarray(masks) if len(masks) else np.zeros((0, *size), bool)
    if problem := mask_problem(found, labels, size):
        raise ValueError(f"video {row}: {problem}")
    return found


def _drawn(video: Video, answer: dict[str, Any]) -> np.ndarray:
    """The frames of an answer (F, H, W, 3), each object in a colour of its own."""
    places, numbers = np.unique(answer["frames"] - 1, return_inverse=True)
    frames = np.stack([pixels_of(frame, 3) for frame in video.frames(places)])[numbers].astype("float32")
    for number, masks in enumerate(answer["masks"]):
        mixed = (1 - OPACITY) * frames + OPACITY * np.array(colour_of(number))
        frames = np.where(masks[..., None], mixed, frames)
    return np.round(frames).astype("uint8")
