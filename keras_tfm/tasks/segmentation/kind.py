"""The kinds of segmentation: a `Segmenter` delegates to an object of one of them."""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_tfm.data.batches.epochs import Batches
from keras_tfm.tasks.signatures import Endpoints
from keras_tfm.training.folder import Path
from keras_tfm.training.options import SegmentationTraining

if TYPE_CHECKING:
    from keras_tfm.tasks.segmentation.segmenter import Segmenter


class SegmentationKind(abc.ABC):
    """How a `task` learns and answers one kind of segmentation. Abstract; the methods are the task's of the
    same name, or a part of them.
    """

    def __init__(self, task: "Segmenter"):
        self.task = task

    @abc.abstractmethod
    def check_examples(self, examples: Any, /) -> Any:
        """The examples in the form that the other methods take; ValueError for others."""

    @abc.abstractmethod
    def batches(self, examples: Any, training: SegmentationTraining, is_validation: bool) -> Batches:
        """The batches to train on, or those for validation."""

    @abc.abstractmethod
    def answers(self, images: tf.Tensor, sizes: np.ndarray, threshold: float) -> list[dict[str, Any]]:
        """The answers to raw images of the model's size (B, H, W, C), whose own `sizes` are (B, 2)."""

    @abc.abstractmethod
    def draw(self, images: Any, found: Sequence[dict[str, Any]], folder: Path) -> None:
        """Write the images, with what was `found` over them, to a `folder`."""

    @abc.abstractmethod
    def write(self, images: Any, found: Sequence[dict[str, Any]], folder: Path) -> None:
        """Write the masks that were `found` to a `folder`."""

    @abc.abstractmethod
    def as_line(self, answer: dict[str, Any]) -> str:
        """An answer as JSON."""

    @abc.abstractmethod
    def measure(self, examples: Any) -> dict[str, Any]:
        """How good the answers to `examples` are."""

    @abc.abstractmethod
    def export_endpoints(self) -> Endpoints:
        """The signatures of the export."""
