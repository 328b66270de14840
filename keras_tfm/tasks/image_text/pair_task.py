"""The base of tasks that learn from pairs of an image and a text."""

import abc
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import keras
import numpy as np

from keras_tfm.configs import Count, Natural, Option
from keras_tfm.data.batches.encoding import in_chunks, surround
from keras_tfm.data.batches.epochs import HeldOut, hold_out
from keras_tfm.data.sources.image_texts import ImageTexts, identities, read_image_texts
from keras_tfm.data.tokenizers.tokenizer import SpecialTokens
from keras_tfm.serving.examples import as_columns, listed
from keras_tfm.tasks.image_text.retrieval import distinct
from keras_tfm.tasks.images.image_task import ImageTask, image_shape_of, shape_and_preprocessing
from keras_tfm.tasks.learning import ModelOptions, rows_of
from keras_tfm.tasks.signatures import ColumnNames
from keras_tfm.tasks.task import Task, load_any
from keras_tfm.tasks.task_folder import is_task_folder
from keras_tfm.tasks.trainable import FineTunedTask
from keras_tfm.training.folder import Path
from keras_tfm.training.options import PartlyTrained

LOG = logging.getLogger(__name__)


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
    """

    files = (
        "an image's path, in the folder of the file, and its text in .tsv, .csv or .jsonl (plain, .gz, .xz); "
        "a folder of images, a .txt of the same name beside each, or with such a metadata.jsonl or .csv; or "
        "images and texts in .parquet files or tfds:NAME[/CONFIG][:VERSION]#SPLIT"
    )
    columns = (2,)
    unit = "pairs"
    examples_class = ImageTexts
    held_out = HeldOut(0.05, 1_000)

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
        cls, options: ModelOptions, changes: Mapping[str, Any], start: Path | None = None
    ) -> dict[str, Any]:
        if start is not None:
            read: Any = cls
            task = load_any(start) if is_task_folder(start) else read.from_huggingface(start)
            return cls.adopt(task, None).file_fields
        base: Any = options.base()
        return {"image_shape": image_shape_of(dataclasses.replace(base, **changes))}

    @classmethod
    def read_files(cls, paths: Sequence[Path], columns: ColumnNames = None, **fields: Any) -> ImageTexts:
        """Read images, in the shape from `shape_and_preprocessing`, and their texts."""
        shape, preprocessing = shape_and_preprocessing(**fields)
        return read_image_texts(paths, shape, columns, preprocessing)

    @classmethod
    def adopt(cls, task: Task, examples: Any, **fields: Any) -> Self:
        """The task with fields of its configuration replaced, or this task if none change."""
        if not isinstance(task, cls):
            raise ValueError(f"--from: expected a {cls.name!r} task, got a {task.name!r} one")
        make: Any = cls
        config = dataclasses.replace(task.config, **fields)
        return task if config == task.config else make(task.model, task.tokenizer, config)

    def check_examples(self, examples: Any) -> ImageTexts:
        """Checked (images, texts) of equal number; texts must be strings that are not blank."""
        images, texts = as_columns(examples, "images", "texts")
        images, texts = self.check_images(images), listed(texts, "`texts`")
        if not len(images):
            raise ValueError("`images` must not be empty.")
        if len(texts) != len(images):
            raise ValueError(f"`texts` must be one for each of {len(images)} images; there are {len(texts)}.")
        for row, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"row {row}: expected a text, got {text!r:.60}")
        return ImageTexts(images, texts)

    def hold_out(
        self, examples: ImageTexts, share: float | None, seed: int, /
    ) -> tuple[ImageTexts, ImageTexts]:
        """Hold out images together with all of their texts."""
        rows, ids = distinct(identities(examples.images))
        parts = hold_out(len(rows), seed, self.held_out if share is None else HeldOut(share))
        train, held = (rows_of(examples, np.flatnonzero(np.isin(ids, part))) for part in parts)
        return train, held

    def tokens(self, texts: Any) -> dict[str, Any]:
        """Ragged "token_ids" (B, None), cut to `max_length`, and their "lengths" (B,) before the cut."""
        prefix, suffix = self.around
        pieces = self.tokenizer.tokenize(texts)
        room = max(0, self.max_length - len(prefix) - len(suffix))
        lengths = pieces.row_lengths() + len(prefix) + len(suffix)
        return {"token_ids": surround(pieces[:, :room], prefix, suffix), "lengths": lengths}

    def encode_all(self, texts: Sequence[str]) -> dict[str, Any]:
        """Ragged "token_ids" (N, None) of many texts; the log says how many were cut."""
        packed = in_chunks(self.tokens, texts)
        lengths = packed.pop("lengths").numpy()
        if num_cut := int((lengths > self.max_length).sum()):
            LOG.warning(
                "%s of %s texts exceed %s tokens and are cut there.",
                f"{num_cut:,}", f"{len(lengths):,}", self.max_length,
            )  # fmt: skip
        return packed

    def tell_cut(self, texts: Sequence[str]) -> None:
        """Warn how many of the strings have more tokens than the model reads, if any have."""
        self.encode_all(texts)
