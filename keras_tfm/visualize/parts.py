"""The parts of a model, and its size in numbers. This file imports neither Keras nor TensorFlow."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

# A weight or operation belongs to the first part whose pattern fits a name in its path.
PARTS = {
    "normalization": r"(.*_)?norm(_.*)?",
    "cross-attention": r"context_attention",
    "attention": r"(.*_)?attention",
    "feed-forward": r"feedforward|mlp|.*_mixing|switch|experts",
    "embedding": r"(.*_)?embedding|patch.*|stem|(.*_)?position|.*token",
    "convolution": r"(.*_)?convolution",
    "recurrence": r"rnn|(.*_)?cell|.*lstm|.*gru",
    "head": r"(.*_)?head|pooler|classifier|logits|dense",
}
NUMBER = 4  # bytes, float32


@dataclasses.dataclass(frozen=True)
class Part:
    """How many parameters a part has, and how many multiply-adds it takes for one example; None where a
    loop hides them.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> keras_tfm.visualize.size_of(model).parts["attention"]
    Part(parameters=132096, multiply_adds=25165824)
    """

    parameters: int = 0
    multiply_adds: int | None = 0


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a model is: `parts` by name, `length` the tokens of the example that was counted, None of
    images. `activations` are how many numbers its products give out, None where a loop hides them.

    Memory is estimated for float32. Inference: 4 bytes for each parameter, and for each of the numbers that
    the largest product takes in and gives out. Training by AdamW: 16 bytes for each parameter (it, its
    gradient, two moments) and, for each of `activations`, 8: what a product gives out is kept for the
    gradients, and so is as much again of what stands between the products.

    >>> size = keras_tfm.visualize.size_of(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> list(size.parts), size.training_bytes(batch_size=8) > size.inference_bytes(batch_size=8)
    (['normalization', 'attention', 'feed-forward', 'embedding', 'head'], True)
    """

    parts: Mapping[str, Part]
    length: int | None
    activations: int | None
    largest: int

    @property
    def parameters(self) -> int:
        """The parameters of all parts; weights that are shared count once."""
        return sum(part.parameters for part in self.parts.values())

    @property
    def multiply_adds(self) -> int | None:
        """The multiply-adds of all parts, for one example."""
        counts = [part.multiply_adds for part in self.parts.values()]
        return None if None in counts else sum(count for count in counts if count is not None)

    def inference_bytes(self, batch_size: int = 1) -> int:
        """Memory to answer `batch_size` examples at once."""
        return NUMBER * (self.parameters + batch_size * self.largest)

    def training_bytes(self, batch_size: int = 1) -> int | None:
        """Memory of a training step of `batch_size` examples."""
        if self.activations is None:
            return None
        return 4 * NUMBER * self.parameters + 2 * NUMBER * batch_size * self.activations

    def table(self) -> list[dict[str, Any]]:
        """A row for each part, the last one the whole: "part", "parameters", "multiply_adds"."""
        whole = Part(self.parameters, self.multiply_adds)
        return [{"part": name, **vars(part)} for name, part in (*self.parts.items(), ("all", whole))]


def part_of(path: str) -> str:
    """The part of a model that the path of a weight, or of an operation in its graph, belongs to."""
    names = [re.sub(r"_\d+$", "", name) for name in path.split("/")[:-1]]
    for part, pattern in PARTS.items():
        if any(re.fullmatch(pattern, re.sub(r"_\d+$", "", name)) for name in names):
            return part
    return "other"
