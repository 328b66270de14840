"""`keras-tfm train summarize`: `translate`, for longer texts and measured otherwise."""

from keras_tfm.cli import translate


def add(tasks):
    """Add the task to those that `train` knows."""
    translate.add_task(tasks, "summarize", "train a model that sums up a text in a line", max_length=512)
