"""Random models of transformers that take images, and what they answer."""

import numpy as np
import torch

from keras_tfm import convert
from keras_tfm.training.safetensors import read_tensors
from tests.parity.encoders import ACTIVATIONS

BATCH_NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)
NORMS = (torch.nn.LayerNorm, torch.nn.GroupNorm, *BATCH_NORMS)


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
        if isinstance(module, BATCH_NORMS):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)


def draw_entries_of_vit(rng):
    """What configurations of ViT and of its kin have in common."""
    num_heads = int(rng.integers(1, 5))
    return {
        "num_channels": int(rng.integers(1, 4)),
        "hidden_size": num_heads * int(rng.integers(1, 9)),
        "num_hidden_layers": int(rng.integers(1, 4)),
        "num_attention_heads": num_heads,
        "intermediate_size": int(rng.integers(1, 33)),
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": str(rng.choice(ACTIVATIONS)),
        "layer_norm_eps": float(rng.choice([1e-12, 1e-6, 1e-3])),
        "num_labels": int(rng.integers(1, 6)),
    }


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


def check_outputs(ours, expected, in_float32):
    """Ours are within 1e-5 of what is `expected`, theirs in float64, or at most eight times as far off as
    theirs `in_float32`: random weights may magnify roundings, torch's own by four between two of its runs.
    """
    for name, y in expected.items():
        bound = max(1e-5 * max(1, np.abs(y).max()), 8 * np.abs(in_float32[name] - y).max())
        assert np.abs(np.asarray(ours[name]) - y).max() <= bound, name


def check_again(again, in_float32):
    """Two answers of theirs with equal weights: torch's sums depend on where in memory the tensors lie."""
    for name, y in again.items():
        scale = max(1, np.abs(in_float32[name]).max())
        np.testing.assert_allclose(y, in_float32[name], rtol=1e-5, atol=1e-6 * scale, err_msg=name)


def read_back(theirs, ours, folder, without=()):
    """What we write, read by transformers: no weight is missing unless its name ends in `without`."""
    convert.save_huggingface(ours, folder / "ours")
    back, report = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    missing = [key for key in report.pop("missing_keys") if not key.endswith(without)]
    assert not missing and not any(report.values()), (missing, report)
    return back.eval()


def check_way_back(theirs, ours, folder, family=None, without=()):
    """`read_back` gives the same model, with the entries that `family` knows; returns it."""
    back = read_back(theirs, ours, folder, without)
    assert_same_weights(theirs, back, without)
    for name in family.write_config(getattr(ours, "backbone", ours).config) if family else ():
        value = getattr(theirs.config, name)
        allowed = [value, "gelu_new"] if value == "gelu_pytorch_tanh" else [value]
        assert getattr(back.config, name) in allowed, name
    return back


def assert_same_weights(theirs, back, without=()):
    """All weights are equal, but for names that end in one of `without`."""
    weights, again = (
        {name: x for name, x in model.state_dict().items() if not name.endswith(without)}
        for model in (theirs, back)
    )
    assert weights.keys() == again.keys()
    for name, x in weights.items():
        assert torch.equal(x, again[name]), name


def gradients_in_files(model, folder):
    """{key: gradient} by the names that `save_pretrained` writes, which are not the model's own."""
    for parameter in model.parameters():
        parameter.data = parameter.grad
    model.save_pretrained(folder)
    return read_tensors(folder / "model.safetensors")[0]
