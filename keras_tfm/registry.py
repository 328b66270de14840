"""The names under which Keras saves, and finds again, the classes of this package and of its users."""

import keras

FAMILIES = "keras_tfm.models."


def register(definition):
    """A decorator that registers a class or function, so that Keras loads it by the name `package>Name`.

    The package is the first part of the module's name; for layers in a model family's file it includes the
    family, such as `keras_tfm.deberta>ConvolutionBranch` for models/text/deberta.py. A new definition in the
    same module, a notebook for example, replaces the old one. Raises ValueError if another module has the
    name already, because loading could return the wrong class.
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
    """The package under which definitions of the module `module` are registered."""
    top, last = module.partition(".")[0], module.rpartition(".")[2]
    return f"{top}.{last}" if module.startswith(FAMILIES) else top
