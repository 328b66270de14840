"""The base class of tasks whose answers are frames of videos."""

import abc
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.configs import Count, Option, Refusal
from keras_tfm.data.batches.changed_clips import ChangedClipBatches
from keras_tfm.data.batches.degradations import as_bytes
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.videos import VideoFiles
from keras_tfm.heads.inpainting import SquaredInpaintingLoss
from keras_tfm.log import Bar
from keras_tfm.serving.examples import refuse_empty, refuse_single
from keras_tfm.tasks.baselines import Baselines
from keras_tfm.tasks.images.drawing import Pictures, new_pictures, pillow
from keras_tfm.tasks.images.likeness import WINDOW, likeness
from keras_tfm.tasks.learning import ModelOptions, with_side
from keras_tfm.tasks.signatures import Signature
from keras_tfm.tasks.trainable import TrainableTask
from keras_tfm.tasks.videos.video_task import VideoTask
from keras_tfm.training.folder import Path, new_file
from keras_tfm.training.model import Model
from keras_tfm.training.options import Training

LOSS = SquaredInpaintingLoss((1.0, 0.0))  # in the holes, or of the frames to come, alone
MILLISECONDS = 120  # that a frame of a GIF is shown


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrameConfig(Preprocessing):
    """The preprocessing of frames, and how far apart they are.

    Args:
        frame_step: which frames of a video follow each other: every N-th.
    """

    frame_step: Annotated[Count, Option("take every Nth frame of a video")] = 1


@dataclasses.dataclass(frozen=True)
class FrameOptions(ModelOptions):
    """A model of frames with fresh weights. Abstract."""

    model_class: ClassVar[Any]
    tiny: ClassVar[Any]  # its configuration of this package's own, for 64 x 64 pixels
    set_here: ClassVar[Mapping[str, str]] = {"num_frames": "--num-frames"}
    size: Annotated[str, Option("a published size, or tiny, for videos of about 64 x 64 pixels")] = "tiny"
    num_frames: Annotated[Count | None, Option("frames that the model reads", default="set by --size")] = None

    def base(self) -> Any:
        config = self.tiny if self.size == "tiny" else self.model_class.config_of_size(self.size)
        return config if self.num_frames is None else dataclasses.replace(config, num_frames=self.num_frames)


@dataclasses.dataclass(frozen=True)
class FrameTraining(Training):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("clips in a batch")] = 8
    flip: Annotated[bool, Option("mirror clips at random; turn it off where it changes what happens")] = True


