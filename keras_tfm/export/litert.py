"""LiteRT (TensorFlow Lite): one file with functions for one row of a few lengths, which share weights."""

import tempfile

EXTRA = "litert"
PACKAGES = ("ai_edge_litert",)
WIDTHS = (8, 16, 32, 64, 128, 256, 512)  # tokens


def write(function, folder, quantization):
    """Write model.tflite; "int8" keeps the weights of products in 8 bits."""
    import tensorflow as tf

    widths = None
    if function.max_length is not None:
        widths = [*(width for width in WIDTHS if width < function.max_length), function.max_length]
    module, signatures = tf.Module(), {}
    for width in widths or [None]:
        shapes = {
            name: [1, *(width if size is None else size for size in tuple(spec.shape)[1:])]
            for name, spec in function.inputs.items()
        }
        traced = function.function(shapes)
        signatures[f"tokens_{width}" if width else "serving_default"] = traced.get_concrete_function()
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        tf.saved_model.save(module, saved, signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=list(signatures))
        if quantization is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        (folder / "model.tflite").write_bytes(converter.convert())
    return 1, widths
