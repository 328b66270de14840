"""Live: timm's folders, both ways, of every family that has its names."""

import copy
import importlib
import inspect
import json
import os
import types
import unittest.mock

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf
import timm
import torch
from timm.layers.bottleneck_attn import BottleneckAttn
from timm.models._hub import save_for_hf

from keras_tfm import convert
from keras_tfm.convert import timm as timm_families
from keras_tfm.data import Preprocessing
from tests.parity.references.botnet import read_attention

pytestmark = pytest.mark.parity
CONFIGS = range(int(os.environ.get("KERAS_TFM_PARITY_CONFIGS", "2")))


def vit(rng):
    pooling = {"global_pool": str(rng.choice(["token", "avg", "map"]))}
    if pooling["global_pool"] != "token":
        pooling["class_token"] = False
    if pooling["global_pool"] == "avg":
        pooling["fc_norm"] = False
    return {**deit(rng), **pooling, "qkv_bias": bool(rng.integers(2))}


def deit(rng):
    patch_size, num_heads = (int(x) for x in rng.integers(1, 5, 2))
    return {
        "img_size": [patch_size * int(x) for x in rng.integers(1, 6, 2)],
        "patch_size": patch_size,
        "in_chans": int(rng.integers(1, 4)),
        "embed_dim": num_heads * int(rng.integers(1, 9)),
        "depth": int(rng.integers(1, 4)),
        "num_heads": num_heads,
        "mlp_ratio": float(rng.choice([1.0, 2.5, 48 / 11])),
        "drop_path_rate": 0.1,
    }


def hybrid_vit(rng):
    arguments = deit(rng)
    sides = [int(x) for x in rng.integers(33, 80, 2)]
    return {**arguments, "patch_size": 1, "img_size": sides, "qkv_bias": bool(rng.integers(2))}


def swin(rng):
    num_stages, window, patch_size = (int(rng.integers(1, n)) for n in (4, 5, 5))
    return {
        "img_size": [patch_size * window * 2 ** int(rng.integers(0, 3)) * 2 ** (num_stages - 1)] * 2,
        "patch_size": patch_size,
        "embed_dim": 4 * int(rng.integers(1, 5)),
        "depths": [int(x) for x in rng.integers(1, 4, num_stages)],
        "num_heads": [int(x) for x in rng.choice([1, 2, 4], num_stages)],
        "window_size": window,
        "mlp_ratio": float(rng.choice([1.0, 2.5, 4.0])),
    }


def levit(rng):
    num_stages = int(rng.integers(1, 4))
    return {
        "img_size": [16 * int(x) for x in rng.integers(1, 6, 2)],
        "embed_dim": [8 * int(x) for x in rng.integers(1, 4, num_stages)],
        "key_dim": 8,
        "depth": [int(x) for x in rng.integers(1, 3, num_stages)],
        "num_heads": [int(x) for x in rng.integers(1, 4, num_stages)],
        "distilled": bool(rng.integers(2)),
    }


def xcit(rng):
    num_heads = int(rng.integers(1, 4))
    return {
        "img_size": [16 * int(x) for x in rng.integers(1, 5, 2)],
        "embed_dim": 8 * num_heads * int(rng.integers(1, 3)),
        "depth": int(rng.integers(1, 3)),
        "num_heads": num_heads,
        "mlp_ratio": float(rng.choice([1.0, 2.5, 4.0])),
        "cls_attn_layers": int(rng.integers(1, 3)),
        "eta": 0.5,
        "tokens_norm": bool(rng.integers(2)),
    }


def swin_v2(rng):
    arguments = swin(rng)
    pretrained = [int(x) for x in rng.integers(0, 6, len(arguments["depths"]))]
    return {**arguments, "pretrained_window_sizes": pretrained}


def twins(rng):
    num_stages, patch_size = (int(x) for x in rng.integers(1, 4, 2))
    num_heads = [int(x) for x in rng.integers(1, 4, num_stages)]
    sides = patch_size * 2 ** (num_stages - 1) * 4 * rng.integers(1, 3, 2)
    return {
        "img_size": [int(x) for x in sides],
        "patch_size": patch_size,
        "embed_dims": [count * 4 * int(rng.integers(1, 4)) for count in num_heads],
        "depths": [int(x) for x in rng.integers(1, 4, num_stages)],
        "num_heads": num_heads,
        "mlp_ratios": [float(x) for x in rng.choice([1.0, 2.5, 4.0], num_stages)],
        "sr_ratios": [int(x) for x in rng.choice([1, 2, 4], num_stages)],
    }


