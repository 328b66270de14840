"""Vision families by their reference implementations: whose class it is, and how its weights become ours.

`read(reference, arguments, weights)` gives our model of a class that was made with these constructor's
arguments and has this PyTorch state, and what the reference calls its outputs: `logits`, and
`features/block_0` for example.
"""

import re

from keras_tfm.convert import botnet, levit, mlp_mixer, resnet, swin, tnt, visformer, xcit

# A part of the reference's name, in whole words: (its arguments, its weights) -> (model, {output: tensor}).
CONVERTERS = {
    "timm.layers.bottleneck_attn.BottleneckAttn": botnet.read_attention,
    "timm.models.byobnet.ByobNet": botnet.read,
    "timm.models.levit.Levit": levit.read,
    "timm.models.levit.LevitDistilled": levit.read,
    "timm.models.mlp_mixer.MlpMixer": mlp_mixer.read,
    "timm.models.resnet.ResNet": resnet.read,
    "timm.models.swin_transformer.SwinTransformer": swin.read,
    "timm.models.tnt.TNT": tnt.read,
    "timm.models.visformer.Visformer": visformer.read,
    "timm.models.xcit.Xcit": xcit.read,
}


def converter_of(reference):
    """The converter of a `reference`, "timm 1.0.31 timm.models.levit.Levit" for example; None if it has none.

    Of several names that occur in it the longest counts.
    """
    found = [name for name in CONVERTERS if re.search(rf"(?<!\S){re.escape(name)}(?![^\s,(])", reference)]
    return CONVERTERS[max(found, key=len)] if found else None
