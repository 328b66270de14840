"""Packages that a folder may need, imported when it does."""

import importlib


def imported(module, package):
    """The `module`; ImportError with the name of its `package` if that is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"This folder needs {package}: pip install {package} ({error})") from None