def twins_svt(rng):
    arguments = twins(rng)
    return {**arguments, "wss": [int(x) for x in rng.integers(2, 5, len(arguments["depths"]))]}


def cait(rng):
    return {
        **deit(rng),
        "mlp_ratio_token_only": float(rng.choice([1.0, 2.5, 48 / 11])),
        "depth_token_only": int(rng.integers(1, 4)),
        "init_values": 0.5,
    }


def pit(rng):
    num_stages, patch_size = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    base, first = 4 * int(rng.integers(1, 3)), int(rng.integers(1, 3))
    return {
        "img_size": [patch_size + int(x) for x in rng.integers(4, 20, 2)],
        "patch_size": patch_size,
        "stride": int(rng.integers(1, patch_size + 1)),
        "base_dims": [base] * num_stages,
        "depth": [int(x) for x in rng.integers(1, 3, num_stages)],
        "heads": [first * 2**i for i in range(num_stages)],
        "mlp_ratio": float(rng.choice([1.0, 2.5, 4.0])),
        "distilled": bool(rng.integers(2)),
    }


def mlp_mixer(rng):
    ratios = [float(x) for x in rng.choice([1 / 512, 5 / 512, 0.01], 2)]
    return {
        "img_size": [16 * int(x) for x in rng.integers(1, 6, 2)],
        "in_chans": int(rng.integers(1, 4)),
        "mlp_ratio": [ratios, ratios[0]][rng.integers(2)],
    }


def dinov2(rng):
    return {**deit(rng), "init_values": 0.5}


def dinov2_registers(rng):
    return {**dinov2(rng), "reg_tokens": int(rng.integers(1, 4))}


def dinov2_gated(rng):
    arguments = dinov2(rng)
    return {**arguments, "mlp_ratio": 2 * int(rng.integers(1, 20)) / arguments["embed_dim"]}


def tnt(rng):
    patch_size, num_heads = 4 * int(rng.integers(1, 3)), int(rng.integers(1, 4))
    return {
        "img_size": [patch_size * int(x) for x in rng.integers(1, 5, 2)],
        "patch_size": patch_size,
        "first_stride": int(rng.choice([1, 2])),
        "in_chans": int(rng.integers(1, 4)),
        "embed_dim": 4 * num_heads * int(rng.integers(1, 4)),
        "num_heads_outer": num_heads,
        "inner_dim": 4 * int(rng.integers(1, 4)),
        "num_heads_inner": int(rng.choice([1, 2, 4])),
        "depth": int(rng.integers(1, 3)),
        "mlp_ratio": float(rng.choice([1.0, 2.5, 4.0])),
    }


def visformer(rng):
    return {
        "img_size": [32 * int(x) for x in rng.integers(1, 3, 2)],
        "in_chans": int(rng.integers(1, 4)),
        "init_channels": 8 * int(rng.integers(1, 4)),
        "embed_dim": 16 * int(rng.integers(1, 4)),
        "depth": [int(x) for x in rng.integers(1, 3, 3)],
        "num_heads": int(rng.choice([1, 2, 4])),
    }


def resnet(rng):
    return {
        "in_chans": int(rng.integers(1, 4)),
        "layers": [int(x) for x in rng.integers(1, 3, 4)],
        "channels": [8 * int(x) for x in rng.integers(1, 4, 4)],
    }


def bit(rng):
    return {
        "in_chans": int(rng.integers(1, 4)),
        "channels": [128 * int(x) for x in rng.integers(1, 3, 4)],
        "stem_chs": 32 * int(rng.integers(1, 3)),
    }


def botnet(rng):
    return {
        "img_size": [32 * int(x) for x in rng.integers(1, 4, 2)],
        "in_chans": int(rng.integers(1, 4)),
        "width_factor": int(rng.integers(1, 4)) / 16,
        "act_layer": str(rng.choice(["relu", "silu"])),
    }


