"""The bases of tasks that learn from pairs of an image, or a video, and a text."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import keras

from keras_tfm.configs import Count, Natural, Option, Refusal
from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.data.sources.image_texts import (
    ImageTexts,
    VideoTexts,
    read_image_texts,
    read_video_texts,
)
from keras_tfm.data.sources.preprocessing import Preprocessing
from keras_tfm.data.sources.videos import FrameSpacing
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens
from keras_tfm.serving.examples import as_columns
from keras_tfm.tasks.image_text.pairs import checked_texts, hold_out_pairs, tokens_of, tokens_of_all
from keras_tfm.tasks.images.image_task import (
    ImageTask,
    image_shape_of,
    shape_and_preprocessing,
    with_image_size,
)
from keras_tfm.tasks.learning import ModelOptions
from keras_tfm.tasks.signatures import ColumnNames
from keras_tfm.tasks.task import load_any
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.tasks.videos.video_task import VideoTask, shape_and_sampling, video_shape_of
from keras_tfm.training.folder import Path
from keras_tfm.training.options import PartlyTrained


@dataclasses.dataclass(frozen=True)
class SeenConfig(Preprocessing, FrameSpacing):
    """How images, or the frames of videos, are prepared, and which frames of a video make a clip."""


@dataclasses.dataclass(frozen=True)
class SeenOptions(ModelOptions):
    """A model with fresh weights that sees images or videos. Abstract."""

    def config(self, changes: Mapping[str, Any]) -> Any:
        """The configuration of the chosen size with the `changes`."""
        base: Any = self.base()
        return dataclasses.replace(base, **changes)


@dataclasses.dataclass(frozen=True)
class MatchTraining(PartlyTrained):
    """By default the warm-up takes a tenth of the steps."""

    batch_size: Annotated[Count, Option("pairs in a batch; each is contrasted with all others in it")] = 64
    max_shift: Annotated[
        Natural, Option("shift images at random by up to N pixels in each direction, filling with zeros")
    ] = 0


class ImageTextTask(ImageTask, FineTunedTask):
    """A task whose examples are (images, texts), one pair per row. Abstract.

    A subclass defines the special tokens of a text (`around`) and how many tokens are read (`max_length`).
    It names in `of_videos` a subclass of its own, of which it makes an object for a model of videos.
    """

    files = (
        "an image's path, in the folder of the file, and its text in .tsv, .csv or .jsonl (plain, .gz, .xz); "
        "a folder of images, a .txt of the same name beside each, or with such a metadata.jsonl or .csv; or "
        "images and texts in .parquet files or tfds:NAME[/CONFIG][:VERSION]#SPLIT; for a model of videos "
        "the same with videos, each a file or a folder of frames"
    )
    columns = (2,)
    unit = "pairs"
    examples_class: ClassVar[Any] = ImageTexts
    held_out = HeldOut(0.05, 1_000)
    seen: ClassVar[str] = "images"  # the model's input
    of_videos: ClassVar[Any] = None

    def __new__(cls, model: keras.Model, *rest: Any, **fields: Any) -> Self:
        is_of_videos = "videos" in model.input and issubclass(cls.of_videos or object, cls)
        return super().__new__(cls.of_videos if is_of_videos else cls)

    def take_images(self, backbone: keras.Model) -> None:
        super().take_images(backbone)
        for field in dataclasses.fields(FrameSpacing):
            if (value := getattr(self.config, field.name)) is not None:
                raise Refusal(field.name, "left out: the model reads images, no videos", value)

    @staticmethod
    def resized(backbone: keras.Model, image_size: int | None) -> keras.Model:
        """The backbone with its weights, for images of another size; see `with_image_size`."""
        return with_image_size(backbone, image_size)

    @property
    @abc.abstractmethod
    def around(self) -> SpecialTokens:
        """The ids before and after each text."""

    @property
    @abc.abstractmethod
    def max_length(self) -> int:
        """How many tokens of a text are read, with the special ones."""

    @property
    def encoder(self) -> keras.Model:
        raise ValueError(f"A {self.name!r} task has no encoder of images alone that others could go on with.")

    @classmethod
    def reading(
        cls, options: SeenOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            task = load_any(start) if is_task_folder(start) else cls.published()(start)
            return cls.adopt(task, None).file_fields
        config = options.config(changes)
        if getattr(config, "num_frames", None) is not None:
            return {"video_shape": video_shape_of(config)}
        return {"image_shape": image_shape_of(config)}

    @classmethod
    def read_files(
        cls,
        paths: Sequence[Path],
        columns: ColumnNames = None,
        video_shape: tuple[int, int, int, int] | None = None,
        **fields: Any,
    ) -> Any:
        """Read images, in the shape from `shape_and_preprocessing`, and their texts; with a `video_shape`
        videos, in the shape from `shape_and_sampling`.
        """
        if video_shape is not None:
            size, preprocessing, sampling = shape_and_sampling(video_shape, **fields)
            return read_video_texts(paths, size, columns, preprocessing, sampling)
        shape, preprocessing = shape_and_preprocessing(**fields)
        return read_image_texts(paths, shape, columns, preprocessing)

    @classmethod
    def adopt(cls, task: Any, examples: Any, **fields: Any) -> Self:
        """The task with fields of its configuration replaced, or this task if none change."""
        make: Any = cls
        config = dataclasses.replace(cls.checked(task).config, **fields)
        return task if config == task.config else make(task.model, task.tokenizer, config)

    def check_examples(self, examples: Any) -> Any:
        """Checked (images, texts) of equal number; texts must be strings that are not blank."""
        images, texts = as_columns(examples, self.seen, "texts")
        images = self.check_images(images)
        return self.examples_class(images, checked_texts(texts, len(images), self.seen))

    def hold_out(self, examples: Any, share: float | None, seed: int, /) -> tuple[Any, Any]:
        """Hold out images together with all of their texts."""
        return hold_out_pairs(examples, self.held_out if share is None else HeldOut(share), seed)

    def tokens(self, texts: Any) -> dict[str, Any]:
        """Ragged "token_ids" (B, None), cut to `max_length`, and their "lengths" (B,) before the cut."""
        return tokens_of(texts, self.tokenizer, self.around, self.max_length)

    def encode_all(self, texts: Sequence[str]) -> dict[str, Any]:
        """Ragged "token_ids" (N, None) of many texts; the log says how many were cut."""
        return tokens_of_all(texts, self.tokenizer, self.around, self.max_length)

    def tell_cut(self, texts: Sequence[str]) -> None:
        """Warn how many of the strings have more tokens than the model reads, if any have."""
        self.encode_all(texts)


class VideoTextTask(VideoTask, ImageTextTask):
    """What a task of images and texts changes for videos: its examples are (videos, texts). Abstract."""

    examples_class = VideoTexts
    seen = "videos"

    def take_images(self, backbone: keras.Model) -> None:
        self.take_videos(backbone)
        self.image_shape = self.video_shape[1:]  # of a frame

    def check_images(self, images: Any) -> Any:
        return self.check_videos(images)

    @staticmethod
    def resized(backbone: keras.Model, image_size: int | None) -> keras.Model:
        """The backbone: `take_videos` refuses another size."""
        return backbone
