"""Families of images by their reference implementations: whose class it is, and how its weights become ours.

`read(arguments, weights)` of a family's file gives our model of a class made with these constructor's
arguments and has this PyTorch state, and what the reference calls its outputs: `logits`, and
`features/block_0` for example.
"""

import importlib
import re

# A part of the reference's name, in whole words: the file whose `read` knows it, or another of its functions.
CONVERTERS = {
    "AutoFormer/model/supernet_transformer.py": "autoformer",
    "IBM/RegionViT regionvit/regionvit.py RegionViT": "regionvit",
    "KNN_VisionTransformer.py VisionTransformer": "kvt",
    "bychen515/GLiT glit_models.py": "glit",
    "ceit_model.py CeIT": "ceit",
    "facebookresearch/vilbert-multi-task vilbert/vilbert.py BertConnectionLayer": "vilbert.read_connection",
    "facebookresearch/vilbert-multi-task vilbert/vilbert.py BertEncoder": "vilbert",
    "ggjy/CMT.pytorch cmt.py CMT": "cmt",
    "linhezheng19/CAT src/cat.py CAT": "cat",
    "models.py HVT": "hvt",
    "models/deep_vision_transformer.py DeepVisionTransformer": "deepvit",
    "models/localvit.py LocalVisionTransformer": "localvit",
    "models/shuffle_transformer.py ShuffleTransformer": "shuffle_transformer",
    "timm.layers.bottleneck_attn.BottleneckAttn": "botnet.read_attention",
    "timm.models.byobnet.ByobNet": "botnet",
    "timm.models.cait.Cait": "cait",
    "timm.models.levit.Levit": "levit",
    "timm.models.levit.LevitDistilled": "levit",
    "timm.models.mlp_mixer.MlpMixer": "mlp_mixer",
    "timm.models.pit.PoolingVisionTransformer": "pit",
    "timm.models.resnet.ResNet": "resnet",
    "timm.models.swin_transformer.SwinTransformer": "swin",
    "timm.models.swin_transformer_v2.SwinTransformerV2": "swin_v2",
    "timm.models.tnt.TNT": "tnt",
    "timm.models.twins.Twins": "twins",
    "timm.models.visformer.Visformer": "visformer",
    "timm.models.xcit.Xcit": "xcit",
}


def converter_of(reference):
    """The `read` for a `reference`, "timm 1.0.31 timm.models.levit.Levit" for example; None if there is none.

    Of several names that occur in it the longest counts.
    """
    found = [name for name in CONVERTERS if re.search(rf"(?<!\S){re.escape(name)}(?![^\s,(])", reference)]
    if not found:
        return None
    file, _, function = CONVERTERS[max(found, key=len)].partition(".")
    return getattr(importlib.import_module(f"keras_tfm.convert.{file}"), function or "read")
