"""ONNX, for onnxruntime: one file with any number of rows of any length."""

import contextlib
import logging

import numpy as np

EXTRA = "onnx"
PACKAGES = ("onnx", "onnxruntime", "tf2onnx")
OPSET = 18  # the highest that tf2onnx writes


def write(function, folder, quantization):
    """Write model.onnx; "int8" keeps the weights of products in 8 bits, and rounds what they are multiplied
    by to 8 bits as it comes.
    """
    import tf2onnx

    path = folder / "model.onnx"
    traced = function.function(weights_apart=True)  # tf2onnx copies its graph for each of its optimisers
    with _quiet():
        model, _ = tf2onnx.convert.from_function(traced, traced.input_signature, opset=OPSET)
    _refuse_foreign(model)
    _put_in(function.weights(), model.graph)
    _divide_before_erf(model.graph)
    path.write_bytes(model.SerializeToString())
    if quantization is not None:
        _quantize(path)
    return None, None


def _refuse_foreign(model):
    """Raise ValueError for operations that ONNX has not: tf2onnx leaves TensorFlow's as they are."""
    import onnx

    kinds = {node.op_type for node in model.graph.node if not node.domain}
    unknown = sorted(kind for kind in kinds if not onnx.defs.has(kind, OPSET))
    if unknown:
        raise ValueError(f"onnx has no operation {', '.join(unknown)}, which this model needs")


def _put_in(weights, graph):
    """Make those inputs of the graph that are `weights`, {name: array}, its constants."""
    import onnx

    kept = [node for node in graph.input if node.name not in weights]
    graph.initializer.extend(
        onnx.numpy_helper.from_array(weights[node.name], node.name)
        for node in graph.input
        if node.name in weights
    )
    del graph.input[:]
    graph.input.extend(kept)


def _divide_before_erf(graph):
    """x / sqrt 2 in GELU, by which onnxruntime recognises it: tf2onnx has made it a product."""
    import onnx

    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        product = makers.get(node.input[0]) if node.op_type == "Erf" else None
        if product is None or product.op_type != "Mul":
            continue
        factors = [name for name in product.input if name in constants]
        value = onnx.numpy_helper.to_array(constants[factors[0]]) if factors else np.zeros(0)
        if value.size != 1:
            continue
        divisor = onnx.numpy_helper.from_array((1 / value).astype(value.dtype), f"{product.name}/divisor")
        graph.initializer.append(divisor)
        x = next(name for name in product.input if name not in factors)
        product.CopyFrom(onnx.helper.make_node("Div", [x, divisor.name], product.output, product.name))


def _quantize(path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kinds = ["MatMul", "Gemm", "Gather"]
    with _quiet():
        quantize_dynamic(
            path, path, op_types_to_quantize=kinds, per_channel=True, weight_type=QuantType.QInt8
        )


@contextlib.contextmanager
def _quiet():
    """A scope without the log of these packages: what they cannot do is told by an error."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
