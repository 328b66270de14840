"""The options of a training: what they refuse, what they make, and what RUN/training.json keeps of them."""

import dataclasses
import json
from typing import get_args

import keras
import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.configs import Option, rules_of
from keras_tfm.tasks.images.image_classifier import ImageTraining
from keras_tfm.tasks.task import each_task
from keras_tfm.tasks.text.text_generator import LanguageModelTraining
from keras_tfm.tasks.text.translator_options import Seq2SeqTraining
from keras_tfm.training.options import FineTuning, MaskedTraining, Run, Schedule, Training
from keras_tfm.training.record import read_record, refuse_other_data, results, write_record
from keras_tfm.training.safetensors import CheckpointError
from keras_tfm.training.schedules import make_schedule

TRAINABLE = [task for task in each_task() if issubclass(task, tasks.LearningTask)]

NAN = float("nan")


@pytest.mark.parametrize("task", TRAINABLE, ids=lambda task: task.name)
def test_every_task_says_what_the_command_line_needs(task):
    assert task.help[0].islower() and not task.help.endswith(".") and task.files and task.unit.endswith("s")
    for kind in (type(task.training), task.model_options, task.config_class, task.kept):
        flags = [option.flag or name for name, option in rules_of(kind, Option)]
        assert len(set(flags)) == len(flags)
    documented = dict(rules_of(type(task.training), Option))
    assert documented.keys() == {field.name for field in dataclasses.fields(task.training)}
    for name, option in documented.items():
        assert getattr(task.training, name) is not None or option.default, name


def test_the_schedules_are_those_asked_for():
    """Three epochs of ten steps: a warm-up of a tenth, then as each says."""
    steps = np.arange(30)
    for schedule, expected in {
        "constant": np.ones(27),
        "inverse-root": np.sqrt(3 / np.arange(4, 31)),
        "linear": (31 - np.arange(4, 31)) / 28,
        "cosine": 0.5 + 0.5 * np.cos(np.pi * np.arange(1, 28) / 28),
    }.items():
        made = make_schedule(Training(epochs=3, learning_rate=2.0, schedule=schedule), 10)
        rates = [float(keras.ops.convert_to_numpy(made(step))) for step in steps]
        np.testing.assert_allclose(rates[:3], [2 / 3, 4 / 3, 2.0], rtol=1e-6)
        np.testing.assert_allclose(rates[3:], 2 * expected, rtol=1e-5)


def test_the_warm_up_is_the_tasks_own_or_what_is_said():
    assert Training(epochs=4).warmup(50) == 20 and Training(epochs=1).warmup(1) == 1
    for kind, steps, most in (
        (LanguageModelTraining, 50, 2_000),
        (MaskedTraining, 100, 10_000),
        (Seq2SeqTraining, 150, 4_000),
    ):
        by_root = kind(schedule="inverse-root", epochs=40)
        assert by_root.warmup(50) == steps and by_root.warmup(50_000) == most
        assert kind(epochs=4, schedule="constant").warmup(50) == 20
        assert kind(epochs=4, warmup_steps=7, schedule="inverse-root").warmup(50) == 7


@pytest.mark.parametrize("kind", [LanguageModelTraining, MaskedTraining, Seq2SeqTraining, FineTuning])
def test_a_warm_up_leaves_half_of_the_steps_at_least(kind):
    for schedule in get_args(Schedule):
        for epochs, num_batches in ((1, 100), (2, 100), (3, 7), (1, 2)):
            made = make_schedule(kind(epochs=epochs, schedule=schedule), num_batches)
            assert 1 <= made.warmup_steps <= epochs * num_batches / 2, (schedule, epochs)


def test_a_warm_up_that_was_asked_for_fits_into_the_steps():
    with pytest.raises(
        ValueError, match="`warmup_steps` must be at most 30, the steps of all epochs; it is 31"
    ):
        make_schedule(Training(epochs=3, warmup_steps=31), 10)


@pytest.mark.parametrize("task", [tasks.Detector, tasks.Segmenter])
@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        *((3, {}, 100), (300, {}, 100), (640, {}, 50), (3_000, {}, 10), (100_000, {}, 10)),
        (640, {"batch_size": 32}, 100),
        (100_000, {"epoch_batches": 40}, 50),
        (3_000, {"minutes": 5.0}, 100),
        (3_000, {"epochs": 7, "minutes": 5.0}, 7),
    ],
)
def test_few_images_take_more_epochs(task, count, options, expected):
    assert dataclasses.replace(task.training, **options).settled(count).epochs == expected
    assert task.training_of(is_given=True).settled(count).epochs == 50


