"""An exported folder as `predict` asks a task: by `keras_tfm.serving` alone, without TensorFlow unless the
export is a SavedModel.
"""

import argparse
import os
import pathlib
from typing import Any

from keras_tfm import serving
from keras_tfm.asking import Asking, Batched
from keras_tfm.cli.columns import TableOptions
from keras_tfm.cli.console import quiet_tensorflow
from keras_tfm.cli.generated import flag_of, given
from keras_tfm.cli.tables import as_json
from keras_tfm.data.sources.lines import DataError, Inputs, files_of, read_input_lines
from keras_tfm.data.sources.rows import is_table
from keras_tfm.serving.answering import Answerer, ReadExamples
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.image_headers import FORMATS
from keras_tfm.serving.readers import OF_FILES

# The entries of which one is an answer as a line; others, and boxes, are printed as JSON.
LINES = ("label", "tags", "text", "answer", "choice")
IMAGE_FILES = tuple(f".{name}" for name in ("jpg", *(kind.lower() for kind in FORMATS)))


def exported(folder: str) -> "Exported":
    """The export in `folder`."""
    content = serving.describe(folder, check=False)
    is_saved_model = content.get("format") == "saved_model"
    if is_saved_model:
        quiet_tensorflow()
    served: Any = serving.load(folder)
    names = served.inputs if is_saved_model else ()
    if (serving.served.NAMED | {"frame_bytes"}) & {*names}:  # a clip is chosen before its frames are given
        raise ValueError(
            f"{folder}: it takes {', '.join(sorted(names))}, which no line or file gives: ask it in Python, "
            "by keras_tfm.serving"
        )
    reads = content.get("reads", {})
    task = Exported(content.get("task", "an export"), served, reads.get("max_length"))
    kind = reads.get("kind")
    task.reads_lines = kind not in OF_FILES and not {"image_bytes", "images", "videos", "points"} & {*names}
    task.endings = IMAGE_FILES if kind in (None, "images", "canvas") and "points" not in names else None
    return task


class Exported:
    """What answers raw examples as `keras_tfm.serving` does, with what `predict` asks of a task."""

    writes_texts, portion, answer_names, is_trained, reads_lines = False, None, None, True, True
    asking: Asking = Batched()
    record_fields = ("answer",)
    endings: tuple[str, ...] | None = None  # of the files that it reads

    def __init__(self, name: str, served: Any, max_length: int | None = None):
        self.name, self.served = name, served
        self.config = argparse.Namespace(max_length=max_length)

    def read_inputs(self, path: str, columns: Any = None) -> Inputs:
        """The lines of a text file, or files: one, all of a pattern, or all of the kind in a folder;
        DataError for a table, whose lines are no examples.
        """
        if self.reads_lines:
            if table := next(filter(is_table, files_of(path)), None):
                raise DataError(table, None, "a RUN reads tables, an export lines: give these by --data -")
            return read_input_lines(path)
        files = [file for part in files_of(path) for file in _files_in(pathlib.Path(part), self.endings)]
        if not files:
            raise DataError(path, None, "expected files of images, videos or points, there are none")
        return ((str(file), str(file)) for file in files)

    def inspect(self, examples: list) -> tuple[dict[int, str], int, list]:
        """The refusals, how many of the others are cut, and the others."""
        if not isinstance(self.served, Answerer):
            return {}, 0, examples
        read, refusals = self.served.inspect(examples)
        rest = [row for row in range(len(examples)) if row not in refusals]
        asked = ReadExamples([examples[row] for row in rest], [read[row] for row in rest])
        return refusals, sum(is_cut for _, is_cut in asked.read), asked

    def refusals(self, examples: list) -> dict[int, str]:
        """{row: reason} of the examples that get no answer."""
        return self.inspect(examples)[0]

    def predict(self, examples: list, batch_size: int = 64) -> list[Any]:
        """{name: value} for each example, as the export gives it; `Refused` for one that a SavedModel, which
        `inspect` does not ask, cannot answer.
        """
        if isinstance(self.served, Answerer):
            return self.served.ask(examples, batch_size)
        firsts = range(0, len(examples), batch_size)
        return [answer for first in firsts for answer in self._ask(examples[first : first + batch_size])]

    def _ask(self, examples: list) -> list[Any]:
        """The answers of a SavedModel in one call, or in two of halves where it cannot answer one of them."""
        try:
            answers = self.served(examples)
        except ValueError as error:
            if len(examples) == 1:
                return [Refused(str(error).removeprefix("row 0: "))]
            half = len(examples) // 2
            return self._ask(examples[:half]) + self._ask(examples[half:])
        return [dict(zip(answers, row, strict=True)) for row in zip(*answers.values(), strict=True)]

    def records(self, examples: list, **options: Any) -> list[Any]:
        """The answers, each as "answer", or `Refused`; numbers and names as JSON has them."""
        answers = self.predict(examples, **options)
        return [answer if isinstance(answer, Refused) else {"answer": answer} for answer in answers]

    def as_line(self, answer: dict[str, Any]) -> str:
        """An answer as a line of text."""
        first = next((answer[name] for name in LINES if name in answer), None)
        return as_json(answer) if first is None else str(first).replace("\n", " ")


def refuse_options(arguments: argparse.Namespace, *config_classes: type) -> None:
    """Raise ValueError for options that an export does not take: they were fixed when it was written."""
    for kind in (TableOptions, *config_classes):
        for name in given(arguments, kind):
            raise ValueError(f"{flag_of(kind, name)}: {arguments.task_folder} is an export, which has none")
    if arguments.columns is not None:
        raise ValueError(f"--columns: {arguments.task_folder} is an export, which reads no tables")


def _files_in(path: pathlib.Path, endings: tuple[str, ...] | None) -> list[pathlib.Path]:
    """The file at `path`, or the files in this folder, of these `endings` or of any."""
    if not path.is_dir():
        return [path]
    files = (pathlib.Path(parent, name) for parent, _, names in os.walk(path) for name in names)
    return sorted(file for file in files if endings is None or file.suffix.lower() in endings)
