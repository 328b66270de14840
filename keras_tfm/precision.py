"""A layer's dtype policy reaches its parts: whatever is made for it without a dtype of its own.

Parts are those of their layer alone, also while Keras loads a file: see `private.keras.making`.
"""

import contextlib
import functools
import inspect

import keras

from keras_tfm.private.keras import making, parts_of


@contextlib.contextmanager
def default_policy(policy):
    """Layers made within, without a dtype, have the dtype policy `policy`; None changes nothing."""
    if policy is None:
        yield
        return
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(keras.dtype_policies.get(policy))
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def parts_follow(cls):
    """Give the parts that the layer class `cls` takes, or makes in `__init__` and `build`, its own policy.

    A class decorator. A part that was made with a dtype keeps it, and so does one that has weights already,
    such as an embedding that a head shares.
    """
    if "__init__" in vars(cls):
        cls.__init__ = _then_hand_on(cls.__init__)
    if "build" in vars(cls):
        cls.build = _under_own_policy(cls.build)
    return cls


def layers_follow(cls, default):
    """Give the model class `cls`, and the layers that its `__init__` makes, the dtype policy of a `dtype`.

    A class decorator. `default` makes of the other arguments the policy where `dtype` is left out; None is
    Keras's own.
    """
    if "__init__" in vars(cls):
        cls.__init__ = _under_given_policy(cls.__init__, default)
    return cls


def has_own_policy(layer, default):
    """Whether `layer` was made with a dtype where `default` was the policy of those made without.

    Keras's own layers do not tell: one counts as made with a dtype where its policy is not the default.
    """
    return getattr(layer, "has_own_policy", layer.dtype_policy != default)


def _under_given_policy(init, default):
    @_stands_for(init)
    def init_under_given_policy(self, *args, dtype=None, **kwargs):
        is_outermost = type(self).__init__ is init_under_given_policy  # a parent's runs under its child's
        if dtype is None and is_outermost:
            dtype = default(*args, **kwargs)
        with default_policy(dtype), making():
            init(self, *args, **kwargs)

    return init_under_given_policy


def _stands_for(function):
    """`functools.wraps` of an `__init__`, with its signature: Keras does not look for it through wrappers."""

    def decorator(wrapper):
        vars(wrapper)["__signature__"] = inspect.signature(function)
        return functools.wraps(function)(wrapper)

    return decorator


def _then_hand_on(init):
    @_stands_for(init)
    def init_and_hand_on(self, *args, **kwargs):
        with making():
            init(self, *args, **kwargs)
        _hand_on(self, keras.config.dtype_policy())

    return init_and_hand_on


def _under_own_policy(build):
    @functools.wraps(build)
    def build_under_own_policy(self, *args, **kwargs):
        with default_policy(self.dtype_policy):
            return build(self, *args, **kwargs)

    return build_under_own_policy


def _hand_on(layer, default):
    """Give the policy of `layer` to its parts that were made without a dtype, and from them to theirs.

    `default` was the policy of those made without.
    """
    policy = layer.dtype_policy
    for part in parts_of(layer):
        held = part.dtype_policy
        if held != policy and not has_own_policy(part, default) and not part.weights:
            part.dtype_policy = policy
            _hand_on(part, held)
