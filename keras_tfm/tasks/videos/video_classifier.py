"""Video classification: a model of videos, a head, and the sampling and preprocessing of raw videos."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Count, Option
from keras_tfm.data.batches.clips import ClipBatches
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.videos import Sampling, VideoFiles, read_labelled_videos
from keras_tfm.tasks.classes import Augmented, ClassesConfig, VisualClassifyingTask
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import load_any
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.tasks.videos.video_families import VideoOptions
from keras_tfm.tasks.videos.video_task import (
    VideoTask,
    check_reads_videos,
    shape_and_sampling,
    video_shape_of,
)
from keras_tfm.training.folder import Path
from keras_tfm.training.options import PartlyTrained


@dataclasses.dataclass(frozen=True)
class VideoClassifierConfig(ClassesConfig, Sampling):
    """The classes, the head, the sampling and the preprocessing of a `VideoClassifier`.

    Args:
        class_names: strings, or integers, in the order of the logits.
        hidden_dim: width of a hidden layer of the head, or None.
        dropout: dropout rate before the head's last layer.
    """


@dataclasses.dataclass(frozen=True)
class VideoTraining(Augmented, PartlyTrained):
    """All frames of a video are changed alike. By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("videos in a batch")] = 32


class VideoClassifier(VideoTask, VisualClassifyingTask):
    """Names what happens in each video, by a `backbone` of videos with a `pooled_output`, such as `ViViT`.

    Args:
        backbone: a model without a head, which gets a new one, or a model with its head.
        class_names: strings, or integers, in the order of the logits.
        options: further fields of `VideoClassifierConfig`.

    Videos are what `VideoTask` describes. A label is a class name; if names are strings, it may also be their
    index. In training each epoch shows other clips of a video; `predict` and `evaluate` answer the mean over
    `num_views` clips.

    >>> names, sizes = ["up", "down"], {"num_frames": 4, "image_size": 16, "tubelet_size": (2, 8, 8)}
    >>> task = keras_tfm.tasks.VideoClassifier.from_size("tiny", names, **sizes, num_layers=1)
    >>> videos = np.repeat(np.arange(0, 240, 10, "uint8"), 2 * 16 * 16 * 3).reshape(8, 6, 16, 16, 3)
    >>> history = task.fit((videos, names * 4), epochs=1)
    >>> task.predict(videos).shape
    (8,)
    """

    name = "classify-videos"
    start = "a RUN of this task or of pretrain-videos, or a folder or hub id of transformers"
    files = (
        "a folder with a folder of videos per class, each a file (mp4, webm, mkv, avi, mov, gif) or a folder "
        "of frames; a .csv, .tsv or .jsonl table of paths, relative to it, and labels; videos and labels in "
        ".parquet files or tfds:NAME[/CONFIG][:VERSION]#SPLIT; or a .txt list with a path and a label in "
        "each line"
    )
    unit = "videos"
    top = 5
    training = VideoTraining(epochs=30, patience=None, schedule="cosine", weight_decay=0.05)
    given_weights = types.MappingProxyType({"learning_rate": 1e-4})
    model_options = VideoOptions
    config_class = VideoClassifierConfig
    make_batches = ClipBatches
    processor = "VideoMAEImageProcessor"

    @classmethod
    def from_size(cls, size: str, class_names: Any, **changes: Any) -> Self:
        """A classifier with a `ViViT` of this size, or a "tiny" one, and fresh weights.

        `changes` replace fields of the size's configuration, for example `num_frames=8`; ValueError for an
        unknown size or field.
        """
        return cls(VideoOptions(size=size).model(changes), class_names)

    def take(self, backbone: keras.Model) -> None:
        self.take_videos(backbone)

    @property
    def input_size(self) -> str:
        return "{} frames of {} x {} pixels".format(*self.video_shape)

    # Fewer at once than images: a video is some sixteen of them.

    def predict(self, videos: Any, /, *, probabilities: bool = False, batch_size: int = 8) -> np.ndarray:
        return super().predict(videos, probabilities=probabilities, batch_size=batch_size)

    def records(
        self, videos: Any, /, *, probabilities: bool = False, batch_size: int = 8
    ) -> list[dict[str, Any]]:
        return super().records(videos, probabilities=probabilities, batch_size=batch_size)

    def probabilities(self, videos: Any, /, batch_size: int = 8) -> np.ndarray:
        return super().probabilities(videos, batch_size)

    @classmethod
    def reading(
        cls, options: VideoOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            # A published model without a head gets one of any classes: the rest counts here.
            of_any = None, np.array(["0", "1"])
            task = load_any(start) if is_task_folder(start) else cls.from_huggingface(start, of_any)
            return check_reads_videos(task).file_fields
        return {"video_shape": video_shape_of(dataclasses.replace(options.base(), **changes))}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        video_shape: tuple[int, int, int, int] = (16, 64, 64, 3),
        preprocessing: Preprocessing | None = None,
        sampling: Sampling | None = None,
        **fields: Any,
    ) -> tuple[VideoFiles, np.ndarray]:
        """Videos, of the shape, sampling and preprocessing that the fields describe, and the names of their
        classes.
        """
        shape, preprocessing, sampling = shape_and_sampling(video_shape, preprocessing, sampling, **fields)
        found = read_labelled_videos(paths, shape, columns, preprocessing, sampling)
        return found.videos, np.array(found.class_names)[found.labels]

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """A classifier with the other's sampling and preprocessing, and its head if that knows the examples'
        classes.
        """
        task = check_reads_videos(task)
        if isinstance(task, cls) and set(np.unique(examples[1]).tolist()) <= set(map(str, task.class_names)):
            return cls(task.model, **dataclasses.asdict(task.config) | fields)
        kept = dataclasses.asdict(task.preprocessing) | dataclasses.asdict(task.sampling)
        return cls(task.encoder, np.unique(examples[1]), **kept | fields)

    def __call__(self, batch: Any, training: bool = False) -> tf.Tensor:
        """Logits (B, classes) for raw videos, or for {"videos": raw videos}."""
        videos = batch["videos"] if isinstance(batch, dict) else batch
        return self.model({"videos": self.prepare(np.asarray(self.check_videos(videos)))}, training=training)

    def check_inputs(self, videos: Any) -> VideoFiles:
        return self.check_videos(videos)

    def classify(self, videos: tf.Tensor) -> tf.Tensor:
        """Raw clips (B, T, H, W, C) to probabilities (B, classes). Runs in a graph."""
        logits = self.model({"videos": self.prepare(videos)}, training=False)
        return tf.nn.softmax(tf.cast(logits, tf.float32))

    def signature(self) -> Signature:
        answers = {"kind": "classes", "labels": [str(name) for name in self.class_names]}
        return self.signature_of(lambda videos: {"probabilities": self.classify(videos)}, answers)
