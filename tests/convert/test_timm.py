"""timm's folders: written and read again by every family; what is wrong in one is refused by name."""

import dataclasses
import importlib
import json
import types

import numpy as np
import pytest

from keras_tfm.convert import (
    CheckpointError,
    from_huggingface,
    from_timm,
    save_timm,
    timm_preprocessing_of,
)
from keras_tfm.convert.entries import ratio_of
from keras_tfm.convert.preprocessing import label_names
from keras_tfm.convert.timm import FAMILIES, family_of
from keras_tfm.heads import Classifier, DistilledClassifier
from keras_tfm.models import (
    BERT,
    TNT,
    BiT,
    BiTConfig,
    BoTNet,
    CaiT,
    DeiT,
    DINOv2,
    HybridViT,
    LeViT,
    MLPMixer,
    PiT,
    ResNet,
    Swin,
    SwinV2,
    Twins,
    Visformer,
    ViT,
    XCiT,
)
from tests.contract import randomise
from tests.models.test_bert import TINY
from tests.models.test_cait import SMALL as CAIT
from tests.models.test_deit import SMALL as DEIT
from tests.models.test_dinov2 import GATED
from tests.models.test_dinov2 import SMALL as REGISTERS
from tests.models.test_levit import SMALL as LEVIT
from tests.models.test_pit import SMALL as PIT
from tests.models.test_swin import SMALL as SWIN
from tests.models.test_swin_v2 import SMALL as SWIN_V2
from tests.models.test_tnt import SMALL as TNT_SMALL
from tests.models.test_twins import PCPVT, SVT
from tests.models.test_visformer import SMALL as VISFORMER
from tests.models.test_vit import ATTENTION, FLATTEN, MEAN, ONE_BLOCK
from tests.models.test_xcit import SMALL as XCIT

WIDTHS = {"num_channels": 1, "tokens_dim": 5, "channels_dim": 3}
MIXER = dataclasses.replace(MLPMixer.sizes["S/32"], image_size=(64, 32), **WIDTHS)
RESNET = dataclasses.replace(
    ResNet.sizes["18"], image_size=(33, 40), num_channels=1, dims=(4, 6), depths=(1, 2)
)
HYBRID = dataclasses.replace(
    HybridViT.sizes["R+Ti/16"],
    image_size=32,
    patch_size=4,
    num_layers=1,
    dim=8,
    num_heads=2,
    intermediate_dim=16,
)
BIT = BiTConfig((33, 40), 1, stem_dim=32, dims=(128,) * 4, stochastic_depth=0.1)  # of 16 blocks, as 50x1
BOTNET = dataclasses.replace(
    BoTNet.sizes["26T"],
    image_size=(32, 64),
    num_channels=1,
    stem_dim=4,
    dims=(16, 32, 64, 128),
    inner_dims=(8, 8, 16, 32),
    inner_stem_dims=(1, 2),
    activation="silu",
)  # of a sixteenth of the widths
MODELS = {
    "bit": lambda: Classifier(BiT(BIT), 3),
    "botnet": lambda: Classifier(BoTNet(BOTNET), 3),
    "cait": lambda: Classifier(CaiT(CAIT), 3),
    "deit": lambda: DistilledClassifier(DeiT(DEIT), 3),
    "dinov2": lambda: Classifier(DINOv2(dataclasses.replace(REGISTERS, num_registers=0)), 3),
    "dinov2, gated": lambda: Classifier(DINOv2(GATED), 3),
    "hybrid_vit": lambda: Classifier(HybridViT(HYBRID), 3),
    "levit": lambda: Classifier(LeViT(dataclasses.replace(LEVIT, distilled=False)), 3),
    "levit, distilled": lambda: DistilledClassifier(LeViT(LEVIT), 3),
    "mlp_mixer": lambda: Classifier(MLPMixer(MIXER), 3),
    "pit": lambda: Classifier(PiT(dataclasses.replace(PIT, distilled=False)), 3),
    "pit, distilled": lambda: DistilledClassifier(PiT(dataclasses.replace(PIT, distilled=True)), 3),
    "resnet": lambda: Classifier(ResNet(RESNET), 3),
    "swin": lambda: Classifier(Swin(dataclasses.replace(SWIN, window=2)), 3),
    "swin_v2, not trained before": lambda: Classifier(
        SwinV2(dataclasses.replace(SWIN_V2, window=2, pretrained_windows=None)), 3
    ),
    "swin_v2": lambda: Classifier(SwinV2(dataclasses.replace(SWIN_V2, window=2)), 3),
    "tnt": lambda: Classifier(TNT(TNT_SMALL), 3),
    "tnt, legacy": lambda: Classifier(TNT(dataclasses.replace(TNT_SMALL, legacy=True)), 3),
    "twins, pcpvt": lambda: Classifier(Twins(PCPVT), 3),
    "twins, svt": lambda: Classifier(Twins(SVT), 3),
    "visformer": lambda: Classifier(Visformer(VISFORMER), 3),
    "vit": lambda: Classifier(ViT(ONE_BLOCK), 3, dropout=0.2),
    "vit, without biases": lambda: Classifier(ViT(dataclasses.replace(ONE_BLOCK, qkv_bias=False)), 3),
    "vit, mean": lambda: Classifier(ViT(MEAN), 3),
    "vit, attention": lambda: Classifier(ViT(ATTENTION), 3),
    "xcit": lambda: Classifier(XCiT(XCIT), 3),
}


