"""The formats' names and what each needs; this file imports none of it, nor TensorFlow."""

import importlib.util

# {format: (what `pip install "keras-tfm[EXTRA]"` brings it by, the modules that it imports)}
NEEDS = {
    "litert": ("litert", ("ai_edge_litert",)),
    "onnx": ("onnx", ("onnx", "onnxruntime", "tf2onnx")),
    "openvino": ("openvino", ("openvino",)),
    "ctranslate2": ("ctranslate2", ("ctranslate2",)),
}
NAMES = ("saved_model", *NEEDS)
QUANTIZATIONS = ("int8",)


def check_format(format, quantization=None):
    """Raise ValueError for an unknown format or quantization, ImportError if a package is not installed."""
    if format not in NAMES:
        raise ValueError(f"`format` must be one of {', '.join(NAMES)}; it is {format!r}.")
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise ValueError(
            f"`quantization` must be None or one of {', '.join(QUANTIZATIONS)}; it is {quantization!r}."
        )
    if format == "saved_model":
        if quantization is not None:
            raise ValueError(
                f"`quantization` needs a format of its own, {', '.join(NEEDS)}: a SavedModel has none."
            )
        return
    extra, packages = NEEDS[format]
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise ImportError(
            f'The format {format!r} needs {", ".join(missing)}: pip install "keras-tfm[{extra}]"'
        )
