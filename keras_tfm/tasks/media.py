"""The base class of tasks that read images or videos: files and arrays, a portion of them at a time."""

import abc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from keras_tfm.serving.examples import listed
from keras_tfm.tasks.asking import AskedTask
from keras_tfm.tasks.signatures import Inspection


class MediaTask(AskedTask):
    """A task whose examples are files, by paths or bytes, or arrays. Abstract."""

    reads_lines = False

    @abc.abstractmethod
    def as_list(self, examples: Any) -> Any:
        """A single file as a list, and files that were checked as what the reader takes; all else as it
        is.
        """

    def each(
        self, examples: Any, batch_size: int, finish: Callable | None = None, plan: list | None = None
    ) -> Iterator[tuple[int, Any]]:
        return super().each(self.as_list(examples), batch_size, finish, plan)

    def inspect(self, examples: Any, **options: Any) -> Inspection:
        return super().inspect(self.as_list(examples))

    def refusals(self, examples: Any, **options: Any) -> dict[int, str]:
        examples = listed(self.as_list(examples))
        found: dict[int, str] = {}
        for first in range(0, len(examples), self.portion):
            part = self.inspect(examples[first : first + self.portion], **options).refusals
            found |= {first + row: reason for row, reason in part.items()}
        return found

    def outputs(self, examples: Any, name: str, width: int, batch_size: int) -> np.ndarray:
        """The answers' entry of this `name` for all examples, (B, width); ValueError for a broken file."""
        found = [answer[name] for answer in self.ask(examples, batch_size)]
        return np.array(found, "float32").reshape(-1, width)
