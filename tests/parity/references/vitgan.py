"""ViTGAN as wilile26811249/ViTGAN has it, whose generator and discriminator differ from the paper.

The generator has a w for each token, norms modulated by w times a number, and two layers of sines that draw
one row of pixels for a token. The discriminator has a softmax of the distance, not of minus its square,
normalises the joint kernel of queries, keys and values alone, and cuts patches without a margin.
"""

import keras
import numpy as np
from keras import ops

from keras_tfm.convert.keymap import TRANSPOSED, linear, norm, read_state, reordered, weight
from keras_tfm.layers.attention.distance import DistanceAttention
from keras_tfm.layers.attention.multi_head import Attention
from keras_tfm.layers.attention.projections import HeadProjections
from keras_tfm.layers.blocks import Block, residuals
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.feedforward import FeedForward
from keras_tfm.layers.modulated_block import ModulatedBlock
from keras_tfm.layers.patches import extract_patches
from keras_tfm.layers.spectral import SpectralDense
from keras_tfm.models import ViTGAN, ViTGANConfig, ViTGANDiscriminator, ViTGANDiscriminatorConfig
from tests.parity.references.state import check_arguments

ROOT = "Transformer_Encoder.blocks.{}"


class RowViTGAN(ViTGAN):
    """With a w for each token, and a row of pixels for each."""

    @classmethod
    def modulation(cls, config, latents, count):
        return ops.reshape(Dense(count * config.dim, name="mapping")(latents), (-1, count, config.dim))

    @classmethod
    def block(cls, config, index):
        projections = HeadProjections(config.num_heads, use_bias=False)
        attention = Attention(projections, scale=config.dim**-0.5, output_layer=Dense(config.dim))
        feedforward = FeedForward(config.intermediate_dim, "gelu")
        return ModulatedBlock(attention, feedforward, config.epsilon, name=f"block_{index}")

    @classmethod
    def draw(cls, config, x):
        size = config.image_size
        for name in ("hidden", "colour"):
            x = ops.sin(config.frequency * Dense(size * config.num_channels, name=name)(x))
        return ops.transpose(ops.reshape(x, (-1, config.num_channels, size, size)), (0, 2, 3, 1))


class FarViTGANDiscriminator(ViTGANDiscriminator):
    """With softmax(distance) of patches that are cut without a margin, and few normalised kernels."""

    in_order = True  # whether a patch holds all channels of one place

    @classmethod
    def tokens(cls, config, images):
        return Dense(config.dim, name="patch_embedding")(patches_of(config, images, cls.in_order))

    @classmethod
    def block(cls, config, index):
        part = residuals(normalize_first=True, epsilon=config.epsilon)
        projections = HeadProjections(config.num_heads, use_bias=False)
        attention = Distances(projections, scale=config.dim**-0.5, output_layer=Dense(config.dim))
        feedforward = FeedForward(config.intermediate_dim, "gelu")
        parts = {"attention": part(attention), "feedforward": part(feedforward)}
        return Block(parts, name=f"block_{index}")


class CutViTGANDiscriminator(FarViTGANDiscriminator):
    """The patches of the authors' code: each holds neighbouring patches of one channel."""

    in_order = False


class Distances(DistanceAttention):
    """softmax(|q - k| scale)."""

    def score(self, query, key, *_):
        differences = query[:, :, :, None] - key[:, :, None]  # (B, H, T, S, K)
        return self.scale * ops.sqrt(ops.sum(ops.square(differences), axis=-1))


def patches_of(config, images, in_order):
    """Patches (B, N, C P P) of images."""
    side = config.patch_size + 2 * config.overlap
    stride = (images.shape[1] - side) // 8 + 1
    count = (images.shape[1] - side) // stride + 1
    places = (np.arange(count)[:, None] * stride + np.arange(side)).ravel()
    x = extract_patches(ops.take(ops.take(images, places, 1), places, 2), side)  # (B, N, P P C)
    x = ops.reshape(x, (-1, count**2, side**2, config.num_channels))
    x = ops.transpose(x, (0, 1, 3, 2) if in_order else (0, 3, 1, 2))
    return ops.reshape(x, (-1, count**2, config.num_channels * side**2))


def rows(config, branch):
    """The rows of a block, whose queries, keys and values theirs has in the order (K, three, H)."""
    order = np.arange(3 * config.dim).reshape(-1, 3, config.num_heads).transpose(1, 2, 0).ravel()
    attention, feedforward = f"block_{{}}/attention{branch}", f"block_{{}}/feedforward{branch}"
    return [
        *weight(f"{attention}/projections/query_key_value/kernel", f"{ROOT}.attn.to_qkv.weight",
                reordered(TRANSPOSED, order)),
        *linear(f"{attention}/output_layer", f"{ROOT}.attn.w_out"),
        *linear(f"{feedforward}/hidden", f"{ROOT}.mlp.linear1"),
        *linear(f"{feedforward}/output", f"{ROOT}.mlp.linear2"),
    ]  # fmt: skip


