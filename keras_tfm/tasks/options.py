"""The options of `predict`: what a task's `asking` declares, and `keras-tfm predict` takes of its RUN."""

import dataclasses
from typing import Annotated

from keras_tfm.configs import Between, Config, Count, Option


@dataclasses.dataclass(frozen=True)
class Asking(Config):
    """No options. Fields of a derived class, annotated with `Option`, are arguments of the task's `predict`
    and `records` too, with the same defaults.
    """


@dataclasses.dataclass(frozen=True)
class Batched(Asking):
    """For tasks that answer in batches."""

    batch_size: Annotated[Count, Option("number of inputs that are processed at once")] = 64


@dataclasses.dataclass(frozen=True)
class Labelling(Batched):
    """For tasks that choose among labels."""

    probabilities: Annotated[
        bool, Option("the probabilities of all labels too, printed alone as a JSON object")
    ] = False


@dataclasses.dataclass(frozen=True)
class Finding(Batched):
    """For tasks that find objects in images."""

    batch_size: Annotated[Count, Option("number of inputs that are processed at once")] = 16
    threshold: Annotated[
        Annotated[float, Between(0, 1)] | None,
        Option("lowest score of the objects or segments that are printed", default="the task's"),
    ] = None
    draw: Annotated[str | None, Option("folder for pictures with boxes or masks drawn", default="none")] = (
        None
    )
