"""ResNet's checkpoints with the names of transformers and of timm (He et al. 2016).

transformers has no entry for an image size; an additional entry stores our configuration's.
"""

from keras_tfm.convert.entries import Entry, times
from keras_tfm.convert.family import Family, class_head
from keras_tfm.convert.keymap import batch_counts, batch_norm, convolution, linear
from keras_tfm.convert.timm import TimmFamily
from keras_tfm.models import ResNet

BLOCK, THEIRS = "stage_{}_block_{}", "encoder.stages.{}.layers.{}"
CLASSIFIER = class_head("classifier.1")
FIELDS = {
    "image_size": "image_size",
    "num_channels": "num_channels",
    "stem_dim": "embedding_size",
    "dims": "hidden_sizes",
    "depths": "depths",
}


def resnet_rows(config):
    """The table with transformers' names, for both kinds of blocks."""
    table = _normalized("stem", "embedder.embedder.convolution", "embedder.embedder.normalization")
    table += _normalized(
        f"{BLOCK}/shortcut", f"{THEIRS}.shortcut.convolution", f"{THEIRS}.shortcut.normalization"
    )
    for i in range(2 if config.block == "basic" else 3):
        layer = f"{THEIRS}.layer.{i}"
        table += _normalized(f"{BLOCK}/branch/layer_{i}", f"{layer}.convolution", f"{layer}.normalization")
    return table


def timm_rows(config):
    """The table with timm's names and the classifier."""
    table = [*_normalized("stem", "conv1", "bn1"), *linear("head/output", "fc")]
    for stage in range(len(config.depths)):  # theirs counts from 1
        ours, theirs = f"stage_{stage}_block_{{}}", f"layer{stage + 1}.{{}}"
        table += _normalized(f"{ours}/shortcut", f"{theirs}.downsample.0", f"{theirs}.downsample.1")
        for i in range(2 if config.block == "basic" else 3):
            names = (f"{theirs}.conv{i + 1}", f"{theirs}.bn{i + 1}")
            table += _normalized(f"{ours}/branch/layer_{i}", *names)
    return table


def _normalized(ours, theirs, their_norm):
    return [*convolution(ours, theirs), *batch_norm(f"{ours}/norm", their_norm)]


def inner(config):
    """The width of the first convolution."""
    return config.dims[0] // (1 if getattr(config, "block", None) == "basic" else 4)


FAMILY = Family(
    model_type="resnet",
    backbone="ResNetModel",
    model=ResNet,
    prefix="resnet.",
    fields={**FIELDS, "block": "layer_type"},
    fixed_entries={
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": False,
    },
    fixed_fields={"last_stride": 2, "stem_stride": 4},
    rows=resnet_rows,
    heads={"ResNetForImageClassification": CLASSIFIER},
    buffers=(r".*\.num_batches_tracked",),
    buffers_of=batch_counts,
)


def read_block(value, _):
    """Our kind of block for the name of timm's class, or for our own name of it."""
    return "bottleneck" if "bottleneck" in str(value).lower() else "basic"


def read_dims(value, arguments):
    """Our widths for theirs, which are the inner widths of blocks."""
    return times([1 if read_block(arguments.get("block"), None) == "basic" else 4] * len(value), value)


TIMM = TimmFamily(
    model=ResNet,
    rows=timm_rows,
    architectures={f"resnet{size}": size for size in ResNet.sizes},
    fields={
        "image_size": "img_size",
        "num_channels": "in_chans",
        "depths": "layers",
        "dims": Entry(
            "channels",
            read_dims,
            lambda config: tuple(dim * inner(config) // config.dims[0] for dim in config.dims),
        ),
        "block": Entry("block", read_block, lambda config: config.block),
    },
    fixed_entries={
        "output_stride": 32,
        "global_pool": "avg",
        "cardinality": 1,
        "base_width": 64,
        "stem_width": 64,
        "stem_type": "",
        "replace_stem_pool": False,
        "block_reduce_first": 1,
        "down_kernel_size": 1,
        "avg_down": False,
        "drop_path_rate": 0.0,
        "drop_block_rate": 0.0,
    },
    fixed_fields={"stem_dim": 64, "last_stride": 2, "stem_stride": 4},
    default_entries={},
    named_entries=("block",),
    has_image_size=False,
)
