"""LiteRT (TensorFlow Lite): one file with functions for one row of a few lengths, which share weights."""

import tempfile

RUNTIME = "ai-edge-litert"
WIDTHS = (8, 16, 32, 64, 128, 256, 512)  # tokens


def write(function, folder, quantization, name="model"):
    """Write NAME.tflite; "int8" keeps the weights of products in 8 bits."""
    import tensorflow as tf

    widths = None
    if function.max_length is not None:
        widths = [*(width for width in WIDTHS if width < function.max_length), function.max_length]
    cases = function.shapes or {
        f"tokens_{width}" if width else "serving_default": {
            name: [1, *(width if size is None else size for size in tuple(spec.shape)[1:])]
            for name, spec in function.inputs.items()
        }
        for width in widths or [None]
    }
    module, signatures = tf.Module(), {}
    # As variables the weights stand in the SavedModel once, not once for each length.
    module.weights = [tf.Variable(value, trainable=False) for value in function.weights().values()]
    for key, shapes in cases.items():
        signatures[key] = _with_weights(function.function(shapes, weights_apart=True), module.weights, shapes)
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        tf.saved_model.save(module, saved, signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(saved, signature_keys=list(signatures))
        if quantization is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        (folder / f"{name}.tflite").write_bytes(converter.convert())
    return 1, widths


def _with_weights(function, weights, shapes):
    """The concrete function of the inputs alone; `weights` follow them in `function`."""
    import tensorflow as tf

    signature = function.input_signature[: len(shapes)]
    bound = tf.function(
        lambda *inputs: function(*inputs, *weights), input_signature=signature, autograph=False
    )
    return bound.get_concrete_function()
