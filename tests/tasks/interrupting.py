"""A training that is interrupted, as Ctrl-C does it."""

import contextlib

import pytest

from keras_tfm.training.callbacks import Progress


@contextlib.contextmanager
def interrupted_at(epoch):
    """The training within this scope is interrupted as the epoch of this number, from 0, begins."""
    with pytest.raises(KeyboardInterrupt), interrupting_at(epoch):
        yield


@contextlib.contextmanager
def interrupting_at(epoch):
    """A scope in which a training raises KeyboardInterrupt as the epoch of this number, from 0, begins."""
    begin = Progress.on_epoch_begin

    def interrupt(progress, number, logs=None):
        if number == epoch:
            raise KeyboardInterrupt
        begin(progress, number, logs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "on_epoch_begin", interrupt)
        yield
