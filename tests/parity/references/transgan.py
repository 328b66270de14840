"""TransGAN's generator as its authors' code has it, with noise before each attention.

Where a map gets twice as large, theirs takes the channels in the order (C, 2, 2), ours (2, 2, C): the
channels of all stages but the last are reordered.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.keymap import feedforward, linear, norm, read_state, weight
from keras_tfm.layers.base import SameShape
from keras_tfm.layers.chain import Chain
from keras_tfm.models import TransGAN, TransGANConfig
from tests.parity.references.state import check_arguments, fields_of

FIELDS = {
    "bottom_width": "first_side",
    "gf_dim": "dim",
    "g_mlp": "mlp_ratio",
    "latent_dim": "latent_dim",
    "num_heads": "num_heads",
}
FIXED = {"g_norm": "ln", "g_act": "gelu", "latent_norm": False}


class Noise(SameShape):
    """x + strength * noise: maps (B, rows, columns, D) in and out; `noise` (B, N, 1) is set from outside."""

    noise = None

    def build(self, x_shape):
        self.strength = self.add_weight((), "zeros", name="strength")

    def call(self, x):
        if self.noise is None:
            return x
        return x + self.strength * ops.reshape(ops.convert_to_tensor(self.noise), (-1, *x.shape[1:3], 1))


class NoisyTransGAN(TransGAN):
    """With noise."""

    @classmethod
    def attention(cls, config, x_shape):
        return Chain([Noise(), super().attention(config, x_shape)])


def stages_of(config):
    """(The beginning of their keys, the order of their channels in which ours are) of each stage."""
    order = np.arange(config.dim // 4 ** (len(config.depths) - 1))
    orders = [order]
    for _ in config.depths[1:]:
        order = (4 * order + np.arange(4)[:, None]).ravel()
        orders.insert(0, order)
    names = ["blocks", *(f"upsample_blocks.{i}" for i in range(len(config.depths) - 1))]
    return list(zip(names, orders, strict=True))


def reorder(weights, config):
    """The `weights` with their channels in our order."""
    weights = dict(weights)
    for stage, (name, order) in enumerate(stages_of(config)):
        for key, x in weights.items():
            if key == f"pos_embed_{stage + 1}":
                weights[key] = x[..., order].reshape(-1, *[round(x.shape[1] ** 0.5)] * 2, len(order))[0]
            if key.startswith(f"{name}.block."):
                if key.endswith(("qkv.weight", "fc1.weight")):
                    weights[key] = x[:, order]
                elif not key.endswith(("fc1.bias", "noise_strength_1")):
                    weights[key] = x[order]
    _, first = stages_of(config)[0]
    rows = (np.arange(config.first_side**2)[:, None] * config.dim + first).ravel()
    for key in ("l1.weight", "l1.bias"):
        weights[key] = weights[key][rows]
    weights["deconv.0.weight"] = weights["deconv.0.weight"][:, :, 0, 0]
    return weights


def rows(config):
    """The table of weights."""
    table = [*linear("first_map", "l1"), *linear("colour", "deconv.0")]
    for stage, (name, _) in enumerate(stages_of(config)):
        ours, theirs = f"stage_{stage}_block_{{}}", f"{name}.block.{{}}"
        attention = f"{ours}/attention/branch/layer_1/attention"
        table += [
            *weight(f"stage_{stage}_positions/table", f"pos_embed_{stage + 1}"),
            *weight(f"{ours}/attention/branch/layer_0/strength", f"{theirs}.attn.noise_strength_1"),
            *linear(f"{attention}/projections/query_key_value", f"{theirs}.attn.qkv"),
            *linear(f"{attention}/output", f"{theirs}.attn.proj"),
            *norm(f"{ours}/attention/norm", f"{theirs}.norm1.norm"),
            *norm(f"{ours}/feedforward/norm", f"{theirs}.norm2.norm"),
            *feedforward(f"{ours}/feedforward", f"{theirs}.mlp.fc1", f"{theirs}.mlp.fc2"),
        ]
    return table


def read(arguments, arrays):
    """The names of the inputs among the `arrays`, and what the generator makes of them."""
    check_arguments(arguments, {*FIELDS, *FIXED, "g_depth"}, "TransGAN")
    fields = fields_of({key: x for key, x in arguments.items() if key in FIELDS}, FIELDS)
    depths = tuple(map(int, arguments["g_depth"].split(",")))
    config = TransGANConfig(**fields, depths=depths, relative_positions=False, norm="layer")
    weights = {key.removeprefix("weights/"): x for key, x in arrays.items() if key.startswith("weights/")}
    model = NoisyTransGAN(config)
    read_state(model, reorder(weights, config), rows(config))
    latents = {"latents": arrays["latents"]}
    outputs = {"output_without_noise": model(latents)["images"]}
    for stage, (name, _) in enumerate(stages_of(config)):
        for i in range(config.depths[stage]):
            block = model.get_layer(f"stage_{stage}_block_{i}")
            block.attention.branch.layers[0].noise = arrays[f"noise/{name}.block.{i}.attn"]
    outputs["output"] = model(latents)["images"]
    maps = keras.Model(model.input, model.maps)(latents)
    for stage, (x, (_, order)) in enumerate(zip(maps, stages_of(config), strict=True)):
        x = np.asarray(x).reshape(len(x), -1, len(order))  # (B, N, D)
        outputs[f"features/stage_{stage}"] = x[..., np.argsort(order)]
    inputs = {key for key in arrays if key.startswith(("weights/", "noise/"))} | {"latents"}
    return inputs, outputs
