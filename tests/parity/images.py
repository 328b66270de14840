"""Random models of transformers that take images, and what they answer."""

import numpy as np
import torch

from keras_tfm import convert
from keras_tfm.training.safetensors import read_tensors

NORMS = (torch.nn.LayerNorm, torch.nn.GroupNorm, torch.nn.BatchNorm2d)


def draw_weights(rng, model):
    """Draw every weight of theirs, biases and gammas too, at random; filters so that their output is as large
    as their input.
    """
    torch.manual_seed(int(rng.integers(2**31)))
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            is_gamma = isinstance(module, NORMS) and name == "weight"
            fan_in = (
                parameter[0].numel() if isinstance(module, torch.nn.Conv2d) and parameter.ndim == 4 else 0
            )
            torch.nn.init.normal_(parameter, float(is_gamma), min(0.3, fan_in**-0.5) if fan_in else 0.3)
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)


def draw_images(rng, config):
    """Two images of the configuration's size."""
    return rng.normal(size=(2, *config.image_size, config.num_channels)).astype("float32")


def draw_model(rng, kind, config):
    """A model of theirs with every weight at random, and images for it."""
    model = kind(config).eval()
    draw_weights(rng, model)
    return model, draw_images(rng, model.config)


def answer(model, images, **more):
    """What `model` answers to our `images` (B, H, W, C)."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(model.dtype)
    return model(pixel_values=pixels, **more)


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-5)


def ours_of(theirs, folder):
    """Our model of theirs, through a folder that it writes."""
    theirs.save_pretrained(folder / "theirs")
    return convert.from_huggingface(folder / "theirs")


def check_way_back(theirs, ours, folder, family=None):
    """What we write is read by transformers as the same model, with the entries that `family` knows."""
    convert.save_huggingface(ours, folder / "ours")
    back, report = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    assert not any(report.values()), report
    for (name, a), (_, b) in zip(theirs.named_parameters(), back.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    for name in family.write_config(getattr(ours, "backbone", ours).config) if family else ():
        value = getattr(theirs.config, name)
        allowed = [value, "gelu_new"] if value == "gelu_pytorch_tanh" else [value]
        assert getattr(back.config, name) in allowed, name


def gradients_in_files(model, folder):
    """{key: gradient} by the names that `save_pretrained` writes, which are not the model's own."""
    for parameter in model.parameters():
        parameter.data = parameter.grad
    model.save_pretrained(folder)
    return read_tensors(folder / "model.safetensors")[0]
