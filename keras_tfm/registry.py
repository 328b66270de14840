"""The names under which Keras saves, and finds again, what this package and its users define."""

import keras

FAMILIES = "keras_tfm.models."


def register(definition):
    """Register a class or function, so that Keras loads it by the name `package>Name`; a decorator.

    The package is the top one of the module that defines it, but for what a family defines beside its model:
    `keras_tfm.deberta>ConvolutionBranch` stands in models/text/deberta.py. A new definition in the same
    module, such as a notebook, replaces the old one. Raises ValueError where another module has the name:
    loading would return the wrong class.
    """
    module = definition.__module__
    package = package_of(module)
    name = f"{package}>{definition.__name__}"
    known = keras.saving.get_custom_objects().get(name)
    if known is not None and known.__module__ != module:
        raise ValueError(
            f"Keras would load {name!r} from two modules, {known.__module__} and {module}: give one of the "
            "two definitions another name."
        )
    return keras.saving.register_keras_serializable(package)(definition)


def package_of(module):
    """The package of what the module of this dotted name registers."""
    top, last = module.partition(".")[0], module.rpartition(".")[2]
    return f"{top}.{last}" if module.startswith(FAMILIES) else top
