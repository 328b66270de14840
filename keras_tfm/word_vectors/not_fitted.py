"""What an estimator says that is asked before it has learnt."""

from typing import Any, ClassVar


class NotFittedError(ValueError, AttributeError):
    """An estimator is asked for what it learns before its `fit`."""


class Learns:
    """The base of a class whose attributes `learnt` exist after `fit` or `load` alone; NotFittedError before.

    >>> keras_tfm.word_vectors.TfIdf().transform(["the cat"])
    Traceback (most recent call last):
    keras_tfm.word_vectors.not_fitted.NotFittedError: TfIdf has no `vocabulary` before `fit` or `load`.
    """

    learnt: ClassVar[tuple[str, ...]] = ()

    def __getattr__(self, name: str) -> Any:
        """Reached only where there is no attribute of this `name`."""
        if name in type(self).learnt:
            raise NotFittedError(f"{type(self).__name__} has no `{name}` before `fit` or `load`.")
        if isinstance(computed := getattr(type(self), name, None), property) and computed.fget:
            return computed.fget(self)  # Python asks here too where a property raised the error above
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
