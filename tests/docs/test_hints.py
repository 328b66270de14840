"""Signatures of public functions say what they take and give. A tensor of any kind is a `Tensor` of
`layers/signatures.py`; its shape is in the docstring.
"""

import importlib
import inspect

import pytest

PACKAGES = (
    "convert",
    "data",
    "generation",
    "heads",
    "layers",
    "models",
    "tasks",
    "training",
    "visualize",
    "word_vectors",
)


@pytest.mark.parametrize("name", PACKAGES)
def test_public_functions_have_hints(name):
    package = importlib.import_module(f"keras_tfm.{name}")
    functions = {
        key: value
        for key, value in vars(package).items()
        if inspect.isfunction(value) and value.__module__.startswith("keras_tfm.") and key[0] != "_"
    }
    assert functions
    for key, function in functions.items():
        signature = inspect.signature(function)
        missing = [
            each.name
            for each in signature.parameters.values()
            if each.annotation is each.empty and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        ]
        assert not missing, f"{name}.{key}: {missing}"
        assert signature.return_annotation is not signature.empty, f"{name}.{key}"
