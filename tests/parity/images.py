"""Random models of transformers that take images, and what they answer."""

import numpy as np
import torch

from keras_tfm.training.safetensors import read_tensors


def draw_weights(rng, model):
    """Draw every weight of theirs, biases and gammas too, at random."""
    torch.manual_seed(int(rng.integers(2**31)))
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            is_gamma = isinstance(module, torch.nn.LayerNorm) and name == "weight"
            torch.nn.init.normal_(parameter, mean=float(is_gamma), std=0.3)


def draw_images(rng, config):
    """Two images of the configuration's size."""
    return rng.normal(size=(2, *config.image_size, config.num_channels)).astype("float32")


def answer(model, images, **more):
    """What `model` answers to our `images` (B, H, W, C)."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(model.dtype)
    return model(pixel_values=pixels, **more)


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-5, atol=1e-5)


def gradients_in_files(model, folder):
    """{key: gradient} by the names that `save_pretrained` writes, which are not the model's own."""
    for parameter in model.parameters():
        parameter.data = parameter.grad
    model.save_pretrained(folder)
    return read_tensors(folder / "model.safetensors")[0]