class FrameTask(VideoTask, TrainableTask):
    """A task whose model learns what frames a rule does not know. Abstract.

    A subclass says how many frames `more` than the model's input a clip has, how a clip becomes `inputs` and
    targets (`change`), what a rule makes of the inputs (`by_rule`), and what the model adds (`added`).
    """

    name: str
    rule: ClassVar[str]  # in words
    last_layer: ClassVar[str]  # whose weights are zero at first, so that the rule alone answers
    reads: ClassVar[tuple[str, ...]] = ()  # what its models may read beside `videos`
    start = "a RUN of this task"
    files = "what train pretrain-videos reads: folders of videos, or of frames; labels are ignored"
    columns = (1, 2)
    unit = "videos"
    made_of_examples = False
    held_out = HeldOut(0.1, 200)
    training = FrameTraining(epochs=50, patience=None, schedule="cosine", learning_rate=2e-3)
    config_class = FrameConfig
    picture_suffixes: ClassVar[Mapping[str, str]] = {"draw": ".gif"}
    config: FrameConfig

    def __init__(self, model: keras.Model, config: FrameConfig | None = None, **fields: Any):
        self.config = config = dataclasses.replace(config or self.config_class(), **fields)
        family: Any = self.model_options
        if not isinstance(model, family.model_class) or not {*model.input} <= {"videos", *self.reads}:
            wanted = f"a {family.model_class.__name__} of videos alone"
            raise Refusal("model", wanted, f"a {type(model).__name__}")
        self.model = model
        self.take_videos(model)
        self.num_frames, height, width, channels = self.video_shape
        self.frame_shape = height, width, channels
        self.video_shape = self.num_frames + self.more, *self.frame_shape
        if min(height, width) < WINDOW:
            least = f"one of frames of at least {WINDOW} x {WINDOW} pixels"
            raise Refusal("model", least, f"one of {width} x {height}")

    # What a subclass defines -----------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def more(self) -> int:
        """How many frames a clip to learn from has beyond the model's input."""

    @abc.abstractmethod
    def change(self, videos: tf.Tensor, key: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Clips (B, T, H, W, C), from 0 to 1, as inputs by name, and targets (B, T', H, W, C + 1), of which
        the last channel is 1 where they are to be answered.
        """

    @abc.abstractmethod
    def by_rule(self, inputs: Mapping[str, Any]) -> Any:
        """The answer (B, T', H, W, C) of the rule to inputs."""

    @abc.abstractmethod
    def added(self, inputs: Mapping[str, Any]) -> Any:
        """What the model adds to it."""

    # What the base class does with it --------------------------------------------------------------------

    @classmethod
    def make(cls, examples: Any, options: Any, changes: Mapping[str, Any], **fields: Any) -> Self:
        config, make = cls.config_class(**fields), options.model_class
        values = vars(options.base()) | with_side(changes, fields)
        model = make(make.config_class.from_json(values))
        if cls.adds_to_rule(model):
            for weight in model.get_layer(cls.last_layer).weights:
                weight.assign(tf.zeros_like(weight))
        return cls(model, config)

    @classmethod
    def adds_to_rule(cls, model: keras.Model) -> bool:
        """Whether the model's output is added to the rule's answer."""
        return True

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        return cls(cls.checked(task).model, task.config, **fields)

    read_files = VideoTask.read_unlabelled

    def check_examples(self, examples: Any, /) -> VideoFiles:
        """Videos as clips of the model's size; ValueError for what is none, and for one with too few
        frames.
        """
        refuse_single(examples, "`videos`")
        videos = self.check_videos(examples)
        refuse_empty(videos, "videos")
        least = 1 + (self.video_shape[0] - 1) * self.config.frame_step
        for row, count in enumerate(videos.num_frames):
            if count < least:
                raise ValueError(f"{videos.place(row)}: expected at least {least} frames, got {count}")
        return videos

    def batches(
        self, examples: VideoFiles, training: FrameTraining, is_validation: bool = False
    ) -> ChangedClipBatches:
        learning: dict[str, Any] = {} if is_validation else {"seed": training.seed, "flip": training.flip}
        return ChangedClipBatches(examples, self.change, training.batch_size, **learning)

    def objective(self, training: FrameTraining) -> dict[str, Any]:
        return {"loss": LOSS}

    def learner(self, training: FrameTraining) -> keras.Model:
        shape = self.num_frames, *self.frame_shape
        names = {"videos": shape, **self.further_inputs}
        inputs = {name: keras.Input(each, name=name) for name, each in names.items()}
        return Model(inputs, self.by_rule(inputs) + self.added(inputs))

    @property
    def further_inputs(self) -> dict[str, tuple]:
        """{name: shape} of inputs beside `videos`."""
        return {}

    def answered(self, inputs: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """The answer to inputs, from 0 to 1 in 8 bits: (B, T', H, W, C)."""
        whole = self.by_rule(inputs) + tf.cast(self.added(inputs), tf.float32)
        return tf.cast(as_bytes(whole), tf.float32) / 255

    def baselines(self, examples: Any, validation: Any, seed: int) -> Baselines:
        loss, count = 0.0, 0
        for inputs, targets in self.batches(validation, self.training, is_validation=True).dataset():
            count += len(targets)
            loss += len(targets) * float(LOSS(targets, self.by_rule(inputs)))
        return Baselines("val_loss", "min", {self.rule: loss / count}, count)

    def measure(self, examples: VideoFiles) -> dict[str, Any]:
        """ "psnr" in decibels of what is answered, and "ssim" of the frames with it; the same of the rule,
        "rule_psnr" and "rule_ssim": means over the videos, the middle clip of each.
        """
        batches = self.batches(examples, self.training, is_validation=True)
        sums = np.zeros(4)
        for inputs, targets in Bar(batches.dataset(), "measuring", batches.num_batches, unit="batch"):
            sums += self._function("judge")(inputs, targets).numpy()
        return dict(
            zip(("psnr", "ssim", "rule_psnr", "rule_ssim"), map(float, sums / len(examples)), strict=True)
        )

    def _judge(self, inputs: dict[str, tf.Tensor], targets: tf.Tensor) -> tf.Tensor:
        good, damage = targets[..., :-1], targets[..., -1:]
        parts: list[tf.Tensor] = []
        for answer in (self.answered(inputs), self.by_rule(inputs)):
            parts += likeness(good, tf.where(damage > 0, answer, good), damage)
        return tf.reduce_sum(tf.stack(parts), -1)

    def _function(self, kind: str) -> Any:
        """The compiled form of `answered` or `_judge`."""
        function = self._judge if kind == "judge" else self.answered
        return self.traced(kind, lambda: tf.function(function, autograph=False, reduce_retracing=True))

    def _written(
        self, videos: Sequence[Any], made: Iterator[tuple[np.ndarray, np.ndarray]], draw: Pictures | None
    ) -> list[dict[str, Any]]:
        """The answers: of each of the videos the answer that is `made`, and what its GIF shows."""
        files = [None] * len(videos) if draw is None else new_pictures(videos, draw, ".gif")
        answers: list[dict[str, Any]] = []
        with Bar(total=len(videos), desc="answering", unit="video") as bar:
            for file, (answer, shown) in zip(files, made, strict=True):
                if file is not None:
                    write_gif(shown, file)
                answers.append({"video": answer, "file": file})
                bar.update()
        return answers

    def as_line(self, answer: dict[str, Any]) -> str:
        if answer["file"] is not None:
            return os.fspath(answer["file"])
        length, height, width = answer["video"].shape[:3]
        return f"{length} frames of {width} x {height}"

    def as_value(self, answer: dict[str, Any]) -> str:
        """The GIF's file or, without `draw`, the size."""
        return self.as_line(answer)

    def as_pngs(self, videos: tf.Tensor, length: int) -> dict[str, tf.Tensor]:
        """{"png": the bytes of PNG files (B, length)} of frames (B, length, H, W, C), from 0 to 1."""
        frames = tf.reshape(as_bytes(videos), (-1, *self.frame_shape))
        files = tf.map_fn(tf.io.encode_png, frames, fn_output_signature=tf.string)
        return {"png": tf.reshape(files, (-1, length))}

    def signature(self) -> Signature:
        raise self.no_other_format()


def write_gif(frames: np.ndarray, file: Path) -> None:
    """Write frames, 8-bit (T, H, W, C), to a GIF; ImportError where Pillow is missing."""
    PIL = pillow()
    pictures = [PIL.Image.fromarray(np.repeat(x, 3 // x.shape[-1], -1)) for x in frames]
    with new_file(file) as work:
        options = {"append_images": pictures[1:], "save_all": True, "duration": MILLISECONDS, "loop": 0}
        pictures[0].save(work, "GIF", **options)