@pytest.fixture
def folder(tmp_path):
    model = Classifier(ViT(ONE_BLOCK), 3)
    randomise(model, 1)
    save_timm(model, tmp_path / "vit")
    return tmp_path / "vit"


def change(folder, **entries):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


@pytest.mark.slow  # tests/parity asks the library itself, of random models
@pytest.mark.parametrize("name", MODELS)
def test_both_ways(name, tmp_path):
    model = MODELS[name]()
    randomise(model, 1)
    save_timm(model, tmp_path / "folder")
    again = from_huggingface(tmp_path / "folder")
    assert type(again) is type(model) and again.backbone.config == model.backbone.config
    assert again.head_arguments == model.head_arguments
    for a, b in zip(again.weights, model.weights, strict=True):
        if "float" in a.dtype:
            np.testing.assert_array_equal(a, b)
    assert type(from_timm(tmp_path / "folder", with_head=False)) is type(model.backbone)


def test_names_of_classes_are_kept(tmp_path):
    model = Classifier(ViT(ONE_BLOCK), 3)
    save_timm(model, tmp_path / "folder", class_names=["a", "b", "c"])
    assert label_names(tmp_path / "folder", 3) == ["a", "b", "c"]
    assert json.loads((tmp_path / "folder" / "config.json").read_text())["label_names"] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="`class_names` must be 3, one for each class; they are 2"):
        save_timm(model, tmp_path / "other", class_names=["a", "b"])


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ({"labels": ["a", "b"]}, "a b"),  # before 2023
        ({"pretrained_cfg": {"labels": ["a", "b"]}}, "a b"),
        ({"pretrained_cfg": {"label_names": ["a", "b"]}}, "a b"),
        ({"label_names": ["a", "b"], "pretrained_cfg": {"label_names": ["c", "d"]}}, "a b"),
        ({"label_names": ["a", "b"], "label_descriptions": {"a": "ant", "b": "bee"}}, "a b"),
        ({"labels": ["c", "d"], "pretrained_cfg": {"label_names": ["a", "b"]}}, "a b"),
        ({"label_names": {"0": "a", "1": "b"}}, "a b"),
        ({"label_names": {"1": "b"}}, "LABEL_0 b"),  # as timm writes numbers with gaps
        ({"label_descriptions": {"0": "ant", "1": "bee"}}, "ant bee"),
        ({"label_descriptions": {"b": "bee", "a": "ant"}}, "LABEL_0 LABEL_1"),  # without names no order
        ({"label_names": ["a"], "labels": ["a", 2], "pretrained_cfg": None}, "LABEL_0 LABEL_1"),
    ],
)
def test_names_of_classes_stand_where_timm_has_written_them(entries, names, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(entries))
    assert label_names(tmp_path, 2) == names.split()