def read_generator(arguments, weights):
    """The generator for their arguments and weights, and its outputs by their names."""
    check_arguments(arguments, {"initialize_size", "dim", "blocks", "num_heads", "latent"}, "ViTGAN")
    dim = arguments["dim"]
    config = ViTGANConfig(
        image_size=8 * arguments["initialize_size"],
        latent_dim=arguments["latent"],
        num_layers=arguments["blocks"],
        dim=dim,
        num_heads=arguments["num_heads"],
        intermediate_dim=4 * dim,
    )
    model = RowViTGAN(config)
    norms = {"norm": "sln_norm"}
    for i in range(config.num_layers):
        theirs = ROOT.format(i)
        norms |= {
            f"block_{i}/attention_norm": f"{theirs}.norm1",
            f"block_{i}/feedforward_norm": f"{theirs}.norm2",
        }
    table = rows(config, "")
    table += [*weight("positions/table", "pos_emb1D"), *linear("mapping", "mlp")]
    table += [*linear("hidden", "w_out.0.linear"), *linear("colour", "w_out.1.linear")]
    for ours, theirs in norms.items():
        # gamma w (g x + b) + beta w, their norm, has the diagonal kernels gamma g and gamma b + beta.
        names = ("gamma", "beta", "ln.weight", "ln.bias")
        gamma, beta, scale, shift = (weights.pop(f"{theirs}.{name}").ravel() for name in names)
        for name, diagonal in (("gamma", gamma * scale), ("beta", gamma * shift + beta)):
            weights |= {
                f"{ours}.{name}.weight": np.diag(diagonal),
                f"{ours}.{name}.bias": np.zeros(dim, "float32"),
            }
            table += linear(f"{ours}/{name}", f"{ours}.{name}")
    read_state(model, weights, table)
    states = model.hidden_states["generator"][1:]
    outputs = {"output": model.output["images"], "features/norm": model.get_layer("norm").output}
    outputs |= {f"features/block_{i}": state for i, state in enumerate(states)}
    return model, outputs | {"features/mapping": model.get_layer("norm").input[1]}


def read_discriminator(arguments, arrays):
    """The names of the inputs among the `arrays`, and what the discriminator makes of them."""
    known = {"patch_size", "extend_size", "dim", "blocks", "num_heads", "init_spectral_norms"}
    check_arguments(arguments, known, "ViTGAN")
    weights = {key.removeprefix("weights/"): x for key, x in arrays.items() if key.startswith("weights/")}
    inputs = {*(f"weights/{key}" for key in weights), "images"}
    dim, outputs = arguments["dim"], {}
    config = ViTGANDiscriminatorConfig(
        image_size=arrays["images"].shape[1],
        patch_size=arguments["patch_size"],
        overlap=arguments["extend_size"],
        num_layers=arguments["blocks"],
        dim=dim,
        num_heads=arguments["num_heads"],
        intermediate_dim=4 * dim,
    )
    for i, initial_norm in enumerate(arguments["init_spectral_norms"]):
        key = f"{ROOT.format(i)}.attn.to_qkv.weight"
        weights[key] = outputs[f"features/rescaled_qkv_{i}"] = rescaled(weights[key], initial_norm)
    # A kernel whose norm is the initial one stays as it is.
    weights["mlp_head.1.vector"] = np.ones(1, "float32")
    weights["mlp_head.1.initial_norm"] = np.linalg.norm(weights["mlp_head.1.weight"]).astype("float32")
    table = [
        *rows(config, "/branch"),
        *norm("block_{}/attention/norm", f"{ROOT}.norm1"),
        *norm("block_{}/feedforward/norm", f"{ROOT}.norm2"),
        *weight("class_token/embedding", "cls_token"),
        *weight("positions/embedding/embeddings", "pos_emb1D"),
        *linear("patch_embedding", "project_patches"),
        *norm("norm", "mlp_head.0"),
        *linear("score", "mlp_head.1"),
        *weight("score/vector", "mlp_head.1.vector"),
        *weight("score/initial_norm", "mlp_head.1.initial_norm"),
    ]
    for name, kind in (
        ("output", CutViTGANDiscriminator),
        ("output_patches_in_order", FarViTGANDiscriminator),
    ):
        model = kind(config)
        read_state(model, weights, table)
        if name == "output":
            states = {f"block_{i}": x for i, x in enumerate(model.hidden_states["discriminator"][1:])}
            states["patches"] = model.get_layer("patch_embedding").output
            features = keras.Model(model.input, states)({"images": arrays["images"]})
            outputs |= {f"features/{key}": x for key, x in features.items()}
        outputs[name] = ops.sigmoid(model({"images": arrays["images"]})["scores"])
    return inputs, outputs


def rescaled(kernel, initial_norm):
    """Their `kernel` (out, in) with the greatest singular value `initial_norm`."""
    layer = SpectralDense(len(kernel), use_bias=False, keeps_norm=True)
    layer.build((None, kernel.shape[1]))
    layer.vector.assign(np.linalg.svd(kernel)[0][:, 0])
    layer.initial_norm.assign(initial_norm)
    return np.asarray(layer.normalized(kernel.T)).T
