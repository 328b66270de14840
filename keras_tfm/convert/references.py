"""Vision families by their reference implementations: whose class it is, and how its weights become ours.

`read(reference, arguments, weights)` gives our model of a class that was made with these constructor's
arguments and has this PyTorch state, and what the reference calls its outputs: `logits`, and
`features/block_0` for example.
"""

import re

from keras_tfm.convert import cat, cmt, levit, regionvit, shuffle_transformer, swin, swin_v2, twins, xcit

# A part of the reference's name, in whole words: (its arguments, its weights) -> (model, {output: tensor}).
CONVERTERS = {
    "ggjy/CMT.pytorch cmt.py CMT": cmt.read,
    "IBM/RegionViT regionvit/regionvit.py RegionViT": regionvit.read,
    "linhezheng19/CAT src/cat.py CAT": cat.read,
    "mulinmeng/Shuffle-Transformer models/shuffle_transformer.py ShuffleTransformer": (
        shuffle_transformer.read
    ),
    "timm.models.levit.Levit": levit.read,
    "timm.models.levit.LevitDistilled": levit.read,
    "timm.models.swin_transformer.SwinTransformer": swin.read,
    "timm.models.swin_transformer_v2.SwinTransformerV2": swin_v2.read,
    "timm.models.twins.Twins": twins.read,
    "timm.models.xcit.Xcit": xcit.read,
}


def converter_of(reference):
    """The converter of a `reference`, "timm 1.0.31 timm.models.levit.Levit" for example; None if it has none.

    Of several names that occur in it the longest counts.
    """
    found = [name for name in CONVERTERS if re.search(rf"(?<!\S){re.escape(name)}(?![^\s,(])", reference)]
    return CONVERTERS[max(found, key=len)] if found else None
