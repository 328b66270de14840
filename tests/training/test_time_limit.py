"""Training under a time limit, by a clock of the test's own: where it stops, what the learning rate does."""

import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm.training import (
    AdamW,
    Checkpoint,
    TimedSchedule,
    TimeLimit,
    WarmupConstantSchedule,
    WarmupCosineSchedule,
    WarmupLinearSchedule,
    WarmupSchedule,
)
from keras_tfm.training.checkpoint import _state_of
from keras_tfm.training.store import CheckpointFolder


class Clock:
    """Tells the seconds that a test has let pass."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def __call__(self):
        return self.seconds


def run(schedule, minutes, compiling=10.0, step=0.6, state=None, stop_after=None, first_step=0):
    """The learning rate at each step, and the state at the end, of a training like a real one.

    Each of 16 shapes of batches compiles when it comes first, the first of all is traced, too; batches differ
    by a third; each 300 steps there is a validation, the first of which compiles. The seconds that are
    returned are those without the steps' compilation.
    """
    clock, rng = Clock(100.0), np.random.default_rng(3)
    told = [0.0]
    limit = TimeLimit(minutes, types.SimpleNamespace(share=types.SimpleNamespace(assign=told.append)), clock)
    limit.set_model(types.SimpleNamespace(distribute_strategy=tf.distribute.get_strategy()))
    limit.on_train_begin()
    for name, value in (state or {}).items():
        setattr(limit, name, value)
    seen, shares, compiled = set(), [], 0.0
    limit.model.stop_training = False
    while not limit.model.stop_training and len(shares) != stop_after:
        limit.on_train_batch_begin(len(shares))
        shares.append(told[-1])
        shape = rng.integers(16)
        clock.seconds += step * (0.8 + 0.4 * shape / 16)
        more = compiling * ((shape not in seen) + 2 * (not seen))
        clock.seconds, compiled = clock.seconds + more, compiled + more
        seen.add(shape)
        limit.on_train_batch_end(len(shares) - 1, {"loss": 1.0})
        if len(shares) % 300 == 0:
            clock.seconds += 5 + 6 * compiling * (len(shares) == 300)
            limit.on_epoch_end(0)
    assert np.all(np.diff(shares) >= 0)
    schedule.share = np.array(shares, "float32")  # as if it were called at each step
    rates = np.array(schedule(first_step + np.arange(len(shares))))
    before = (state or {"compiling": 0.0})["compiling"]
    state = {name: value for name, value in _state_of(limit).items() if name != "params"}
    assert state["compiling"] - before == pytest.approx(compiled, rel=0.15, abs=2 * step)
    return rates, json.loads(json.dumps(state)), clock.seconds - 100.0 - compiled


SCHEDULES = [
    # What tasks take: the warm-up alone is longer than the time.
    (WarmupSchedule(1.0, 1_908), 19_080, 0.1**0.5),
    (WarmupConstantSchedule(1.0, 1_908), 19_080, 1.0),
    (WarmupLinearSchedule(1.0, 2_000, 20_002), 20_000, 0.0),
    (WarmupCosineSchedule(1.0, 2_000, 20_001), 20_000, 0.0),
]


@pytest.mark.parametrize("compiling", [0.0, 10.0])
@pytest.mark.parametrize(("plain", "total", "last"), SCHEDULES)
def test_the_rate_warms_up_and_falls_within_the_time(plain, total, last, compiling):
    rates, _, seconds = run(TimedSchedule(plain, total), 15, compiling)
    assert 895 <= seconds < 910 and len(rates) > 900
    # A tenth of the steps warms up, though half of them were made while their shapes compiled.
    assert 0.08 < np.argmax(rates >= 0.99) / len(rates) < 0.13
    assert rates.max() <= 1 and rates[-1] == pytest.approx(last, abs=0.02)
    assert np.all(np.diff(rates[: len(rates) // 12]) >= 0) and np.abs(np.diff(rates)).max() < 0.35
    np.testing.assert_array_equal(rates[:32], plain(np.arange(32)))  # until it is known what a step takes


def test_steps_decide_where_they_are_ahead():
    plain = WarmupLinearSchedule(1.0, 10, 100)
    rates, *_ = run(TimedSchedule(plain, 100), 60, stop_after=90)
    np.testing.assert_array_equal(rates, plain(np.arange(90)))


def test_a_resumed_training_has_the_time_that_is_left():
    """As unbroken, but for what is compiled anew."""
    plain = WarmupLinearSchedule(1.0, 2_000, 20_002)
    whole, *_ = run(TimedSchedule(plain, 20_000), 15)
    first, state, used = run(TimedSchedule(plain, 20_000), 15, stop_after=510)
    assert state.keys() == {"elapsed", "compiling", "in_steps", "usual"}
    assert state["elapsed"] - state["compiling"] == pytest.approx(used, rel=0.02)
    second, _, more = run(TimedSchedule(plain, 20_000), 15, state=state, first_step=510)
    assert 895 <= used + more < 915
    assert second[0] == pytest.approx(first[-1], abs=0.02) and second[-1] < 0.02
    np.testing.assert_allclose(first, whole[:510])
    # With twice the minutes the rate rises again to where such a training would be.
    third, *_ = run(TimedSchedule(plain, 20_000), 30, state=state, first_step=510, stop_after=1)
    assert third[0] > 1.15 * first[-1]


def test_a_few_slow_steps_follow_the_clock_too():
    rates, _, seconds = run(TimedSchedule(WarmupLinearSchedule(1.0, 200, 2_002), 2_000), 15, 60.0, 20.0)
    assert seconds < 1_100 and rates.max() > 0.5 and rates[-1] < 0.2


def test_a_long_wait_before_the_first_step_says_nothing_of_steps():
    clock, told = Clock(), []
    limit = TimeLimit(1, types.SimpleNamespace(share=types.SimpleNamespace(assign=told.append)), clock)
    limit.set_model(types.SimpleNamespace(distribute_strategy=tf.distribute.get_strategy()))
    limit.on_train_begin()
    limit.model.stop_training, num_steps = False, 0
    clock.seconds += 20.0  # for the first batch
    while not limit.model.stop_training:
        limit.on_train_batch_begin(num_steps)
        clock.seconds += 10.0
        limit.on_train_batch_end(num_steps, {"loss": 1.0})
        num_steps += 1
    assert num_steps == 5 and limit.usual == 10.0


def test_a_timed_schedule_survives_its_configuration():
    timed = TimedSchedule(WarmupCosineSchedule(1.0, 3, 9), 9)
    again = TimedSchedule.from_config(timed.get_config())
    assert [float(again(i)) for i in range(12)] == [float(timed.schedule(i)) for i in range(12)]
    again.share.assign(0.05)
    assert float(again(0)) == pytest.approx(float(timed.schedule(1.5)))  # half of the warm-up


def compiled(schedule):
    inputs = keras.Input((2,))
    model = keras_tfm.Model(inputs, keras.layers.Dense(1, name="dense")(inputs))
    model.set_weights([np.ones((2, 1)), np.zeros(1)])
    model.compile(AdamW(schedule), "mse", jit_compile=True)
    return model


def ones(count):
    return tf.data.Dataset.from_tensors((tf.ones([1, 2]), tf.zeros([1, 1]))).repeat(count)


class Ticking(Clock):
    """A second passes each time it is asked."""

    def __call__(self):
        self.seconds += 1.0
        return self.seconds


def test_the_compiled_step_follows_the_clock_and_a_checkpoint_keeps_it(tmp_path):
    """Two seconds a step, in which the rate is 1 and falls; broken in the middle, ended by the clock."""
    rates = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            rates.append(float(self.model.optimizer.learning_rate))

    for resume, minutes in ((False, 1), (True, 4)):
        schedule = TimedSchedule(WarmupLinearSchedule(1.0, 100, 10_000), 9_999)
        limit = TimeLimit(minutes, schedule, Ticking())
        checkpoint = Checkpoint(tmp_path, tracked=[limit], resume=resume)
        compiled(schedule).fit(ones(500), verbose=0, shuffle=False, callbacks=[limit, Watch(), checkpoint])
        steps = CheckpointFolder(tmp_path).steps()
        assert len(rates) == steps[-1] and 28 * minutes <= steps[-1] <= 31 * minutes
    assert max(rates[steps[0] :]) > 0.8 and rates[-1] < 0.05


def test_without_a_clock_nothing_changes():
    """Bit by bit: the schedule is not even wrapped, and wrapped with no time used gives the same."""
    plain = WarmupLinearSchedule(0.1, 3, 12)
    weights = []
    for schedule in (plain, TimedSchedule(plain, 12)):
        model = compiled(schedule)
        model.fit(ones(10), verbose=0, shuffle=False)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
