"""Fitting a compiled model as every task does: best weights, time limit, resuming, progress."""

import keras

from keras_tfm.training.callbacks import BestWeights, Progress, TimeLimit
from keras_tfm.training.checkpoint import Checkpoint


class EpochNumber(keras.callbacks.Callback):
    """Tells, by `number`, the epoch that trains."""

    number = 0

    def on_epoch_begin(self, epoch, logs=None):
        self.number = epoch


def fit_best(
    model,
    train,
    validation,
    *,
    monitor,
    epochs,
    minutes=None,
    patience=None,
    save=None,
    folder=None,
    resume=False,
    settings=None,
):
    """Fit `model` and leave it with the weights of its best epoch: {measure: [its value an epoch]}.

    `train(epoch)` gives a dataset of one epoch, the one that the function `epoch` tells. Epochs are
    judged, lowest best, by `monitor` on the dataset `validation`, and `save()` is called at each
    new best. With `folder`, training's state is kept there after every epoch, and `resume` goes on
    from it, refusing other `settings`.
    """
    best = BestWeights(monitor, patience, save)
    count = EpochNumber()
    callbacks = [count, best, Progress()]
    finished = 0
    if folder is not None:
        checkpoint = Checkpoint(folder, best, settings or {})
        callbacks.append(checkpoint)
        if resume:
            finished = checkpoint.restore(model)
    if minutes is not None:
        callbacks.append(TimeLimit(minutes))
    count.number = finished
    history = model.fit(
        train(lambda: count.number),
        validation_data=validation,
        epochs=epochs,
        initial_epoch=finished,
        callbacks=callbacks,
        shuffle=False,
        verbose=0,
    )
    return history.history