def test_registers(tmp_path):
    """timm has no position of the class token beside registers: it becomes a part of the token."""
    model = Classifier(DINOv2(REGISTERS), 3)
    randomise(model, 1)
    save_timm(model, tmp_path / "folder")
    again = from_timm(tmp_path / "folder")
    images = np.random.default_rng(1).normal(size=(2, 4, 6, 1)).astype("float32")
    np.testing.assert_array_equal(again({"images": images}), model({"images": images}))
    assert not np.any(again.backbone.position.embedding.embeddings[0])
    entries = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert entries["architecture"] == "vit_small_patch14_dinov2"
    change(tmp_path / "folder", model_args={**entries["model_args"], "no_embed_class": False})
    with pytest.raises(CheckpointError, match="no_embed_class: expected True, got False"):
        from_timm(tmp_path / "folder")


def test_every_size_has_a_name_and_every_name_a_size():
    assert [*FAMILIES] == sorted(FAMILIES) and {name.partition(",")[0] for name in MODELS} == {*FAMILIES}
    for file in FAMILIES:
        family = importlib.import_module(f"keras_tfm.convert.{file}").TIMM
        for name in family.architectures:
            assert family_of(name) is family
            config = family.size_of(name)
            assert family.read_config(family.write_config(config)) == config
    assert family_of("deit_tiny_patch16_224").model is ViT
    assert family_of("resnext50_32x4d") is None and family_of("vit_base_patch16_clip_224") is None


def test_a_folder_says_only_what_differs_from_its_architecture(folder):
    """timm's own folders have few arguments, or none: the image's size is in "pretrained_cfg"."""
    entries = json.loads((folder / "config.json").read_text())
    arguments = entries["model_args"]
    assert entries["architecture"] == "vit_tiny_patch16_224" and entries["pretrained_cfg"]["classifier"] == [
        "head"
    ]
    for name in ("img_size", "in_chans", "drop_path_rate", "class_token", "global_pool", "fc_norm"):
        del arguments[name]
    arguments["init_values"] = None  # as timm writes what is not there
    change(folder, model_args=arguments, num_classes=3)
    assert from_timm(folder).backbone.config == ONE_BLOCK


def test_preprocessing_is_kept(tmp_path):
    model = Classifier(ViT(ONE_BLOCK), 3)
    save_timm(model, tmp_path / "a")
    usual = {"mean": (0.5,), "std": (0.5,), "interpolation": "bilinear", "crop_fraction": 1.0}
    usual["rounds_crop"] = True
    assert timm_preprocessing_of(tmp_path / "a") == {**usual, "keep_aspect": False}
    for keep_aspect in (False, True):
        own = {**usual, "mean": (0.1,), "crop_fraction": 0.875, "keep_aspect": keep_aspect}
        save_timm(model, tmp_path / f"b{keep_aspect}", preprocessing=types.SimpleNamespace(**own))
        assert timm_preprocessing_of(tmp_path / f"b{keep_aspect}") == own


def test_the_folder_of_a_preprocessing_may_be_a_string(tmp_path):
    (tmp_path / "config.json").write_text('{"pretrained_cfg": {"mean": [0.25]}}')
    assert timm_preprocessing_of(str(tmp_path))["mean"] == (0.25,)


def test_preprocessing_that_is_not_said_is_that_of_timm(folder):
    change(folder, pretrained_cfg={})
    assert timm_preprocessing_of(folder) == {
        "mean": (0.485, 0.456, 0.406),
        "std": (0.229, 0.224, 0.225),
        "interpolation": "bicubic",
        "crop_fraction": 0.875,
        "keep_aspect": True,
        "rounds_crop": True,
    }
    for name, value in (
        ("mean", "0.5"),
        ("std", [0.0]),
        ("interpolation", "random"),
        ("crop_pct", 2),
        ("crop_mode", "border"),
    ):
        change(folder, pretrained_cfg={name: value})
        with pytest.raises(CheckpointError, match=f"config.json: {name}"):
            timm_preprocessing_of(folder)


