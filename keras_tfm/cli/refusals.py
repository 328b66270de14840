"""What verbs refuse of a RUN, its task's options, and files, before TensorFlow is imported."""

import argparse
import os
from collections.abc import Iterable
from typing import Any

from keras_tfm.asking import ASKED, Asking
from keras_tfm.cli.generated import flag_of, given
from keras_tfm.configs import kinds_of


def task_in(folder: str) -> str:
    """The name of the task of a RUN; ValueError for another folder."""
    from keras_tfm.tasks.task_folder import read_config

    return read_config(folder)["task"]


def refuse_missing(paths: Iterable[str | None]) -> None:
    """Raise ValueError for the first of the files that is not there: paths, patterns, None, "-" for standard
    input, or names of data sets.
    """
    from keras_tfm.data.sources.lines import PREPARED, DataError, files_of

    for path in files_of([path for path in paths if path is not None]):
        if path != "-" and not path.startswith(PREPARED) and not os.path.exists(path):
            raise DataError(path, None, f"cannot be read: {os.strerror(2)}")


def asking_of(arguments: argparse.Namespace, name: str, asking: Asking) -> dict[str, Any]:
    """The given options of `predict` for the task `name`; ValueError for one that its `asking` lacks."""
    options = given(arguments, Asking)
    for option in options:
        if option not in kinds_of(type(asking)):
            known = (type(other.asking) for other in ASKED.values())
            flag = next(flag_of(kind, option) for kind in known if option in kinds_of(kind))
            raise ValueError(f"{flag}: the task {name!r} has no such option")
    return options