KINDS = {
    "resnetv2_50x1_bit": bit,
    "botnet26t_256": botnet,
    "vit_small_patch16_224": vit,
    "deit_small_distilled_patch16_224": deit,
    "vit_tiny_r_s16_p8_224": hybrid_vit,
    "vit_small_r26_s32_224": hybrid_vit,
    "swin_tiny_patch4_window7_224": swin,
    "levit_128": levit,
    "xcit_tiny_12_p16_224": xcit,
    "cait_xxs24_224": cait,
    "pit_s_224": pit,
    "twins_pcpvt_small": twins,
    "twins_svt_small": twins_svt,
    "swinv2_tiny_window8_256": swin_v2,
    "mixer_s16_224": mlp_mixer,
    "vit_small_patch14_dinov2": dinov2,
    "vit_small_patch14_reg4_dinov2": dinov2_registers,
    "vit_giant_patch14_dinov2": dinov2_gated,
    "resnet18": resnet,
    "tnt_s_patch16_224": tnt,
    "tnt_s_legacy_patch16_224": tnt,
    "visformer_tiny": visformer,
    "resnet50": resnet,
}


# What `pretrained_cfg` says, or a class that is no value of ours.
ELSEWHERE = {
    "img_size",
    "distilled",
    "block",
    "mlp_layer",
    "stem_dim",
    "stage_dims",
    "stage_depths",
    "num_groups",
}


@pytest.mark.parametrize("name", timm_families.FAMILIES)
def test_architectures_mean_what_they_mean_to_timm(name):
    """Our arguments for each of timm's names, its constructors' defaults among them, are timm's own."""
    family = importlib.import_module(f"keras_tfm.convert.{name}").TIMM
    for architecture in family.architectures:
        arguments = constructor_arguments(architecture)
        ours = {
            **family.write_config(family.size_of(architecture)),
            **family.default_entries,
            **family.fixed_entries,
        }
        for argument in ours.keys() - ELSEWHERE:
            theirs, value = arguments[argument], ours[argument]
            is_close = isinstance(value, float) and theirs == pytest.approx(value, rel=1e-5)
            assert is_close or np.array_equal(theirs, value), f"{architecture}, {argument}"


def constructor_arguments(architecture):
    """{name: value} with which timm makes the model of an architecture, of which it builds none here."""
    make = timm.models.model_entrypoint(architecture)
    with unittest.mock.patch(f"{make.__module__}.build_model_with_cfg") as build:
        make()
    cls, arguments = build.call_args.args[0], dict(build.call_args.kwargs)
    if "model_cfg" in arguments:  # of blocks that a name alone says
        arguments |= vars(arguments["model_cfg"])
    for base in cls.__mro__[:-1]:
        for name, parameter in inspect.signature(base).parameters.items():
            arguments.setdefault(name, parameter.default)
    if "global_pool" in arguments and arguments["global_pool"] is None:  # ByobNet's, which reads it so
        arguments["global_pool"] = "avg"
    return arguments


