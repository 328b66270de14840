"""MLP-Mixer's checkpoints in timm's format (Tolstikhin et al. 2021)."""

from keras_tfm.convert.arguments import Arguments
from keras_tfm.convert.keymap import linear, norm, patches
from keras_tfm.models import MLPMixer

MODEL = MLPMixer
ARCHITECTURES = {f"mixer_{size[0].lower()}{size[2:]}_224": size for size in MLPMixer.sizes if size != "H/14"}
ARGUMENTS = Arguments(
    MLPMixer,
    fields={
        "img_size": "image_size",
        "patch_size": "patch_size",
        "in_chans": "num_channels",
        "num_blocks": "num_layers",
        "embed_dim": "dim",
        "proj_drop_rate": "dropout",
        "drop_path_rate": "stochastic_depth",
    },
    ratios={"mlp_ratio": ("tokens_dim", "channels_dim", "dim")},
    fixed_entries={"stem_norm": False, "nlhb": False, "global_pool": "avg"},
    fixed_fields={"activation": "gelu", "epsilon": 1e-6},
    named=("patch_size", "num_blocks", "embed_dim"),
)
config_of, arguments_of = ARGUMENTS.config_of, ARGUMENTS.arguments_of


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
