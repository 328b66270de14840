"""What tasks share that learn vectors of images or videos without labels."""

import abc
from typing import Any

import numpy as np

from keras_tfm.data.batches.epochs import HeldOut
from keras_tfm.serving.examples import check_column, not_id, refuse_empty, refuse_single
from keras_tfm.tasks.images.image_encoder import ImageEncoder
from keras_tfm.tasks.images.probes import probed
from keras_tfm.tasks.media import MediaTask
from keras_tfm.tasks.trainable import TrainableTask


class PretrainingTask(MediaTask, TrainableTask):
    """A task that learns without labels, and whose `predict` gives vectors of length 1. Labels are only used
    by `evaluate`. Abstract.
    """

    columns = (1, 2)
    made_of_examples = False
    held_out = HeldOut(0.05, 1_000)

    @abc.abstractmethod
    def check_inputs(self, inputs: Any) -> Any:
        """The inputs in the form that `batches` takes; ValueError for anything else."""

    def check_examples(self, examples: Any) -> Any:
        """Inputs, or (inputs, labels) with labels as an array (B,)."""
        if not isinstance(examples, tuple):
            return self._checked(examples)
        if len(examples) != 2 or len(examples[0]) != len(examples[1]):
            raise ValueError(f"examples: expected {self.unit}, or ({self.unit}, labels) of one length.")
        check_column(examples[1], "labels", not_id)
        return self._checked(examples[0]), np.asarray(examples[1])

    def _checked(self, inputs: Any) -> Any:
        refuse_single(inputs, f"`{self.unit}`")
        inputs = self.check_inputs(inputs)
        refuse_empty(inputs, self.unit)
        return inputs

    def measure(self, examples: tuple[Any, np.ndarray], seed: int = 0) -> dict[str, Any]:
        """How well vectors predict the labels of a fifth of the examples, drawn by `seed`, from the labelled
        others.

        "neighbour_accuracy" (0 to 1) lets the 20 nearest vectors vote; "probe_accuracy" uses a softmax
        regression on the vectors. The baseline "pixel_accuracy" lets the nearest examples by normalised
        pixels vote.
        """
        if not isinstance(examples, tuple):
            raise ValueError(
                f"examples: expected ({self.unit}, labels), since labels are needed to test the vectors."
            )
        inputs, labels = examples
        return probed(self.predict(inputs), np.asarray(inputs), labels, seed)

    def as_line(self, answer: np.ndarray) -> str:
        return ImageEncoder.as_line(answer)
