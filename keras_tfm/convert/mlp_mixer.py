"""MLP-Mixer's checkpoints as timm has them (Tolstikhin et al. 2021)."""

from keras_tfm.convert.keymap import linear, norm, patches
from keras_tfm.convert.state import check_arguments, read_state
from keras_tfm.heads import Classifier
from keras_tfm.models import MLPMixer, MLPMixerConfig

ARCHITECTURES = {f"mixer_{size[0].lower()}{size[2:]}_224": size for size in MLPMixer.sizes if size != "H/14"}
ARGUMENTS = {
    "img_size",
    "patch_size",
    "in_chans",
    "num_blocks",
    "embed_dim",
    "mlp_ratio",
    "drop_path_rate",
    "num_classes",
}


def rows(config):
    """The table of a configuration, the classifier's rows too."""
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


def config_of(arguments):
    """Our configuration of timm's arguments; CheckpointError for those that mean another model."""
    check_arguments(arguments, ARGUMENTS)
    dim, ratio = arguments.get("embed_dim", 512), arguments.get("mlp_ratio", (0.5, 4.0))
    tokens, channels = ratio if isinstance(ratio, list | tuple) else (ratio, ratio)
    return MLPMixerConfig(
        image_size=arguments.get("img_size", 224),
        patch_size=arguments.get("patch_size", 16),
        num_channels=arguments.get("in_chans", 3),
        num_layers=arguments.get("num_blocks", 8),
        dim=dim,
        tokens_dim=int(tokens * dim),
        channels_dim=int(channels * dim),
        stochastic_depth=arguments.get("drop_path_rate", 0.0),
    )


def read(arguments, weights):
    """Our model of timm's class, and its outputs by the names of theirs."""
    config = config_of(arguments)
    backbone = MLPMixer(config)
    model = Classifier(backbone, arguments.get("num_classes", 1000))
    read_state(model, weights, rows(config))
    embedded, *states = backbone.hidden_states["encoder"]
    outputs = {
        "logits": model.output,
        "features/embed": embedded,
        "features/norm": backbone.output["sequence_output"],
    }
    return model, outputs | {f"features/block_{i}": state for i, state in enumerate(states)}
