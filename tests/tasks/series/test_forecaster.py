"""Forecasting whole: windows, measures by hand, feeding back, kept and exported; what is no series."""

import json

import keras
import numpy as np
import pytest

from keras_tfm import serving, tasks
from keras_tfm.cli import main
from keras_tfm.data.batches.arrays import ArrayBatches
from keras_tfm.data.batches.series import windows_of
from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.sources.series import read_series
from keras_tfm.models import Autoregressive, AutoregressiveConfig
from keras_tfm.tasks import Forecaster, ForecasterConfig
from tests.contract import randomise
from tests.data.sources.parts import parts
from tests.fresh_process import ask

WINDOW = 4


def series(count):
    """A wave on a line: four values before decide the next one, x_t = b + sum of a_i x_(t-i)."""
    steps = np.arange(count)
    return 3 * np.sin(2 * np.pi * steps / 9) + 0.05 * steps + 20


@pytest.fixture(scope="module")
def learnt():
    keras.utils.set_random_seed(0)
    task = Forecaster.from_series(series(200), window=WINDOW, horizon=30)
    task.fit(series(200), epochs=100, learning_rate=5e-2, batch_size=16, patience=None)
    return task


def test_a_wave_on_a_line_is_predicted_far_beyond_what_was_seen(learnt):
    """The AR(4) equation of a sine and a trend is exact."""
    ahead = learnt.forecast(series(200))
    naive = np.abs(series(200)[-1] - series(230)[200:]).mean()
    assert ahead.shape == (30,) and np.abs(ahead - series(230)[200:]).mean() < 0.1 * naive
    measures = learnt.evaluate(series(230)[190:])
    assert measures["mae"] < 0.05 * measures["naive_mae"] and measures["values"] == 40


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "recurrent"])
def test_other_models_learn_it_too(kind):
    task = Forecaster.from_series(series(200), kind, window=9, horizon=9)
    task.fit(series(200), epochs=8, learning_rate=2e-2, batch_size=8)
    measures = task.evaluate(series(230)[190:])
    assert measures["rmse"] < 0.2 * measures["naive_rmse"]


def test_measures_by_hand():
    """Untrained it is the naive forecast: errors of 1, 2 and 3, whatever the values' scale."""
    task = Forecaster(Autoregressive(AutoregressiveConfig(2)), ForecasterConfig(mean=5.0, scale=7.0))
    assert task.evaluate([0, 0, 1, 3, 6]) == {
        "mae": 2.0,
        "rmse": round(np.sqrt(14 / 3), 6),
        "naive_mae": 2.0,
        "naive_rmse": round(np.sqrt(14 / 3), 6),
        "values": 5,
    }


def test_forecasts_are_fed_back():
    task = Forecaster.from_series(series(50), "recurrent", window=WINDOW, horizon=5)
    randomise(task.model, seed=1)
    history = list(series(20))
    for expected in task.forecast(history, 5):
        told = task.forecast(history, 1)[0]
        np.testing.assert_allclose(told, expected, rtol=1e-4)
        history.append(told)
    single, pair = task.predict([series(20)]), task.predict([series(30), series(20)])
    np.testing.assert_allclose(pair[1], single[0], rtol=1e-5)


def test_windows_and_the_part_for_validation():
    values, targets = windows_of(np.arange(6.0), 3)
    np.testing.assert_array_equal(values, [[0, 1, 2], [1, 2, 3], [2, 3, 4]])
    np.testing.assert_array_equal(targets, [[3], [4], [5]])
    values, targets = windows_of(np.arange(9.0), 2)
    batches = ArrayBatches({"values": values}, targets, 4, seed=0)
    first, again, second = ([y.numpy() for _, y in batches.dataset(epoch)] for epoch in (0, 0, 1))
    assert len(first) == batches.num_batches == 1
    np.testing.assert_array_equal(first, again)
    assert sorted(first[0].ravel()) != list(first[0].ravel()) or (first[0] != second[0]).any()
    task = Forecaster(Autoregressive(AutoregressiveConfig(3)))
    assert Forecaster.adopt(task, None, horizon=48).config.horizon == 48
    learnt, held_out = task.hold_out(np.arange(20.0), None, 0)
    assert len(learnt) == 18 and list(held_out) == [15, 16, 17, 18, 19]  # a window, and two values


