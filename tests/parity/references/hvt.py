"""HVT's checkpoints in the authors' format (Pan et al. 2021)."""

from keras_tfm.convert.deit import FIRST_OF_ONE
from keras_tfm.convert.keymap import weight
from keras_tfm.convert.variant import attention_rows, embedding_rows, feedforward_rows
from keras_tfm.models import HVT, HVTConfig
from tests.parity.references.variant import fields_of, read_as


def rows(config):
    """The table of weights for a configuration."""
    position = weight("block_{}/position/embedding/embeddings", "blocks.{}.pos_embed", FIRST_OF_ONE)
    return [*embedding_rows(config), *attention_rows(), *feedforward_rows(), *position]


def config_of(arguments):
    """The configuration for the arguments of the authors' class."""
    return HVTConfig(
        **fields_of(arguments),
        pool_every=arguments["pool_block_width"],
        pool_size=arguments["pool_kernel_size"],
        pool_stride=arguments["pool_stride"],
    )


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    return read_as(HVT, config, arguments["num_classes"], weights, rows(config))
