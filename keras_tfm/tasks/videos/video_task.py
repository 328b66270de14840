"""The base class of tasks that read videos: what they take as videos, and how it becomes the model's
input.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.asking import VIDEOS
from keras_tfm.configs import Refusal
from keras_tfm.data.sources.lines import Inputs
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.videos import Sampling, VideoFiles, read_unlabelled_videos, read_videos
from keras_tfm.serving.examples import check_column, not_video
from keras_tfm.tasks.images.decoded import is_file
from keras_tfm.tasks.images.image_task import (
    NUM_EXAMPLES,
    check_channels,
    preprocessing_in,
    resizing_entries,
    shape_and_preprocessing,
)
from keras_tfm.tasks.media import MediaTask
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import Task
from keras_tfm.tasks.videos.decoded import DecodedVideos, listed_videos
from keras_tfm.training.folder import Path

FIELDS = tuple(field.name for field in dataclasses.fields(Sampling))


class VideoTask(MediaTask):
    """A task that reads videos. Its `config` is a `Preprocessing` and a `Sampling`, its model reads an input
    `videos`.

    Videos are files, each by its path or its bytes, or folders of frames, one alone or a list; or arrays (B,
    T, H, W, C), or a list of arrays (T, H, W, C), with 8-bit values or floats from 0 to 1. The sampling says
    which frames make a clip of the model's length; a video of that length is a clip as it is.
    """

    input_files = VIDEOS
    video_shape: tuple[int, int, int, int]

    def take_videos(self, backbone: keras.Model) -> None:
        """Note the size of the model's videos; ValueError if `config` is for other channels or another
        size, or if the model reads no videos.
        """
        if "videos" not in backbone.input:
            raise ValueError(f"expected a model of videos, got one of {', '.join(backbone.input)}")
        self.video_shape = tuple(backbone.input["videos"].shape[1:])
        check_channels(self.config, self.video_shape[-1])
        height, width = self.video_shape[1:3]
        side = self.config.image_size
        if side is not None and (height, width) != (side, side):
            raise Refusal("image_size", f"{height}, the side of the model's videos", side)

    @property
    def preprocessing(self) -> Preprocessing:
        """How frames become the model's input."""
        return preprocessing_in(self.config)

    @property
    def sampling(self) -> Sampling:
        """Which frames make a clip."""
        return sampling_in(self.config)

    def prepare(self, videos: np.ndarray | tf.Tensor) -> tf.Tensor:
        """Raw videos (B, T, H, W, C) as the model's input. Works in a graph and eagerly."""
        videos = tf.convert_to_tensor(videos)
        length, height, width, channels = self.video_shape
        frames = tf.reshape(videos, (-1, *videos.shape[2:]))  # (B T, H, W, C)
        frames = self.config.prepared(frames, height, width)
        return tf.reshape(frames, (-1, length, height, width, channels))

    def decoded_frames(self, files: tf.Tensor) -> tf.Tensor:
        """The bytes of frames' image files (B, F) as raw 8-bit frames (B, F, H, W, C) of the model's size."""
        shape = self.video_shape[1:]
        frames = tf.map_fn(
            lambda data: self.preprocessing.decoded(data, *shape),
            tf.reshape(files, [-1]),
            fn_output_signature=tf.TensorSpec(shape, tf.uint8),
        )
        return tf.reshape(frames, (-1, files.shape[1], *shape))

    def check_videos(self, videos: Any) -> VideoFiles:
        """The videos as clips of the model's shape; ValueError for anything else."""
        if isinstance(videos, VideoFiles):
            return videos.as_clips(self.video_shape, self.preprocessing, self.sampling)
        if is_file(videos):
            videos = [videos]
        check_column(videos, "videos", not_video)
        found = VideoFiles(list(videos), self.video_shape, self.preprocessing, self.sampling)
        channels = self.video_shape[-1]
        for row, video in enumerate(found.sources):
            shape = np.shape(video) if isinstance(video, np.ndarray) else ()
            if shape and (shape[3:] or (1,)) != (channels,):
                raise ValueError(f"`videos`, row {row}: expected (T, H, W, {channels}), got {shape}")
        return found

    @property
    def own_reader(self) -> DecodedVideos:
        """Reads videos as the training does, and as SavedModels do."""
        return DecodedVideos(self.video_shape, self.preprocessing, self.sampling)

    @property
    def portion(self) -> Any:
        return self.own_reader.portion

    def as_list(self, videos: Any) -> Any:
        return listed_videos(videos)

    def read_inputs(self, path: Path, columns: ColumnNames = None) -> Inputs:
        return read_videos(path, columns)

    @property
    def file_fields(self) -> dict[str, Any]:
        return {
            "video_shape": self.video_shape,
            "preprocessing": self.preprocessing,
            "sampling": self.sampling,
        }

    @classmethod
    def read_unlabelled(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        video_shape: tuple[int, int, int, int] = (8, 64, 64, 3),
        **fields: Any,
    ) -> VideoFiles:
        """Videos, of the shape, sampling and preprocessing that the fields describe: the `read_files` of
        tasks that learn without labels.
        """
        shape, preprocessing, sampling = shape_and_sampling(video_shape, **fields)
        return read_unlabelled_videos(paths, shape, columns, preprocessing, sampling)

    def signature_of(
        self, run: Callable[[tf.Tensor], dict[str, tf.Tensor]], answers: dict[str, Any]
    ) -> Signature:
        """The `Signature` of the function `run` of raw clips (B, T, H, W, C) of the model's size."""
        examples = np.random.default_rng(0).integers(0, 256, (NUM_EXAMPLES, *self.video_shape), "uint8")
        return Signature(
            reads={
                "kind": "videos",
                "shape": list(self.video_shape),
                **resizing_entries(self.preprocessing),
                **dataclasses.asdict(self.sampling),
            },
            function=lambda inputs: run(inputs["videos"]),
            inputs={"videos": tf.TensorSpec([None, *self.video_shape], tf.float32)},
            answers=answers,
            examples=list(examples),
        )


