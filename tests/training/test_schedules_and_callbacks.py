"""Warm-up by its formula; the best averaged weights; the time limit."""

import io
import sys
import time

import keras
import numpy as np
import pytest
import tqdm

import keras_tfm
from keras_tfm.training import (
    BestWeights,
    Checkpoint,
    Progress,
    TimeLimit,
    WarmupConstantSchedule,
    WarmupCosineSchedule,
    WarmupLinearSchedule,
    WarmupSchedule,
)
from keras_tfm.training.changed_steps import ChangedInputs


def test_warmup_is_equation_3():
    dim, warmup = 512, 4_000
    schedule = WarmupSchedule((dim * warmup) ** -0.5, warmup)
    for step in (1, 10, 3_999, 4_000, 4_001, 100_000):
        expected = dim**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert float(schedule(step - 1)) == pytest.approx(expected, rel=1e-5)


def test_cosine_rises_to_its_peak_and_falls_to_zero():
    schedule = WarmupCosineSchedule(2.0, 10, 110)
    rates = np.array([float(schedule(step)) for step in range(120)])
    assert rates.argmax() == 9 and rates[9] == pytest.approx(2.0)
    assert rates[59] == pytest.approx(1.0, abs=1e-5) and np.all(rates[109:] < 1e-5)
    assert np.all(np.diff(rates[:10]) > 0) and np.all(np.diff(rates[9:]) <= 1e-6)


def test_linear_and_constant_by_hand():
    linear, constant = WarmupLinearSchedule(2.0, 2, 6), WarmupConstantSchedule(2.0, 4)
    assert [float(linear(i)) for i in range(8)] == [1.0, 2.0, 1.5, 1.0, 0.5, 0.0, 0.0, 0.0]
    assert [float(constant(i)) for i in range(6)] == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "schedule",
    [
        WarmupSchedule(1.0, 3),
        WarmupConstantSchedule(1.0, 3),
        WarmupLinearSchedule(1.0, 3, 9),
        WarmupCosineSchedule(1.0, 3, 9),
    ],
)
def test_schedules_survive_their_configuration(schedule):
    again = type(schedule).from_config(schedule.get_config())
    assert [float(again(i)) for i in range(12)] == [float(schedule(i)) for i in range(12)]


def test_impossible_schedules_are_refused():
    with pytest.raises(ValueError, match="`warmup_steps` must be at least 1; it is 0"):
        WarmupSchedule(1.0, 0)
    for schedule in (WarmupLinearSchedule, WarmupCosineSchedule):
        with pytest.raises(ValueError, match="`total_steps` must exceed the 5 warm-up steps; it is 5"):
            schedule(1.0, 5, 5)


def compiled(use_ema=True):
    """A model of one weight that every step lowers by 1."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, name="dense")])
    model.set_weights([np.zeros((1, 1))])
    model.compile(keras.optimizers.SGD(1.0, use_ema=use_ema, ema_momentum=0.5), lambda y, p: p)
    return model


def fit(model, *callbacks, epochs=4, scores=(3.0, 1.0, 2.0, 2.0)):
    """Fit with one step an epoch; the score of an epoch is given."""

    class Score(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["score"] = scores[epoch]

    one = np.ones((1, 1))
    return model.fit(
        one, one, validation_data=(one, one), epochs=epochs, verbose=0, callbacks=[Score(), *callbacks]
    )


def test_the_best_averages_stay():
    saved = []
    model = compiled()
    best = BestWeights("score", mode="min", on_best=lambda: saved.append(float(model.get_weights()[0][0, 0])))
    history = fit(model, best).history
    # Weights -1, -2, -3, -4; averages, which begin at the first weight: -1, -1.5, -2.25, …
    assert saved == [-1.0, -1.5]
    assert history["val_loss"] == [-1.0, -1.5, -2.25, -3.125]  # validation sees the averages
    assert model.get_weights()[0] == -1.5 and best.score == 1.0


def test_the_best_epochs_statistics_stay_too():
    """Statistics of batch normalisation do not learn: the model is left with the best epoch's."""
    inputs = keras.Input((1,))
    x = keras.layers.BatchNormalization(name="norm")(inputs)
    model = keras_tfm.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    means = []
    best = BestWeights(
        "score", mode="min", on_best=lambda: means.append(model.get_layer("norm").moving_mean[0])
    )
    fit(model, best, scores=(2.0, 1.0, 3.0, 4.0))
    assert len(means) == 2 and float(means[0]) != float(means[1])
    assert float(model.get_layer("norm").moving_mean[0]) == float(means[1])


