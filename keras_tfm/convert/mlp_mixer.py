"""MLP-Mixer's checkpoints in timm's format (Tolstikhin et al. 2021)."""

from keras_tfm.convert.entries import ratios
from keras_tfm.convert.keymap import linear, norm, patches
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import MLPMixer


def rows(config):
    """The table of weights for a configuration, with the classifier's rows."""
    return [
        *patches("patch_embedding", "stem.proj", config.patch_size),
        *norm("block_{}/attention/norm", "blocks.{}.norm1"),
        *linear("block_{}/attention/branch/layer/hidden", "blocks.{}.mlp_tokens.fc1"),
        *linear("block_{}/attention/branch/layer/output", "blocks.{}.mlp_tokens.fc2"),
        *norm("block_{}/feedforward/norm", "blocks.{}.norm2"),
        *linear("block_{}/feedforward/branch/hidden", "blocks.{}.mlp_channels.fc1"),
        *linear("block_{}/feedforward/branch/output", "blocks.{}.mlp_channels.fc2"),
        *norm("norm", "norm"),
        *linear("head/output", "head"),
    ]


TIMM = TimmFamily(
    model=MLPMixer,
    rows=rows,
    architectures={
        f"mixer_{size[0].lower()}{size[2:]}_224": size for size in MLPMixer.sizes if size != "H/14"
    },
    fields={
        "image_size": "img_size",
        "patch_size": "patch_size",
        "num_channels": "in_chans",
        "num_layers": "num_blocks",
        "dim": "embed_dim",
        "dropout": "proj_drop_rate",
        "stochastic_depth": "drop_path_rate",
        **ratios("mlp_ratio", ["tokens_dim", "channels_dim"], "dim", "embed_dim"),
    },
    fixed_entries={"stem_norm": False, "nlhb": False, "global_pool": "avg"},
    fixed_fields={"activation": "gelu", "epsilon": 1e-6},
    named_entries=("patch_size", "num_blocks", "embed_dim"),
)