def draw_state(rng, model):
    """Every weight at random, of which variances are positive, gains near 1 and wide kernels small."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            drawn = rng.normal(0, 0.3, tensor.shape)
            if name.endswith("running_var"):
                drawn = rng.uniform(0.5, 1.5, tensor.shape)
            elif tensor.ndim == 4:
                drawn = drawn * min(1, 3 * np.prod(tensor.shape[1:]) ** -0.5)
            elif tensor.ndim < 2 and name.endswith("weight"):
                drawn = 1 + drawn
            tensor.copy_(torch.from_numpy(drawn))


def answer(model, images):
    with torch.no_grad():
        return model.eval()(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()


def check_answers(ours, theirs, images):
    """Ours are as near to theirs in float64 as theirs in float32 are, up to a factor: random weights may
    magnify roundings.
    """
    exact = answer(copy.deepcopy(theirs).double(), images.astype("float64"))
    rounding, error = (np.abs(x - exact).max() for x in (answer(theirs, images), ours))
    assert error <= 4 * rounding + 1e-6 * max(1, np.abs(exact).max()), (error, rounding)


@pytest.mark.parametrize("seed", CONFIGS)
@pytest.mark.parametrize("architecture", KINDS)
def test_both_directions(architecture, seed, tmp_path):
    rng = np.random.default_rng(seed)
    arguments = KINDS[architecture](rng)
    theirs = timm.create_model(architecture, num_classes=int(rng.integers(1, 6)), **arguments)
    draw_state(rng, theirs)
    save_for_hf(theirs, tmp_path / "theirs", model_args=arguments, safe_serialization=True)
    ours = convert.from_timm(tmp_path / "theirs")
    images = rng.normal(size=(3, *ours.input["images"].shape[1:])).astype("float32")
    check_answers(ours({"images": images}), theirs, images)
    same = timm.create_model(f"local-dir:{tmp_path / 'theirs'}", pretrained=True)
    prepared = timm.data.resolve_model_data_config(same)
    own = convert.timm_preprocessing_of(tmp_path / "theirs")
    assert own["crop_fraction"] == prepared["crop_pct"] and list(own["std"]) == list(prepared["std"])
    convert.save_timm(ours, tmp_path / "ours", preprocessing=types.SimpleNamespace(**own))
    back = timm.create_model(f"local-dir:{tmp_path / 'ours'}", pretrained=True)
    assert timm.data.resolve_model_data_config(back) == prepared
    state = back.state_dict()
    for name, tensor in theirs.state_dict().items():
        assert "num_batches" in name or torch.equal(tensor, state[name]), name
    np.testing.assert_array_equal(answer(back, images), answer(theirs, images))


def test_older_files(tmp_path):
    """They state all in one object, the size of images too."""
    theirs = timm.create_model("resnet18", num_classes=2)
    draw_state(np.random.default_rng(0), theirs)
    save_for_hf(theirs, tmp_path, safe_serialization=True)
    older = {"architecture": "resnet18", "num_classes": 2, "input_size": [3, 40, 48], "crop_pct": 0.95}
    (tmp_path / "config.json").write_text(json.dumps(older))
    ours = convert.from_timm(tmp_path)
    back = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    channels, *size = timm.data.resolve_model_data_config(back)["input_size"]
    assert ours.input["images"].shape[1:] == (*size, channels) == (40, 48, 3)
    images = np.random.default_rng(1).normal(size=(2, *size, channels)).astype("float32")
    check_answers(ours({"images": images}), back, images)


@pytest.mark.parametrize("mode", ["center", "squash"])
@pytest.mark.parametrize("whole", [34, 35, 37, 39])
def test_images_are_cut_where_timm_cuts_them(whole, mode, tmp_path):
    """Equal within two grey levels, as resizing rounds."""
    entries = {"crop_pct": 32 / (whole + 0.01), "crop_mode": mode, "mean": [0.0], "std": [1.0]}
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": entries}))
    coarse = np.random.default_rng(0).integers(0, 256, (12, 12, 3), "uint8")
    picture = PIL.Image.fromarray(coarse).resize((61, 50), PIL.Image.Resampling.BICUBIC)
    transform = timm.data.create_transform(32, **{**entries, "mean": (0.0,) * 3, "std": (1.0,) * 3})
    fields = convert.timm_preprocessing_of(tmp_path) | {"interpolation": "bilinear"}  # timm's by default
    found = Preprocessing(**fields).resized(tf.constant(np.asarray(picture))[None], 32, 32)[0].numpy()
    assert np.abs(found - 255 * transform(picture).permute(1, 2, 0).numpy()).max() <= 2.01


@pytest.mark.parametrize("seed", CONFIGS)
def test_bottleneck_attention(seed):
    """Alone it may change the width, have biases, queries and keys of another width, and a stride."""
    rng = np.random.default_rng(seed)
    num_heads = int(rng.integers(1, 4))
    arguments = {
        "dim": int(rng.integers(1, 20)),
        "dim_out": num_heads * int(rng.integers(1, 9)),
        "feat_size": [int(side) for side in rng.integers(2, 6, 2)],
        "stride": int(rng.integers(1, 3)),
        "num_heads": num_heads,
        "dim_head": [None, int(rng.integers(1, 6))][rng.integers(2)],
        "qk_ratio": float(rng.choice([0.5, 1.0, 2.0])),
        "qkv_bias": bool(rng.integers(2)),
        "scale_pos_embed": bool(rng.integers(2)),
    }
    theirs = BottleneckAttn(**arguments)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(0, 0.5, parameter.shape)))
    state = {name: x.numpy() for name, x in theirs.state_dict().items()}
    images = rng.normal(size=(3, *arguments["feat_size"], arguments["dim"])).astype("float32")
    ours, _ = read_attention(arguments, state)
    check_answers(np.moveaxis(np.asarray(ours({"images": images})), 3, 1), theirs, images)