def test_frozen_weights_are_not_copied():
    """Variables without a gradient are kept for the best epoch only if they change."""
    inputs = keras.Input((1,))
    x = keras.layers.Dense(3, trainable=False)(inputs)
    x = keras.layers.BatchNormalization(name="norm")(x)
    model = keras_tfm.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    best = BestWeights("score", mode="min")
    fit(model, best)
    kept = [variable.path for variable, _ in best.statistics]
    assert kept == ["norm/moving_mean", "norm/moving_variance"]


def test_the_highest_is_best_and_of_equals_the_later():
    model = compiled(use_ema=False)
    best = BestWeights("score", mode="max")
    fit(model, best, scores=(2.0, 3.0, 3.0, 1.0))
    assert model.get_weights()[0] == -3.0 and best.score == -3.0


@pytest.mark.parametrize("mode", ["max", "last"])
def test_weights_that_are_not_finite_are_never_the_best(mode):
    """Their accuracy is a number, and the mode "last" looks at none."""

    class Diverge(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 1:
                model.layers[-1].kernel.assign([[np.nan]])

    saved = []
    model = compiled(use_ema=False)
    best = BestWeights("score", mode=mode, on_best=lambda: saved.append(float(model.get_weights()[0][0, 0])))
    fit(model, Diverge(), best, epochs=2, scores=(1.0, 2.0))
    assert saved == [-1.0] and model.get_weights()[0] == -1.0


def test_patience_stops():
    model = compiled(use_ema=False)
    assert len(fit(model, BestWeights("score", patience=1, mode="min")).epoch) == 3
    assert model.get_weights()[0] == -2.0


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_progress_is_a_bar_on_a_terminal_and_a_line_a_minute_in_a_file(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream())
    seconds = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(tqdm.std, "time", lambda: seconds[0])
    ticks = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seconds.append(seconds.pop() + 7)
    )
    one = np.ones((50, 1))
    compiled().fit(one, one, batch_size=1, verbose=0, callbacks=[ticks, Progress()])
    written = sys.stderr.getvalue()
    if stream is Terminal:
        assert "\r" in written and written.endswith("\n")
        return
    *minutes, last = written.splitlines()
    assert "\r" not in written and 4 <= len(minutes) <= 7  # 50 times 7 s are six minutes
    assert minutes[0].startswith("epoch 1/1  batch ") and "of 50, loss" in minutes[0]
    assert last.startswith("epoch 1/1  ") and "loss -" in last


@pytest.mark.parametrize(
    ("jit_compile", "does", "was"), [(True, "compiling", "compiled"), (False, "tracing", "traced")]
)
def test_a_long_first_step_is_told(jit_compile, does, was, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    seconds = iter(range(0, 1000, 6))  # each look at the clock is six seconds after the last one
    monkeypatch.setattr(time, "perf_counter", lambda: next(seconds))
    one = np.ones((3, 1))
    model = compiled()
    model.jit_compile = jit_compile
    model.fit(one, one, batch_size=1, epochs=2, verbose=0, callbacks=[Progress()])
    before, told, after = sys.stderr.getvalue().partition(f"The first step took 6 s: it was {was}.\n")
    assert f"{does} the first step" in before and told and does not in after


def test_the_time_limit_stops_within_an_epoch():
    model = compiled(use_ema=False)
    one = np.ones((50, 1))
    history = model.fit(one, one, batch_size=1, epochs=3, verbose=0, callbacks=[TimeLimit(0)])
    assert len(history.epoch) == 1 and model.get_weights()[0] == -1.0


def unchanged(inputs, step, done):
    return inputs


def one_weight():
    """A `keras_tfm.Model` of one weight."""
    x = keras.Input((1,))
    model = keras_tfm.Model(x, keras.layers.Dense(1, use_bias=False)(x))
    model.compile("sgd", "mse")
    return model


def test_a_fit_that_fails_before_its_first_step_says_why(tmp_path):
    model = one_weight()
    for callback in (ChangedInputs(unchanged, 1), Checkpoint(tmp_path / "checkpoints")):
        with pytest.raises(ValueError, match="cardinality"):
            model.fit(np.ones((3, 1)), np.ones((2, 1)), verbose=0, callbacks=[callback])


def test_callbacks_end_in_any_form_and_in_reverse():
    """One callback alone, a list in a list; of two that change the step, both give it back."""
    model, one = one_weight(), np.ones((2, 1))
    step = model.train_step
    for callbacks in (TimeLimit(1), [[ChangedInputs(unchanged, 1)], ChangedInputs(unchanged, 1)]):
        model.fit(one, one, verbose=0, callbacks=callbacks)
        assert model.train_step == step
