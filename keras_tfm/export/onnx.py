"""ONNX, for onnxruntime: one file with any number of rows of any length."""

import logging

EXTRA = "onnx"
PACKAGES = ("onnx", "onnxruntime", "tf2onnx")
OPSET = 18  # the highest that tf2onnx writes


def write(function, folder, quantization):
    """Write model.onnx; "int8" keeps the weights of products in 8 bits, and rounds what they are multiplied
    by to 8 bits as it comes.
    """
    import tf2onnx

    path = folder / "model.onnx"
    traced = function.function()
    logger = logging.getLogger("tf2onnx")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what it cannot convert is told by the error
    try:
        model, _ = tf2onnx.convert.from_function(traced, traced.input_signature, opset=OPSET)
    finally:
        logger.setLevel(level)
    _refuse_foreign(model)
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


def _quantize(path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        path,
        path,
        op_types_to_quantize=["MatMul", "Gemm", "Gather"],
        per_channel=True,
        weight_type=QuantType.QInt8,
    )