@pytest.mark.slow
def test_a_folder_and_an_export_tell_the_same(learnt, tmp_path):
    learnt.save(tmp_path / "run")
    again = tasks.load(tmp_path / "run")
    np.testing.assert_array_equal(again.forecast(series(200)), learnt.forecast(series(200)))
    learnt.export(tmp_path / "served")
    window = series(200)[-WINDOW:].tolist()
    served = ask(tmp_path / "served", of_text=False, values=np.array([window]))["forecast"][0]
    np.testing.assert_allclose(served, learnt.forecast(series(200)), rtol=1e-4)
    answering = serving.load(tmp_path / "served")  # of a longer history the end is read, as `predict` does
    np.testing.assert_allclose(answering([series(200), series(200)])["forecast"], [served] * 2, rtol=1e-4)
    with pytest.raises(ValueError, match="A history needs 4 values or more"):
        answering([window[1:]])


def test_an_export_subtracts_the_mean_before_it_rounds(tmp_path):
    """Between numbers of 32 bits lie 64 there, more than the whole wave."""
    far = 1e9 + series(200)
    task = Forecaster.from_series(far, window=WINDOW)
    task.export(tmp_path / "served")
    served = serving.load(tmp_path / "served")([far])["forecast"][0]
    np.testing.assert_allclose(served, task.forecast(far), rtol=0, atol=1e-3)


def test_a_series_is_read_from_tables(tmp_path):
    for name, content in (
        ("a.csv", "date,value\n2026-01-01,1.5\n2026-01-02,-2\n"),
        ("a.tsv", "1.5\n-2\n"),
        ("a.jsonl", '{"value": 1.5}\n{"value": -2}\n'),
    ):
        (tmp_path / name).write_text(content, "utf-8")
        np.testing.assert_array_equal(read_series(tmp_path / name), [1.5, -2])
    np.testing.assert_array_equal(read_series(tmp_path / "a.csv", ["value"]), [1.5, -2])
    for cell in ("nan", "inf", "x", ""):
        (tmp_path / "b.csv").write_text(f"value,other\n1,2\n{cell},2\n", "utf-8")
        with pytest.raises(DataError, match="line 3: expected a finite number"):
            read_series(tmp_path / "b.csv")
    with pytest.raises(ValueError, match="expected one file, a series, got 2"):
        read_series([tmp_path / "a.csv", tmp_path / "a.tsv"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda task: task.fit([1.0, np.nan, *range(20)]), "finite numbers; value 1 is nan"),
        (lambda task: task.fit([[1.0, 2.0]]), r"the shape \(N,\); it is \(1, 2\)"),
        (lambda task: task.fit(range(4)), "more than 4 values; it has 4"),
        (lambda task: task.fit(range(5)), "`window` must be below 4: of the 5 values of the series 1 are"),
        (lambda task: task.predict([range(3)]), "^row 0: .*more than 3 values; it has 3"),
        (lambda task: task.predict(["1,2,x,4"]), "^row 0: could not convert"),
        (lambda task: task.predict([range(4)], steps=13), r"`steps` must lie in \[1, 12\]; it is 13"),
        (
            lambda task: Forecaster.from_series([1.0] * 3, window=5),
            "`window` must be below 3, the values",
        ),
    ],
)
def test_what_is_no_series_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong(Forecaster(Autoregressive(AutoregressiveConfig(WINDOW))))


def test_options_are_no_changes_of_the_model(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("value\n" + "1\n" * 40)
    for field, option in (("window", "--window"), ("kind", "--family"), ("hidden_dim", "--hidden-dim")):
        (tmp_path / "c.json").write_text(json.dumps({field: 5}))
        command = ["train", "forecast", "--data", str(tmp_path / "a.csv"), "--out", str(tmp_path / "run")]
        with pytest.raises(SystemExit):
            main([*command, "--config", str(tmp_path / "c.json")])
        assert f"the field {field} is set by {option}, use that instead" in capsys.readouterr().err


def test_histories_may_be_lines(learnt, tmp_path):
    (tmp_path / "lines.txt").write_text("1 2 3 4\n1,2,3\n", "utf-8")
    examples, places = parts(learnt.read_inputs(tmp_path / "lines.txt"))
    assert places == ["line 1", "line 2"] and list(learnt.refusals(examples)) == [1]
    np.testing.assert_array_equal(learnt.predict(examples[:1], steps=2)[0], learnt.forecast([1, 2, 3, 4], 2))
    ahead = learnt.forecast([1, 2, 3, 4], 2)
    np.testing.assert_allclose([float(cell) for cell in learnt.as_line(ahead).split(",")], ahead, rtol=1e-5)


@pytest.mark.parametrize("cell", ["simple", "lstm", "gru"])
def test_weights_have_the_same_paths_for_each_model_of_a_process(cell):
    first, second = (Autoregressive.from_size("recurrent", cell=cell, window=3) for _ in range(2))
    assert [weight.path for weight in first.weights] == [weight.path for weight in second.weights]
