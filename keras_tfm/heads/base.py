"""The base of models that are a backbone with a head: the constructor's arguments are the configuration."""

import inspect

import keras

from keras_tfm.precision import layers_follow
from keras_tfm.registry import register
from keras_tfm.training.model import FunctionalModel


class ModelWithHead(FunctionalModel):
    """A functional model around a `backbone`, whose weights it shares and does not copy.

    A subclass takes the backbone, plain values and `name`, and keeps each as the attribute of the same name;
    `get_config` and loading follow from that. To fine-tune a pre-trained backbone, give it a new head. The
    head has the backbone's dtype policy, or that of `dtype`.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        layers_follow(register(cls), lambda backbone, *_, **__: backbone.dtype_policy)

    def __init__(self, backbone, inputs, outputs, **kwargs):
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.backbone = backbone

    def get_config(self):
        parameters = inspect.signature(type(self).__init__).parameters.values()
        names = [p.name for p in parameters if p.name != "self" and p.kind is not p.VAR_KEYWORD]
        config = {name: getattr(self, name) for name in names}
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        return {**config, "backbone": keras.saving.serialize_keras_object(self.backbone), "dtype": dtype}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Rebuild the model from `get_config`'s dictionary."""
        backbone = keras.saving.deserialize_keras_object(config["backbone"], custom_objects)
        return cls(**{**config, "backbone": backbone})


def reading_of(backbone):
    """(Inputs, outputs) by which `backbone` reads a text: its own, or what its `read` gives, where it is an
    encoder-decoder that reads the text on both sides.
    """
    return backbone.read() if hasattr(backbone, "read") else (backbone.input, backbone.output)
