"""SavedModels that hold a task whole and need neither Keras nor this package to answer."""

import re

import keras
import tensorflow as tf

from keras_tfm.private.keras import track_in_export, write_export


def write_saved_model(model, endpoints, resources, folder):
    """Write `endpoints` {signature: (function, input signature)} around `model` to `folder`.

    `resources` are the trackable objects, tokenizers for example, that the functions use. `model` is a model,
    or holds the arrays and tables of a task without one. OSError where they cannot be written.
    """
    archive = keras.export.ExportArchive()
    if isinstance(model, keras.Model):
        archive.track(model)
    else:
        resources = [model, *resources]
    # Tables that are not tracked would leave an "untracked resource" behind.
    track_in_export(archive, resources)
    for name, (function, signature) in endpoints.items():
        archive.add_endpoint(name, function, input_signature=signature)
    try:
        write_export(archive, endpoints, str(folder))
    except tf.errors.OpError as error:  # a disk that is full, for example
        reason = re.sub(r"\{\{[^}]*\}+|\[Op:\w+\]", "", error.message)
        raise OSError(" ".join(f"{folder}: {reason}".split())[:500]) from error
