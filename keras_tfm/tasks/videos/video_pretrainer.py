"""Pre-training on videos without labels: the pixels of hidden tubes (Tong et al. 2022, "VideoMAE")."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Count, Depth, Option, Rate, Refusal
from keras_tfm.data.batches.augmentation import Augmentation
from keras_tfm.data.batches.crops import MaskedClipBatches
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.videos import FrameSpacing, VideoFiles
from keras_tfm.heads.masked_autoencoder import MaskedVideoAutoencoder, patch_loss
from keras_tfm.models import VideoMAE
from keras_tfm.tasks.columns import columns_of
from keras_tfm.tasks.images.pretraining import DecoderWidth
from keras_tfm.tasks.learning import with_side
from keras_tfm.tasks.pretraining import PretrainingTask
from keras_tfm.tasks.signatures import ColumnNames, Signature
from keras_tfm.tasks.task import make_backbone
from keras_tfm.tasks.videos.video_classifier import VideoClassifier
from keras_tfm.tasks.videos.video_families import VideoOptions
from keras_tfm.tasks.videos.video_task import VideoTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import ShareOfArea, Training


@dataclasses.dataclass(frozen=True)
class VideoPretrainerConfig(Preprocessing, FrameSpacing):
    """What a `VideoPretrainer` hides, the sizes of its decoder, the sampling and the preprocessing of videos.

    Args:
        mask_ratio: the share of places that is hidden, at all moments.
        decoder_layers: blocks of the decoder.
        decoder_dim: its width, a multiple of 32.
    """

    mask_ratio: Annotated[Rate, Option("share of the places of a frame that is hidden, in all frames")] = 0.9
    decoder_layers: Annotated[Depth, Option("blocks of the decoder")] = 2
    decoder_dim: Annotated[DecoderWidth, Option("width of the decoder, a multiple of 32")] = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder_dim % 32:
            raise Refusal("decoder_dim", "a multiple of 32", self.decoder_dim)


@dataclasses.dataclass(frozen=True)
class VideoPretrainerOptions(VideoOptions):
    """A `VideoMAE` with fresh weights."""

    family: Annotated[Literal["videomae"], Option("kind of model, whose encoder reads visible parts")] = (
        "videomae"
    )


@dataclasses.dataclass(frozen=True)
class PretrainVideosTraining(Training):
    """All frames of a video are changed alike. By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("videos in a batch")] = 32
    flip: Annotated[bool, Option("mirror videos at random; turn it off where it changes what happens")] = True
    least_area: Annotated[ShareOfArea, Option("smallest share of a frame's area in a random crop")] = 0.5


class VideoPretrainer(VideoTask, PretrainingTask):
    """Pre-trains a `VideoMAE` without labels: it predicts the pixels of hidden tubes.

    Labels of the videos are only used by `evaluate`. `predict` and `export` give the mean of the encoder's
    states on whole videos, of length 1. A `VideoClassifier` starts from the task.

    >>> sizes = {"num_frames": 4, "image_size": 16, "patch_size": 8, "num_layers": 1, "dim": 32}
    >>> backbone = keras_tfm.models.VideoMAE.from_size("B/16", num_heads=2, intermediate_dim=64, **sizes)
    >>> task = keras_tfm.tasks.VideoPretrainer(backbone)
    >>> history = task.fit(np.zeros((16, 6, 16, 16, 3), "uint8"), epochs=1)
    >>> task.predict(np.zeros((2, 6, 16, 16, 3), "uint8")).shape
    (2, 32)
    """

    name = "pretrain-videos"
    start = "a RUN of this task"
    files = "what train classify-videos reads; or a folder of videos; labels are ignored"
    unit = "videos"
    training = PretrainVideosTraining(
        epochs=100, patience=None, learning_rate=1e-3, schedule="cosine", weight_decay=0.05
    )
    model_options = VideoPretrainerOptions
    config_class = VideoPretrainerConfig

    def __init__(self, backbone: keras.Model, config: VideoPretrainerConfig | None = None):
        self.config = config or VideoPretrainerConfig()
        if not isinstance(backbone, VideoMAE):
            raise ValueError(f"`backbone` must be a VideoMAE; it is a {type(backbone).__name__}.")
        dim, scaling = self.config.decoder_dim, {"mean": self.config.mean, "std": self.config.std}
        layers, ratio = self.config.decoder_layers, self.config.mask_ratio
        self.model = MaskedVideoAutoencoder(backbone, ratio, layers, dim, dim // 32, 4 * dim, **scaling)
        self.take_videos(backbone)

    @classmethod
    def make(
        cls, examples: Any, options: VideoPretrainerOptions, changes: Mapping[str, Any], **fields: Any
    ) -> Self:
        config = VideoPretrainerConfig(**fields)
        changes = with_side(changes, fields)
        return cls(options.model(changes), config)

    read_files = VideoTask.read_unlabelled

    def read_examples(self, paths: Sequence[Path], columns: ColumnNames = None, **options: Any) -> Any:
        """(videos, names of their classes), which `evaluate` takes."""
        return VideoClassifier.read_files(paths, columns, **self.file_fields)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """The task itself if its configuration stays the same, else a new task around its backbone, whose
        head has the other's weights where all sizes stay.
        """
        config = dataclasses.replace(cls.checked(task).config, **fields)
        if config == task.config:
            return task
        made = cls(task.model.backbone, config)
        if [x.shape for x in made.model.weights] == [x.shape for x in task.model.weights]:
            made.model.set_weights(task.model.get_weights())
        return made

    @property
    def encoder(self) -> keras.Model:
        """A copy of what was learnt: a model from videos to `pooled_output`."""
        return self.model.backbone.encoder(pooling="mean")

    def check_inputs(self, videos: Any) -> VideoFiles:
        return self.check_videos(videos)

    def batches(
        self, examples: Any, training: PretrainVideosTraining, is_validation: bool = False
    ) -> MaskedClipBatches:
        learning: Mapping[str, Any] = {
            "seed": training.seed,
            "augmentation": Augmentation("light", training.flip, training.least_area),
        }
        return MaskedClipBatches(
            columns_of(examples)[0],
            self.prepare,
            training.batch_size,
            self.model.examples,
            self.model.input["noise"].shape[1],
            **({} if is_validation else learning),
        )

    def objective(self, training: PretrainVideosTraining) -> dict[str, Any]:
        return {"loss": patch_loss()}

    def _encode(self, videos: tf.Tensor) -> tf.Tensor:
        """Raw clips (B, T, H, W, C) to vectors (B, D) of length 1. Runs in a graph."""
        states = self.model.backbone({"videos": self.prepare(videos)}, training=False)["sequence_output"]
        vectors = tf.reduce_mean(tf.cast(states, tf.float32), axis=1)  # (B, D)
        return tf.math.l2_normalize(vectors, axis=-1)

    def predict(self, videos: Any, /, *, batch_size: int = 8) -> np.ndarray:
        """The vectors of the videos, of length 1: an array (N, D)."""
        return self.outputs(videos, "vector", self.model.backbone.config.dim, batch_size)

    def signature(self) -> Signature:
        return self.signature_of(lambda videos: {"vector": self._encode(videos)}, {"kind": "arrays"})

    @classmethod
    def load_parts(cls, folder: pathlib.Path, config: VideoPretrainerConfig, model: dict[str, Any]) -> Self:
        return cls(make_backbone(model), config)