def check_reads_videos(task: Task) -> Any:
    """The task, unchanged; ValueError if it does not read videos."""
    if not isinstance(task, VideoTask):
        raise ValueError(f"--from: a {task.name!r} task reads no videos")
    return task


def sampling_in(config: Any) -> Sampling:
    """The part of a task's configuration that says which frames make a clip."""
    return Sampling(**{name: getattr(config, name) for name in FIELDS if hasattr(config, name)})


def shape_and_sampling(
    video_shape: tuple[int, int, int, int],
    preprocessing: Preprocessing | None = None,
    sampling: Sampling | None = None,
    **fields: Any,
) -> tuple[tuple[int, int, int, int], Preprocessing, Sampling]:
    """The shape, the preprocessing and the sampling with which videos are read; `fields` replace theirs, as
    in `shape_and_preprocessing`.
    """
    shape, preprocessing = shape_and_preprocessing(video_shape[1:], preprocessing, **fields)
    chosen = {name: fields[name] for name in FIELDS if name in fields}
    return (video_shape[0], *shape), preprocessing, dataclasses.replace(sampling or Sampling(), **chosen)


def refuse_cuts(config: Preprocessing, what: str) -> None:
    """Raise Refusal for frames that are cut or padded, where `what`, such as "masks", is of whole frames."""
    for name, usual in (("keep_aspect", False), ("crop_fraction", 1.0)):
        if (value := getattr(config, name)) != usual:
            raise Refusal(name, f"{usual}: {what} are of whole frames, which are stretched", value)


def video_shape_of(config: Any) -> tuple[int, int, int, int]:
    """The (frames, height, width, channels) of the videos that a model of this configuration reads."""
    height, width = np.broadcast_to(config.image_size, 2).tolist()
    return config.num_frames, height, width, config.num_channels
