"""A class under contract, and the inputs that it takes."""

import copy
import dataclasses
import functools
import json
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import keras_tfm
from tests.contract.tools import run

BATCH = 3
LENGTHS = {"S": 7, "T": 5, "M": 3}


@dataclasses.dataclass(frozen=True)
class Spec:
    """An input without its batch axis: letters are lengths; `size` bounds its integers."""

    shape: tuple
    dtype: str = "float32"
    size: int = 0

    def draw(self, rng, batch_size, lengths):
        shape = (batch_size, *(lengths.get(n, n) for n in self.shape))
        if self.dtype == "bool":  # padded on the right, the first row not at all
            sizes = rng.integers(1, shape[-1] + 1, shape[:-1])
            sizes[:1] = shape[-1]
            return np.arange(shape[-1]) < sizes[..., None]
        if self.dtype == "int32":
            return rng.integers(0, self.size, shape, "int32")
        return rng.normal(size=shape).astype(self.dtype)


def floats(*shape):
    """Normal numbers of shape (B, *shape), such as `floats("T", 8)`."""
    return Spec(shape)


def ids(axis, size):
    """Integers in [0, size): (B, axis)."""
    return Spec((axis,), "int32", size)


def mask(*axes):
    """The padding mask (B, *axes) of every input that has the last of these axes."""
    return Spec(axes, "bool")


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A class under contract: how to make one, what goes in, what it can do.

    `factory` makes the layer or model, `inputs` names its tensors in the order of its call, `call` the
    other arguments. What it promises, each by default nothing: `attends`, its attention weights are
    `masked_softmax`'s; `causal`, the axis along which no output sees what comes later; `left_padding`,
    the axis that may be padded on the left; `cache(layer, inputs, max_length)` starts decoding along
    `causal`; `reference(layer, **inputs)` computes the same with NumPy in float64, `plain` without
    fusing; `tied(model)` gives the two variables that are one. `convolves` says that there are convolutions:
    by oneDNN, TensorFlow's of an empty batch have the shape of their input. `without_effect` are the ends of
    the paths of weights on which, by the mathematics, no output depends. `mixes_padding` says that padding
    counts as all else does, whatever the mask. `compares` says that outputs have two axes of the batch, whose
    rows are compared with each other. `chooses` says that the highest scores choose the outputs, some of them
    in float32, so that lower precision may choose others. `deviation` is the standard deviation of the random
    weights; where no norm stands before the outputs, large ones magnify roundings and slow training down.
    `left_loss` is the share of the first loss that training on one batch leaves at most.

    `kind` says what the case stands for among all others, "encoder" for example, or how it differs from them:
    `make test` checks the dear invariants (XLA, SavedModel, rematerialisation, overfitting) on these cases
    alone, `make test-slow` on all.
    """

    name: str
    factory: Callable
    inputs: dict
    call: dict = dataclasses.field(default_factory=dict)
    attends: bool = False
    causal: str | None = None
    left_padding: str | None = None
    cache: Callable | None = None
    reference: Callable | None = None
    plain: Callable | None = None
    tied: Callable | None = None
    convolves: bool = False
    without_effect: tuple[str, ...] = ()
    mixes_padding: bool = False
    chooses: bool = False
    compares: bool = False
    deviation: float = 0.3
    left_loss: float = 0.05
    kind: str | None = None

    def draw(self, seed=0, batch_size=BATCH, **lengths):
        """The case's inputs; `lengths` by axis."""
        rng = np.random.default_rng(seed)
        return {name: spec.draw(rng, batch_size, LENGTHS | lengths) for name, spec in self.inputs.items()}

    def around(self, layer):
        """A functional model that is, or calls, `layer`."""
        if isinstance(layer, keras.Model):
            return layer
        inputs = {
            name: keras.Input(spec_shape(spec), dtype=spec.dtype, name=name)
            for name, spec in self.inputs.items()
        }
        return keras_tfm.Model(inputs, layer(**inputs, **self.call))

    @functools.cached_property
    def layer(self):
        return self.factory()

    @functools.cached_property
    def model(self):
        """One model for all invariants that leave its weights as they are; it calls `layer`."""
        model = self.around(self.layer)
        randomise(model, 1, self.deviation)
        return model

    @functools.cached_property
    def traced(self):
        """`model` as one graph for all batch sizes and lengths, quicker than many eager calls."""
        signature = {
            name: tf.TensorSpec((None, *spec_shape(spec)), spec.dtype, name)
            for name, spec in self.inputs.items()
        }
        return tf.function(self.model, input_signature=[signature], autograph=False)

    @functools.cached_property
    def outputs(self):
        """What `model`, called eagerly, answers to `draw()`."""
        return self.model(self.draw())

    @functools.cached_property
    def expected(self):
        """`outputs` as a list of arrays, each asserted finite."""
        return run(lambda outputs: outputs, self.outputs)

    @functools.cached_property
    def config(self):
        return json.loads(json.dumps(self.layer.get_config()))

    @functools.cached_property
    def twin(self):
        """A second layer, made of the first one's configuration."""
        return type(self.layer).from_config(copy.deepcopy(self.config))

    def other(self, seed):
        """The model of `twin`, always the same one, with weights drawn anew from `seed`."""
        randomise(self._other, seed, self.deviation)
        return self._other

    @functools.cached_property
    def _other(self):
        return self.around(self.twin)

    def axes(self, letter):
        """{input: axis} of the inputs that have this axis."""
        return {
            name: 1 + spec.shape.index(letter) for name, spec in self.inputs.items() if letter in spec.shape
        }


def spec_shape(spec):
    return tuple(None if isinstance(n, str) else n for n in spec.shape)


def randomise(model, seed, deviation=0.3):
    """Draw every floating-point weight: scales around 1, variances in [0.5, 1.5), all others around 0."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        if weight.name == "moving_variance":
            weight.assign(rng.uniform(0.5, 1.5, weight.shape))
        elif "float" in weight.dtype:
            weight.assign(rng.normal(weight.name == "gamma", deviation, weight.shape))
