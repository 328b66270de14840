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
        for key, value in inspect.getmembers(package)
        if inspect.isfunction(value) and value.__module__.startswith("keras_tfm.") and key[0] != "_"
    }
    assert functions
    for key, function in functions.items():
        assert not without_hint(function), f"{name}.{key}: {without_hint(function)}"
        assert inspect.signature(function).return_annotation is not inspect.Signature.empty, f"{name}.{key}"


@pytest.mark.parametrize("name", PACKAGES)
def test_constructors_of_public_classes_have_hints(name):
    package = importlib.import_module(f"keras_tfm.{name}")
    constructors = {
        key: vars(value)["__init__"]
        for key, value in inspect.getmembers(package)
        if inspect.isclass(value)
        and value.__module__.startswith("keras_tfm.")
        and inspect.isfunction(vars(value).get("__init__"))
        and key[0] != "_"
    }
    assert constructors
    missing = {key: without_hint(each) for key, each in constructors.items() if without_hint(each)}
    assert not missing, f"{name}: {missing}"


def without_hint(function):
    """The names of a function's arguments without a hint, `self`, `*args` and `**kwargs` aside."""
    return [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.annotation is each.empty
        and each.name != "self"
        and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
