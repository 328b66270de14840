"""The base class of models made of a backbone and a head: their configuration is the constructor's
arguments.
"""

import inspect
from typing import Any

import keras

from keras_tfm.layers.signatures import Backbone
from keras_tfm.precision import layers_follow, quantize_parts, quantized_parts_of
from keras_tfm.registry import register
from keras_tfm.training.model import FunctionalModel


class ModelWithHead(FunctionalModel):
    """A functional model around a `backbone`, whose weights it shares and does not copy. Abstract.

    A subclass takes the backbone, plain values and `name`, and keeps each as the attribute of the same name;
    `get_config` and loading follow from that. To fine-tune a pre-trained backbone, give it a new head. The
    head has the backbone's dtype policy unless `dtype` is given.

    >>> class Scorer(keras_tfm.heads.ModelWithHead):
    ...     def __init__(self, backbone, num_scores=1, name="scorer", **kwargs):
    ...         scores = keras.layers.Dense(num_scores, name="head")(backbone.output["pooled_output"])
    ...         super().__init__(backbone, backbone.input, scores, name=name, **kwargs)
    ...         self.num_scores = num_scores
    >>> model = Scorer(keras_tfm.models.BERT.from_size("tiny", vocabulary_size=100))
    >>> model.head_arguments, model.output.shape
    ({'num_scores': 1}, (None, 1))
    """

    backbone: Any  # a `Backbone`; for a head that decodes it has the methods of `Decodes` too

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        layers_follow(register(cls), lambda backbone, *_, **__: backbone.dtype_policy)

    def __init__(self, backbone: Backbone, inputs: Any, outputs: Any, **kwargs: Any) -> None:
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        self.backbone = backbone

    @property
    def blocks(self):
        """The blocks of the backbone."""
        return self.backbone.blocks

    @property
    def head_arguments(self):
        """The constructor's arguments that describe the head: all except the backbone and the name."""
        parameters = inspect.signature(type(self).__init__).parameters.values()
        names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
        return {name: getattr(self, name) for name in names if name not in ("self", "backbone", "name")}

    @property
    def head_weights(self) -> list[keras.Variable]:
        """The weights that are not the backbone's."""
        of_backbone = {id(weight) for weight in self.backbone.weights}
        return [weight for weight in self.weights if id(weight) not in of_backbone]

    def on(self, backbone: Backbone) -> Any:
        """This model if the `backbone` is its own, else the same head, with a copy of its weights, on the
        other one.
        """
        if backbone is self.backbone:
            return self
        make: Any = type(self)
        made = make(backbone, **self.head_arguments, name=self.name)
        quantize_parts(made, quantized_parts_of(self))
        for new, old in zip(made.head_weights, self.head_weights, strict=True):
            new.assign(old)
        return made

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        dtype = keras.dtype_policies.serialize(self.dtype_policy)
        config = {**self.head_arguments, "name": self.name, "backbone": backbone, "dtype": dtype}
        if parts := quantized_parts_of(self):  # of the backbone too: the head is made around its floats
            backbone["config"].pop("quantized_parts", None)
            config["quantized_parts"] = parts
        return config

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Rebuild the model from `get_config`'s dictionary."""
        backbone = keras.saving.deserialize_keras_object(config["backbone"], custom_objects)
        arguments = {**config, "backbone": backbone}
        parts = arguments.pop("quantized_parts", {})
        model = cls(**arguments)
        quantize_parts(model, parts)
        return model


class SetPredictor(ModelWithHead):
    """A `ModelWithHead` that answers by the last block of a decoder and learns by all. Abstract.

    Its `predictions` are the predictions of all blocks.
    """

    num_classes: int
    predictions: Any
    takes_objects = False  # whether the `learner` has the true `objects` for an input too
    takes_visible = False  # whether its loss takes boxes of visible parts, and regions to ignore

    def loss_of_training(self) -> keras.losses.Loss:
        """The loss of what `learner` gives."""
        raise NotImplementedError

    def learner(self) -> keras.Model:
        """The model to train: one of the same layers that gives the predictions of all decoder blocks."""
        return FunctionalModel(self.input, self.predictions, name=self.name)


def reading_of(backbone):
    """(Inputs, outputs) with which `backbone` reads a text.

    An encoder-decoder that reads the text on both sides has a method `read`, which returns them; for any
    other backbone they are its own.
    """
    return backbone.read() if hasattr(backbone, "read") else (backbone.input, backbone.output)
