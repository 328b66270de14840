"""How large a model is, by parts: parameters, multiply-adds, memory, counted from shapes alone.

Multiply-adds count the matrix products and convolutions of one example, as the traced graph has them; what is
left out (softmax, normalisation, activations, look-ups) is a few percent. One is two FLOPs.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.private.keras import shapes_alone

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
PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative", "Conv3D")
LOOPS = ("While", "StatelessWhile")
NUMBER = 4  # bytes, float32
LENGTH = 128  # tokens, where an input has any number of them and nothing is said


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


def size_of(model: keras.Model, length: int | None = None) -> Size:
    """How large a functional `model` is, for one example of `length` tokens, by default 128, or as many as it
    takes. A model that was made in `shapes_alone()` is counted too, and never filled in.

    >>> model = keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100)
    >>> size = keras_tfm.visualize.size_of(model, length=10)
    >>> size.parameters == model.count_params(), size.multiply_adds
    (True, 3999744)
    """
    length = min(LENGTH, getattr(_config_of(model), "max_length", LENGTH)) if length is None else length
    with shapes_alone():
        operations, has_length = _operations(model, length)
    parameters: dict[str, int] = {}
    for weight in model.weights:
        if weight.dtype.startswith(("float", "bfloat")):
            name = part_of(weight.path)
            parameters[name] = parameters.get(name, 0) + int(np.prod(weight.shape))
    has_loop = any(operation.type in LOOPS for operation in operations)
    multiply_adds: dict[str, int] = {}
    activations = largest = 0
    for operation in operations:
        if operation.type in (*PRODUCTS, *CONVOLUTIONS):
            name, output = part_of(operation.name), _numbers(operation.outputs)
            multiply_adds[name] = multiply_adds.get(name, 0) + _multiply_adds(operation)
            activations += output
            largest = max(largest, output + _numbers(operation.inputs))
    names = [name for name in (*PARTS, "other") if name in parameters or name in multiply_adds]
    parts = {
        name: Part(parameters.get(name, 0), None if has_loop else multiply_adds.get(name, 0))
        for name in names
    }
    return Size(parts, length if has_length else None, None if has_loop else activations, largest)


def part_of(path: str) -> str:
    """The part of a model that the path of a weight, or of an operation in its graph, belongs to."""
    names = [re.sub(r"_\d+$", "", name) for name in path.split("/")[:-1]]
    for part, pattern in PARTS.items():
        if any(re.fullmatch(pattern, re.sub(r"_\d+$", "", name)) for name in names):
            return part
    return "other"


def _config_of(model: keras.Model) -> Any:
    return getattr(getattr(model, "backbone", model), "config", None)


def _operations(model: keras.Model, length: int) -> tuple[list[Any], bool]:
    """The operations of the graph that answers one example, and whether it has a length."""
    inputs = keras.tree.flatten(model.input)
    specs = [tf.TensorSpec([1, *(length if n is None else n for n in x.shape[1:])], x.dtype) for x in inputs]

    def answer(*tensors: tf.Tensor) -> Any:
        return model(keras.tree.pack_sequence_as(model.input, tensors), training=False)

    graph = tf.function(answer, autograph=False).get_concrete_function(*specs).graph
    return graph.get_operations(), any(None in x.shape[1:] for x in inputs)


def _numbers(tensors: Any) -> int:
    return sum(x.shape.num_elements() or 0 for x in tensors)


def _multiply_adds(operation: Any) -> int:
    """Multiply-adds of a matrix product or a convolution with known shapes."""
    first, second = (list(x.shape) for x in operation.inputs[:2])
    output = operation.outputs[0].shape.num_elements()
    if operation.type == "Einsum":
        sides, _ = operation.get_attr("equation").decode().split("->")
        letters: dict[str, int] = {}
        for names, shape in zip(sides.split(","), (first, second), strict=True):
            others = "ABCDEFGH"[
                : len(shape) - len(names.replace("...", ""))
            ]  # the axes that "..." stands for
            letters.update(zip(names.replace("...", others), shape, strict=True))
        return int(np.prod(list(letters.values())))
    if operation.type == "MatMul":
        return output * first[0 if operation.get_attr("transpose_a") else 1]
    if operation.type in PRODUCTS:
        return output * first[-2 if operation.get_attr("adj_x") else -1]
    if operation.type == "DepthwiseConv2dNative":
        return output * second[0] * second[1]
    return output * int(np.prod(second[:-1]))  # the kernel's sides and the channels of a group
