"""What the live comparisons need before they import transformers or timm."""

import importlib.util
from unittest import mock

# Both import torchvision, of which PyPI has no build for torch without CUDA. Nothing here uses its compiled
# operators, whose absence shows where it registers shapes for them.
if importlib.util.find_spec("torchvision"):
    with mock.patch("torch.library.register_fake", lambda *_, **__: lambda function: function):
        import torchvision  # noqa: F401