def test_older_files_state_the_size_of_images_beside_the_architecture(tmp_path):
    save_timm(MODELS["resnet"](), tmp_path / "resnet")
    path = tmp_path / "resnet" / "config.json"
    entries = json.loads(path.read_text())
    path.write_text(json.dumps({**entries.pop("pretrained_cfg"), **entries}))
    assert from_timm(path.parent).backbone.config == RESNET


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "resnext50_32x4d"}, "architecture: expected a known one out of botnet..., cait_"),
        ({"architecture": 3}, "architecture"),
        ({"num_classes": -1}, "num_classes: expected 0 to"),
        ({"num_classes": 4}, "head.weight"),
        ({"model_args": 3}, "model_args: expected an object"),
        ({"model_args": {"embed_dim": 2**30}}, "expected a configuration of ViT, got `dim` is 1,073,741,824"),
        ({"model_args": {"embed_dim": "8"}}, "embed_dim: expected a whole number, got '8'"),
        ({"model_args": {"depth": 10**9}}, "depth: expected at most 10,000, got 1000000000"),
        ({"model_args": {"qkv_bias": False}}, "blocks.0.attn.qkv.bias: expected no such weight"),
        ({"model_args": {"pre_norm": True}}, "pre_norm: expected False, got True"),
        ({"model_args": {"init_values": 1e-5}}, "init_values: expected an argument out of"),
        ({"model_args": {"global_pool": "avg"}}, "class_token: expected False, got True"),
        ({"model_args": {"global_pool": "all"}}, "global_pool: expected one of token, avg, map, got 'all'"),
        ({"model_args": {"drop_rate": 2}}, "drop_rate"),
    ],
)
def test_faulty_folders(changes, message, folder):
    entries = json.loads((folder / "config.json").read_text())
    if isinstance(changes.get("model_args"), dict):
        changes = {"model_args": {**entries["model_args"], **changes["model_args"]}}
    change(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        from_timm(folder)


def test_models_that_timm_has_not(tmp_path):
    for model in (
        ViT(ONE_BLOCK),
        Classifier(ViT(ONE_BLOCK), 3, hidden_dim=4),
        Classifier(DeiT(DEIT), 3),
        Classifier(BERT(TINY), 3),
    ):
        with pytest.raises(TypeError, match="has no counterpart in timm"):
            save_timm(model, tmp_path / "folder")
    with pytest.raises(ValueError, match="computes only `pooling` class, mean, attention; it is 'flatten'"):
        save_timm(Classifier(ViT(FLATTEN), 3), tmp_path / "folder")
    with pytest.raises(ValueError, match="computes only `activation` 'gelu'; it is 'relu'"):
        save_timm(Classifier(ViT(dataclasses.replace(ONE_BLOCK, activation="relu")), 3), tmp_path / "folder")
    with pytest.raises(ValueError, match=r"timm has other windows than `window` 3 in a map of \(6, 8\)"):
        save_timm(Classifier(Swin(SWIN), 3), tmp_path / "folder")
    with pytest.raises(ValueError, match=r"timm pads a map of \(2, 4\) for `windows` of 3"):
        save_timm(Classifier(Twins(dataclasses.replace(SVT, windows=(3, 3))), 3), tmp_path / "folder")
    with pytest.raises(ValueError, match="computes only `patch_size` 16 for mixer_s16_224; it is 32"):
        save_timm(Classifier(MLPMixer(MIXER), 3), tmp_path / "folder", "mixer_s16_224")
    for changes, message in (
        ({"depths": (2, 1, 2, 2)}, "computes only `depths`"),
        ({"image_size": 31}, "sides that are multiples of 32; they are 31"),
        ({"dims": (16, 32, 64, 136)}, "only the widths of botnet26t_256"),
        ({"activation": "gelu"}, "`activation` must be relu or silu; it is 'gelu'"),
    ):
        with pytest.raises(ValueError, match=message):
            save_timm(Classifier(BoTNet(dataclasses.replace(BOTNET, **changes)), 3), tmp_path / "folder")
    other = dataclasses.replace(BIT, depths=(1, 1, 1, 1))
    with pytest.raises(ValueError, match=r"computes only `layers` \(3, 4, 6, 3\) for resnetv2_50x1_bit"):
        save_timm(Classifier(BiT(other), 3), tmp_path / "folder")
    with pytest.raises(
        ValueError, match=r"`architecture` must be one of vit_tiny_patch16_224, .*'resnext50_32x4d'"
    ):
        save_timm(Classifier(ViT(ONE_BLOCK), 3), tmp_path / "folder", "resnext50_32x4d")


def test_ratios_come_back():
    for width in range(1, 60):
        for whole in range(1, 200):
            assert int(width * ratio_of(whole, width)) == whole
