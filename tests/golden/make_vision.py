"""Makes levit.npz and xcit.npz of timm's models: `python -m tests.golden.make_vision`, with timm 1.0.31.

Small models of random weights, unlike sides and other sizes than their defaults: a swapped axis cannot hide.
Each file holds what tests/parity/golden.py reads.
"""

import json
import pathlib

import numpy as np
import timm
import torch
from timm.models.levit import Levit
from timm.models.xcit import Xcit

FOLDER = pathlib.Path(__file__).parent
LEVIT = {
    "img_size": [48, 64],
    "num_classes": 5,
    "embed_dim": [16, 24],
    "key_dim": 4,
    "depth": [2, 1],
    "num_heads": [2, 3],
    "attn_ratio": 2.0,
    "mlp_ratio": 2.0,
    "down_op": "subsample",
    "act_layer": "hard_swish",
}
XCIT = {
    "img_size": [24, 40],
    "patch_size": 8,
    "num_classes": 5,
    "embed_dim": 16,
    "depth": 2,
    "num_heads": 2,
    "mlp_ratio": 3.0,
    "cls_attn_layers": 1,
    "eta": 0.7,
    "tokens_norm": False,
}


def draw(model, rng):
    """Draw every weight: variances and gains around 1, so that the values neither vanish nor grow."""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        shape = tensor.shape
        if name.endswith("running_var"):
            drawn = rng.uniform(0.5, 1.5, shape)
        elif name.endswith(("running_mean", "bias")):
            drawn = rng.normal(0, 0.3, shape)
        elif len(shape) < 2 or "temperature" in name:
            drawn = rng.normal(1, 0.3, shape)
        else:
            drawn = rng.normal(0, np.prod(shape[1:]) ** -0.5, shape)
        tensor.copy_(torch.from_numpy(drawn))


def make(model_class, arguments, outputs, name, seed=0):
    """Write FOLDER/`name`.npz; `outputs` are {feature: the module that gives it}."""
    rng = np.random.default_rng(seed)
    model = model_class(**arguments).eval()
    features = {}
    with torch.no_grad():
        draw(model, rng)
        for feature, module in outputs.items():

            def keep(_, __, y, feature=feature):
                features[f"features/{feature}"] = (y[0] if isinstance(y, tuple) else y).numpy()

            model.get_submodule(module).register_forward_hook(keep)
        images = rng.normal(size=(2, *arguments["img_size"], 3)).astype("float32")
        logits = model(torch.from_numpy(images.transpose(0, 3, 1, 2))).numpy()
    weights = {f"weights/{key}": x.numpy() for key, x in model.state_dict().items() if x.is_floating_point()}
    features = {key: x.transpose(0, 2, 3, 1) if x.ndim == 4 else x for key, x in features.items()}
    reference = f"timm {timm.__version__} {model_class.__module__}.{model_class.__name__}"
    config = json.dumps({"class": reference, "args": arguments})
    np.savez_compressed(
        FOLDER / f"{name}.npz", config=config, images=images, logits=logits, **weights, **features
    )


if __name__ == "__main__":
    make(Levit, LEVIT, {"stem": "stem", "stage_0": "stages.0", "stage_1": "stages.1"}, "levit")
    blocks = {"block_0": "blocks.0", "block_1": "blocks.1", "class_block_0": "cls_attn_blocks.0"}
    make(Xcit, XCIT, {"embed": "patch_embed", "position": "pos_embed", **blocks, "norm": "norm"}, "xcit")
