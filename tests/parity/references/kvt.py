"""KVT's checkpoints in the authors' format (Wang et al. 2022)."""

from keras_tfm.convert.variant import attention_rows, embedding_rows, feedforward_rows
from keras_tfm.models import KVT, KVTConfig
from tests.parity.references.variant import fields_of, read_as


def rows(config):
    """The table of weights for a configuration."""
    return [*embedding_rows(config), *attention_rows(), *feedforward_rows()]


def config_of(arguments):
    """Our configuration for their constructor's arguments; `topk` is an attribute of their attention."""
    return KVTConfig(**fields_of(arguments), k=arguments.get("topk", 100))


def read(arguments, weights):
    """The model for the authors' arguments and weights, and its outputs by their names."""
    config = config_of(arguments)
    return read_as(KVT, config, arguments["num_classes"], weights, rows(config))
