"""What the live comparisons need before they import transformers or timm, and which of them are quick."""

import collections
import importlib.util
import pathlib
from unittest import mock

import pytest

FOLDER = pathlib.Path(__file__).parent

# Both import torchvision, of which PyPI has no build for torch without CUDA. Nothing here uses its compiled
# operators, whose absence shows where it registers shapes for them.
if importlib.util.find_spec("torchvision"):
    with mock.patch("torch.library.register_fake", lambda *_, **__: lambda function: function):
        import torchvision  # noqa: F401


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """Deal the random models of each file to its tests and their kinds of model, so that each model is
    compared in one of these ways quickly; the other comparisons are slow, for `make parity`. If ways are
    `alike` but for one parameter, the last is quick: a model is compared as a part of the model with its
    head.
    """
    files = collections.defaultdict(lambda: collections.defaultdict(list))
    for item in items:
        if item.path.parent == FOLDER and "seed" in getattr(getattr(item, "callspec", None), "params", ()):
            kind = {name: str(value) for name, value in item.callspec.params.items()}
            seed = int(kind.pop("seed"))
            files[item.path][item.originalname, *sorted(kind.items())].append((seed, item))
    for ways in files.values():
        for turn, models in enumerate(ways.values()):
            hands = min(len(models), len(ways))
            dealt = (turn + turn // hands) % hands  # three kinds get other seeds in the next test
            for seed, item in models:
                if seed % hands != dealt:
                    item.add_marker(pytest.mark.slow)
        for models in alike(ways):
            for _, item in models:
                item.add_marker(pytest.mark.slow)


def alike(ways):
    """The models of those ways after which another one comes that differs only in what the tests' mark
    `alike` names.
    """
    last = {}
    for (name, *kind), models in ways.items():
        if mark := models[0][1].get_closest_marker("alike"):
            rest = name, *((key, value) for key, value in kind if key not in mark.args)
            if rest in last:
                yield last[rest]
            last[rest] = models