def test_what_a_resumed_training_may_change():
    """More epochs, where the learning rate does not end with the last one."""
    free = {"minutes", "patience", "precision", "jit"}
    fields = {field.name for field in dataclasses.fields(Training)}
    assert Training(schedule="linear").lasting().keys() == fields - free
    assert Training(schedule="constant").lasting().keys() == fields - free - {"epochs"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FineTuning(lora_rank=2, num_frozen=1), "`lora_rank` freezes all blocks"),
        (lambda: FineTuning(layer_decay=0.0), "`layer_decay` must be above 0; it is 0.0"),
        (lambda: ImageTraining(batch_size=1.5), "`batch_size` must be a whole number; it is 1.5"),
        (lambda: Run("run", resume=True, overwrite=True), "choose one"),
        (lambda: Run("run", save_minutes=0), "`save_minutes` must be above 0; it is 0"),
    ],
)
def test_senseless_options_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_results_are_those_of_the_best_epoch():
    history = {"loss": [3.0, 2.0, 1.0], "val_loss": [2.0, 1.5, 1.75]}
    expected = {"best_epoch": 2, "epochs": 3, "loss": 2.0, "val_loss": 1.5}
    assert results(history, ("val_loss", "min")) == expected
    assert results({"val_accuracy": [0.5, 0.9, 0.9]}, ("val_accuracy", "max"))["best_epoch"] == 3
    assert results({}, ("val_loss", "min")) == {} == results({"val_loss": [NAN, NAN]}, ("val_loss", "min"))
    assert results({"val_loss": [NAN, 2.0, 3.0, NAN]}, ("val_loss", "min"))["best_epoch"] == 2
    assert results({"loss": [1.0, NAN]}, ("loss", "last"))["best_epoch"] == 2


def test_the_best_epoch_may_be_one_that_a_time_limit_cut():
    cut = {"best_epoch": 3, "epochs": 3, "loss": 1.0, "val_loss": 1.25, "seconds": 9.0}
    history = {"loss": [3.0, 2.0, 2.5, 2.5], "val_loss": [2.0, 1.5, 1.75, 1.75]}
    assert results(history, ("val_loss", "min"), cut) == {**cut, "epochs": 4}
    assert results({}, ("val_loss", "min"), cut) == {**cut, "epochs": 0}
    history["val_loss"][3] = 1.25
    assert results(history, ("val_loss", "min"), cut)["best_epoch"] == 4


def test_a_record_is_whole_or_not_there(tmp_path):
    assert read_record(tmp_path) == {}
    write_record(tmp_path, {"task": "tagging – Ünïcode"})
    assert read_record(tmp_path) == {"task": "tagging – Ünïcode"}
    assert [path.name for path in tmp_path.iterdir()] == ["training.json"]
    (tmp_path / "training.json").write_text("{")
    with pytest.raises(CheckpointError):
        read_record(tmp_path)


def test_a_run_keeps_options_versions_data_and_results(tmp_path):
    texts = [f"the {adjective} cat sat" for adjective in ("old", "young", "wise", "wild")]
    small = {"num_layers": 1, "dim": 16, "num_heads": 2, "max_length": 16}
    generator = tasks.TextGenerator.from_texts(texts, tokenizer="characters", **small)
    seen = []
    counter = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    history = generator.fit(
        texts, 0.25, epochs=2, run=tmp_path / "run", callbacks=[counter], weight_decay=0.5
    )
    assert seen == [0, 1] and len(history["loss"]) == 2
    record = json.loads((tmp_path / "run" / "training.json").read_text("utf-8"))
    assert record["task"] == "generate" and {"keras", "tensorflow", "numpy"} <= record["versions"].keys()
    told = dataclasses.replace(generator.training, epochs=2, weight_decay=0.5)
    assert record["options"] == dataclasses.asdict(told)
    assert record["data"]["train"].startswith("3 texts of ")
    assert record["results"]["epochs"] == 2 and record["results"]["seconds"] > 0
    assert record["results"]["val_loss"] == min(history["val_loss"])


def test_a_record_without_a_fingerprint_says_nothing_of_the_data():
    now = {"train": "20 texts", "fingerprint": "a"}
    refuse_other_data({"data": {"train": "20 texts"}}, now)
    with pytest.raises(ValueError, match="30 texts to train on then, 20 texts now"):
        refuse_other_data({"data": {"train": "30 texts", "fingerprint": "b"}}, now)
