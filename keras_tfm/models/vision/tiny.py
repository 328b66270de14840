"""A small configuration of each family of images or videos: for images of some 32 x 32, and 10^4
to 10^5 examples, or for some thousands of videos of 64 x 64. Each has about a million weights.
"""

from typing import Any

from keras_tfm.configs import kinds_of
from keras_tfm.models.base import ConfiguredModel
from keras_tfm.models.vision.autoformer import AutoFormer
from keras_tfm.models.vision.botnet import BoTNet
from keras_tfm.models.vision.cait import CaiT
from keras_tfm.models.vision.cat import CAT
from keras_tfm.models.vision.ceit import CeiT
from keras_tfm.models.vision.cmt import CMT
from keras_tfm.models.vision.cpvt import CPVT
from keras_tfm.models.vision.cvt import CvT
from keras_tfm.models.vision.deepvit import DeepViT
from keras_tfm.models.vision.deit import DeiT
from keras_tfm.models.vision.dinov2 import DINOv2
from keras_tfm.models.vision.dinov3 import DINOv3
from keras_tfm.models.vision.glit import GLiT
from keras_tfm.models.vision.hvt import HVT
from keras_tfm.models.vision.hybrid_vit import HybridViT
from keras_tfm.models.vision.kvt import KVT
from keras_tfm.models.vision.levit import LeViT
from keras_tfm.models.vision.localvit import LocalViT
from keras_tfm.models.vision.mit import MiT
from keras_tfm.models.vision.mlp_mixer import MLPMixer
from keras_tfm.models.vision.pit import PiT
from keras_tfm.models.vision.regionvit import RegionViT
from keras_tfm.models.vision.resnet import BiT, ResNet
from keras_tfm.models.vision.resnet_vd import ResNetVD
from keras_tfm.models.vision.shuffle_transformer import ShuffleTransformer
from keras_tfm.models.vision.swin_v2 import SwinV2
from keras_tfm.models.vision.tnt import TNT
from keras_tfm.models.vision.twins import Twins
from keras_tfm.models.vision.visformer import Visformer
from keras_tfm.models.vision.vitas import ViTAS
from keras_tfm.models.vision.xcit import XCiT

LAYERS = 6
VIT = {"patch_size": 4, "num_layers": LAYERS, "dim": 128, "num_heads": 4, "intermediate_dim": 384}
STAGES = {"dims": (48, 96, 192), "depths": (1, 2, 1), "num_heads": (1, 2, 4)}
WINDOWS = {"patch_size": 2, "depths": (2, 2, 2), "dim": 48, "num_heads": (2, 4, 8), "window": 4}
FOUR = {"dims": (32, 64, 128, 192), "depths": (1, 1, 2, 1), "num_heads": (1, 2, 4, 6)}
SHRINKING = {"reductions": (4, 2, 1), "mlp_ratios": (4, 4, 4)}

