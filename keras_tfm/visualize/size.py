"""How large a model is, by parts: parameters, multiply-adds, memory, counted from shapes alone.

Multiply-adds count the matrix products and convolutions of one example, as the traced graph has them; what is
left out (softmax, normalisation, activations, look-ups) is a few percent. One is two FLOPs.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_tfm.private.keras import shapes_alone
from keras_tfm.visualize.parts import PARTS, Part, Size, part_of

PRODUCTS = ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative", "Conv3D")
LOOPS = ("While", "StatelessWhile")
LENGTH = 128  # tokens, where an input has any number of them and nothing is said


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
