"""OpenVINO: model.xml and model.bin, with any number of rows of any length."""

import numpy as np

RUNTIME = "openvino"
LEAST = 4_096  # smaller weights stay as they are


def write(function, folder, quantization, name="model"):
    """Write NAME.xml and NAME.bin; "int8" keeps the weights of products and tables in 8 bits."""
    import openvino

    model = openvino.convert_model(function.function().get_concrete_function())
    for ports, names in ((model.inputs, function.inputs), (model.outputs, function.outputs)):
        for port in ports:  # which the converter may give the names of its own operations too
            port.get_tensor().set_names(port.get_names() & set(names))
    if quantization is not None:
        for node in model.get_ordered_ops():
            _quantize(node)
    openvino.save_model(model, folder / f"{name}.xml", compress_to_fp16=False)
    return None, None


def _quantize(node):
    """Replace a product's weights, or a table, by 8-bit integers and one factor per column or row."""
    from openvino import opset13 as ops

    kind = node.get_type_name()
    if kind not in ("MatMul", "Gather"):
        return
    port = node.input(1 if kind == "MatMul" else 0)
    weights = port.get_source_output().get_node()
    if weights.get_type_name() != "Constant" or weights.get_element_type().get_type_name() != "f32":
        return
    values = weights.data
    if values.ndim != 2 or values.size < LEAST:
        return
    # Each output of a product has a factor of its own, and so has each row of a table.
    of_columns = kind == "MatMul" and not node.get_attributes().get("transpose_b", False)
    axis = 0 if of_columns else 1
    scale = np.maximum(np.abs(values).max(axis=axis, keepdims=True), 1e-12) / 127
    rounded = ops.constant(np.rint(values / scale).astype("int8"))
    product = ops.multiply(ops.convert(rounded, "f32"), ops.constant(scale.astype("float32")))
    port.replace_source_output(product.output(0))