FIELDS: dict[Any, dict[str, Any]] = {
    AutoFormer: {
        "patch_size": 4,
        "dim": 128,
        "num_heads": (4,) * LAYERS,
        "mlp_ratios": (3.0,) * LAYERS,
        "key_dim": 32,
    },
    BiT: {"stem_dim": 64, "dims": (128, 256, 512), "depths": (1, 2, 2), "num_groups": 16},
    BoTNet: {
        "stem_dim": 64,
        "dims": (128, 256, 512),
        "depths": (1, 2, 2),
        "inner_dims": (32, 64, 128),
        "strides": (1, 2, 1),
        "attending": (0, 0, 2),
    },
    CaiT: VIT | {"layer_scale": 0.1, "num_layers": LAYERS - 2},
    CAT: WINDOWS,
    CeiT: VIT | {"patch_size": 1, "stem_dim": 32},
    CMT: FOUR | {"stem_dim": 16, "mlp_ratios": (3,) * 4, "reductions": (4, 2, 1, 1), "output_dim": 256},
    CPVT: VIT,
    CvT: {"dims": (32, 64, 128), "depths": (1, 1, 4), "num_heads": (1, 2, 4)},
    DeepViT: VIT | {"num_mixing_layers": LAYERS},
    DeiT: VIT,
    DINOv2: VIT | {"num_registers": 4},
    DINOv3: VIT,
    GLiT: {
        "patch_size": 4,
        "dim": 128,
        "num_heads": 4,
        "num_attention_heads": (4, 2, 2, 2, 2, 4),
        "expansions": (1.0,) * LAYERS,
        "kernel_sizes": (17,) * LAYERS,
        "mlp_ratios": (3.0,) * LAYERS,
    },
    HVT: VIT | {"pool_every": LAYERS},
    HybridViT: VIT
    | {"patch_size": 1, "stem_dim": 32, "stage_dims": (64,), "stage_depths": (2,), "num_groups": 8},
    KVT: VIT | {"k": 32},
    LeViT: {
        "image_size": 64,
        "dims": (64, 96, 128),
        "num_layers": (2, 2, 2),
        "num_heads": (4, 6, 8),
        "key_dim": 16,
    },
    LocalViT: VIT,
    MiT: FOUR
    | {
        "patch_sizes": (3,) * 4,
        "strides": (2,) * 4,
        "reductions": (4, 2, 1, 1),
        "mlp_ratios": (4,) * 4,
    },
    MLPMixer: {"patch_size": 4, "num_layers": LAYERS, "dim": 128, "tokens_dim": 64, "channels_dim": 512},
    PiT: STAGES | {"patch_size": 4, "stride": 2},
    RegionViT: {"dims": (48, 96), "depths": (2, 2), "num_heads": (2, 4), "window": 4},
    **{
        family: {"stem_dim": 32, "dims": (32, 64, 128, 256), "depths": (1,) * 4, "block": "basic"}
        for family in (ResNet, ResNetVD)
    },
    ShuffleTransformer: {
        "image_size": 28,
        "stem_dim": 16,
        "depths": (4,),
        "num_heads": (4,),
        "head_dim": 32,
        "window": 7,
    },
    SwinV2: WINDOWS,
    TNT: {
        "patch_size": 4,
        "pixel_size": 2,
        "num_layers": LAYERS,
        "dim": 128,
        "num_heads": 4,
        "inner_dim": 16,
        "inner_heads": 2,
    },
    Twins: STAGES | SHRINKING | {"patch_size": 2},
    Visformer: {"image_size": 64, "stem_dim": 16, "dim": 96, "depths": (2, 2, 2), "num_heads": 3},
    ViTAS: {
        "patch_size": 4,
        "dim": 128,
        "num_heads": (4,) * LAYERS,
        "key_dims": (32,) * LAYERS,
        "hidden_dims": (384,) * LAYERS,
    },
    XCiT: VIT | {"patch_size": 8, "num_layers": LAYERS - 2},
}

# The fields of videos' families; a family takes the ones that it has. ViViT was measured with them, see
# examples/moving_shapes_actions.py.
VIDEO = {
    "num_frames": 8,
    "image_size": 64,
    "tubelet_size": (4, 8, 8),
    "patch_size": 8,
    "num_layers": 4,
    "dim": 96,
    "num_heads": 4,
    "intermediate_dim": 288,
}


def tiny_config(family: type[ConfiguredModel]) -> Any:
    """A small configuration of a `family` of models of images or videos: its size "tiny", or one for 32 x 32
    pixels, of videos 64 x 64.

    >>> keras_tfm.models.tiny_config(keras_tfm.models.ViT).image_size
    32
    """
    if "tiny" in family.sizes:
        return family.sizes["tiny"]
    names = kinds_of(family.config_class).keys()
    if "num_frames" in names:
        return family.config_class(**{name: value for name, value in VIDEO.items() if name in names})
    return family.config_class(**{"image_size": 32} | FIELDS[family])
