"""The hybrid ViT's checkpoints in timm's format (Dosovitskiy et al. 2021, Steiner et al. 2022)."""

from keras_tfm.convert import vit
from keras_tfm.convert.keymap import convolution, linear, norm, patches, weight
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import HybridViT


def rows(config):
    """The table of weights for a configuration, with the classifier's rows."""
    network, encoder = "patch_embed.backbone", "patch_encoder"
    stem = f"{network}.stem" if config.stage_depths else network
    block, theirs = "stage_{}_block_{}", f"{network}.stages.{{}}.blocks.{{}}"
    table = [
        *_normalized("stem", 0, f"{stem}.conv", f"{stem}.norm"),
        *_normalized(f"{block}/shortcut", 0, f"{theirs}.downsample.conv", f"{theirs}.downsample.norm"),
        *patches(f"{encoder}/patches", "patch_embed.proj", config.patch_size),
        *weight(f"{encoder}/class_token/embedding", "cls_token"),
        *weight(f"{encoder}/position/embedding/embeddings", "pos_embed", vit.FIRST_OF_ONE),
        *vit.timm_encoder_rows("block_{}", "blocks.{}"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]
    for i in range(3):
        table += _normalized(f"{block}/branch", 3 * i, f"{theirs}.conv{i + 1}", f"{theirs}.norm{i + 1}")
    return table


def _normalized(ours, first, theirs, their_norm):
    """The rows of a convolution and its norm; the convolution is the layer `first` of a chain."""
    kernel = weight(f"{ours}/layer_{first}/kernel", f"{theirs}.weight", convolution("", "")[0].transform)
    return [*kernel, *norm(f"{ours}/layer_{first + 1}", their_norm)]


STAGES = ("stem_dim", "stage_dims", "stage_depths", "num_groups")  # not among timm's arguments
TIMM = TimmFamily(
    model=HybridViT,
    rows=rows,
    architectures={
        "vit_tiny_r_s16_p8_224": "R+Ti/16",
        "vit_tiny_r_s16_p8_384": "R+Ti/16",
        "vit_small_r26_s32_224": "R26+S/32",
        "vit_small_r26_s32_384": "R26+S/32",
        "vit_base_r50_s16_224": "R50+B/16",
        "vit_base_r50_s16_384": "R50+B/16",
        "vit_large_r50_s32_224": "R50+L/32",
        "vit_large_r50_s32_384": "R50+L/32",
    },
    fields={**vit.TIMM_FIELDS, **{name: name for name in STAGES}},
    fixed_entries={**vit.TIMM.fixed_entries, **vit.POOLINGS["class"]},
    fixed_fields={**vit.TIMM.fixed_fields, "pooling": "class"},
    named_entries=STAGES,
)
