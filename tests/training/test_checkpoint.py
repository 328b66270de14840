"""A broken training, gone on from, ends bit by bit as an unbroken one; what is not whole is not used."""

import json
import logging
import os
import pathlib
import shutil
import signal
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_tfm
from keras_tfm.training import BestWeights, Checkpoint
from keras_tfm.training.checkpoint import KINDS
from keras_tfm.training.safetensors import UNTRAINED, CheckpointError
from keras_tfm.training.store import CheckpointFolder, as_state, read_state
from keras_tfm.training.weights import write_tensors
from tests.training import cluster, resuming
from tests.training.exactness_models import adversarial_codec
from tests.training.resuming import Plan

pytestmark = pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")


class Stopped(Exception):
    """Stands for the death of the process."""


@pytest.fixture(autouse=True)
def warnings_are_passed_on(monkeypatch):
    """To the root logger, where pytest's `caplog` hears them."""
    monkeypatch.setattr(logging.getLogger("keras_tfm"), "propagate", True)


@pytest.fixture
def stopping(monkeypatch):
    """`train` raises where it would kill its process."""

    def stop(*_):
        raise Stopped

    monkeypatch.setattr(os, "kill", stop)


def broken(folder, plan):
    with pytest.raises(Stopped):
        resuming.train(folder, plan)


def assert_same(ours, expected):
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "stops"),
    # An epoch has 6 steps. Towards its end tensorflow has read ahead to the end of the data.
    [
        ("finite", (5, 12)),
        pytest.param("finite", (1, 6, 8, 10, 11, 13), marks=pytest.mark.slow),
        ("endless", (10,)),
        pytest.param("endless", (1, 6, 13), marks=pytest.mark.slow),
        pytest.param("arrays", (2, 12), marks=pytest.mark.slow),
    ],
)
def test_resuming_is_exact_wherever_training_broke(kind, stops, tmp_path, stopping):
    whole, *_ = resuming.train(tmp_path / "whole", Plan(data=kind))
    for step in stops:
        folder = tmp_path / str(step)
        broken(folder, Plan(data=kind, every_steps=1, stop_at=step))
        assert_same(resuming.train(folder, Plan(data=kind, every_steps=1, resume=True))[0], whole)


@pytest.mark.slow
def test_a_resumed_training_may_break_again(tmp_path, stopping):
    whole, *_ = resuming.train(tmp_path / "whole", Plan())
    broken(tmp_path / "run", Plan(stop_at=7))
    for step in (10, 13, 16):  # the first from the start of epoch 2, the second from within it
        broken(tmp_path / "run", Plan(every_steps=2, resume=True, stop_at=step))
    assert_same(resuming.train(tmp_path / "run", Plan(resume=True))[0], whole)


@pytest.mark.slow
def test_several_steps_an_execution(tmp_path, stopping):
    options = {"data": "endless", "steps_per_execution": 3, "every_steps": 4}
    whole, *_ = resuming.train(tmp_path / "whole", Plan(**options))
    broken(tmp_path / "run", Plan(**options, stop_at=9))
    assert CheckpointFolder(tmp_path / "run" / "checkpoints").steps() == [0, 6, 9]
    assert_same(resuming.train(tmp_path / "run", Plan(**options, resume=True))[0], whole)


def test_a_dataset_without_a_place_begins_its_epoch_anew_and_says_so(tmp_path, stopping, caplog):
    broken(tmp_path / "run", Plan(data="generator", stop_at=11))
    assert "the dataset cannot save its position" in caplog.text.lower()
    caplog.clear()
    _, model, checkpoint = resuming.train(tmp_path / "run", Plan(data="generator", resume=True))
    assert "Epoch 2 starts again from its beginning: the dataset cannot save its position" in caplog.text
    assert checkpoint.step == int(model.optimizer.iterations) == 8 + 12  # two of them were done twice


@pytest.fixture
def kept(tmp_path):
    """A folder in which a training has ended after steps 4, 6, 8, 12, …: [12, 16, 18] are kept."""
    resuming.train(tmp_path / "run", Plan(data="endless"))
    folder = CheckpointFolder(tmp_path / "run" / "checkpoints")
    assert folder.steps() == [12, 16, 18] and folder.newest() == 18
    return folder


def test_what_is_not_whole_is_named_and_kept_aside(kept, tmp_path, caplog):
    """Cut at any byte of a few, one bit of any file flipped, a file missing or added."""
    folder = kept.folder(18)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for broken_content in (
            content[: len(content) // 2],
            content[:-1],
            b"",
            bytes([content[0] ^ 1, *content[1:]]),
            content[:-9] + bytes([content[-9] ^ 128]) + content[-8:],
            None,
        ):
            if broken_content is None:
                path.unlink()
            else:
                path.write_bytes(broken_content)
            assert kept.newest() == 16, path.name
            assert "step 18 is damaged and was moved aside" in caplog.text
            caplog.clear()
            (kept.path / "invalid-step-00000018").rename(folder)
            path.write_bytes(content)
            assert kept.newest() == 18
    (folder / "more").write_text("")
    assert kept.newest() == 16 and "more" in caplog.text


def test_training_goes_on_from_the_newest_whole_one(kept, caplog):
    whole = json.loads((kept.folder(18) / "state.json").read_text())
    (kept.folder(18) / "state.safetensors").write_bytes(b"")
    *_, checkpoint = resuming.train(kept.path.parent, Plan(data="endless", resume=True))
    assert "step 18 is damaged" in caplog.text and checkpoint.step == 18
    assert json.loads((kept.folder(18) / "state.json").read_text())["history"] == whole["history"]


def test_a_training_without_a_whole_checkpoint_is_not_resumed(kept, caplog):
    """It would go on from the weights that are there, as if they were new ones."""
    for step in kept.steps():
        (kept.folder(step) / "state.json").write_text("")
    message = r"checkpoints: expected a checkpoint to resume from, got damaged ones alone \(invalid-step-0"
    for _ in range(2):  # the first one moves them aside
        with pytest.raises(CheckpointError, match=message):
            resuming.train(kept.path.parent, Plan(data="endless", resume=True))
    assert "scratch" not in caplog.text and kept.steps() == []


@pytest.mark.parametrize("trained", [True, False])
def test_weights_without_a_checkpoint_are_gone_on_from_only_if_they_are_new(tmp_path, trained):
    write_tensors({"x": np.zeros(1)}, tmp_path / "model.safetensors", None if trained else UNTRAINED)
    folder = CheckpointFolder(tmp_path / "checkpoints")
    if not trained:
        return folder.refuse_lost()
    with pytest.raises(CheckpointError, match="got none beside weights that are trained already"):
        folder.refuse_lost()


WHOLE = dict.fromkeys(KINDS, 1) | {"knows_place": True}
WHOLE |= {name: {} for name in ("history", "best", "tracked", "settings")}


@pytest.mark.parametrize(
    ("change", "message"),
    [({name: None}, f"state.json: {name}: expected an entry, .*, got none") for name in KINDS]
    + [({name: "x"}, f"json: {name}: expected .*, got 'x'") for name in KINDS]
    + [({"layout": layout}, "json: layout: expected 1, this version's layout") for layout in (2, "1", [])]
    + [({"step": True}, "state.json: step: expected an integer, got True")],
)  # fmt: skip
def test_what_is_wrong_with_a_state_is_named(change, message, tmp_path):
    content = {name: x for name, x in {**json.loads(as_state(WHOLE)), **change}.items() if x is not None}
    (tmp_path / "state.json").write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=message):
        read_state(tmp_path, KINDS)


def test_a_state_is_read_as_it_was_written_and_without_a_version(tmp_path):
    for text in (as_state(WHOLE), json.dumps(WHOLE)):
        (tmp_path / "state.json").write_text(text)
        assert read_state(tmp_path, KINDS).items() >= WHOLE.items()


@pytest.mark.parametrize("killed_in", ["rmtree", "rename"])
def test_a_checkpoint_written_again_is_never_gone(killed_in, tmp_path, monkeypatch):
    folder = CheckpointFolder(tmp_path, keep=1)

    def publish(text):
        (folder.partial(3) / "state.json").write_text(text)
        folder.publish(3)

    def fail(path, *_):
        if killed_in == "rmtree" or path == tmp_path / ".step-00000003":
            raise Stopped
        return rename(path, *_)

    publish("once")
    rename = pathlib.Path.rename
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(*((shutil, "rmtree") if killed_in == "rmtree" else (pathlib.Path, "rename")), fail)
        publish("twice")
    folder.clear()
    assert folder.newest() == 3
    text = (tmp_path / "step-00000003" / "state.json").read_text()
    assert text == ("twice" if killed_in == "rmtree" else "once")
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000003"]


def test_a_checkpoint_written_late_holds_what_was_then(tmp_path, monkeypatch):
    def late(*arguments, write=Checkpoint._write):
        time.sleep(0.5)
        write(*arguments)

    monkeypatch.setattr(Checkpoint, "_write", late)
    resuming.train(tmp_path, Plan(data="endless"))
    folder = CheckpointFolder(tmp_path / "checkpoints")
    rows = {
        step: json.loads((folder.folder(step) / "state.json").read_text())["history"]["loss"]
        for step in folder.steps()
    }
    assert {step: len(losses) for step, losses in rows.items()} == {12: 2, 16: 2, 18: 3}


def test_other_settings_are_refused(kept):
    with pytest.raises(ValueError, match=r"these differ: rate \(now 1, then None\)"):
        resuming.train(kept.path.parent, Plan(data="endless", resume=True, settings={"rate": 1}))
    with pytest.raises(FileExistsError, match="has checkpoints: pass resume=True"):
        resuming.train(kept.path.parent, Plan(data="endless"))


def test_a_folder_in_which_another_process_trains_is_refused(kept):
    kept.lock()
    with pytest.raises(BlockingIOError, match="another process is training there"):
        resuming.train(kept.path.parent, Plan(data="endless", resume=True))
    kept.unlock()
    resuming.train(kept.path.parent, Plan(data="endless", resume=True))


def small_model(optimizer="sgd"):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    model = keras_tfm.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer, "mse")
    return model


def ones(*sizes, at=None):
    """Steps of one example each; from step `at` on they are infinite."""
    x, y = np.ones((*sizes, 2), "float32"), np.ones((*sizes, 1), "float32")
    if at is not None:
        y[at:] = np.inf
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(1)


def test_a_loss_that_is_not_finite_stops_and_is_not_kept(tmp_path):
    model, checkpoint = small_model(), Checkpoint(tmp_path, every_steps=20, keep=9)
    with pytest.raises(
        FloatingPointError,
        match="loss is inf at step 48, 48 of epoch 1; the newest checkpoint is from step 40",
    ):
        model.fit(ones(80, at=47), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert CheckpointFolder(tmp_path).steps() == [0, 20, 40]
    assert CheckpointFolder(tmp_path).newest() == 40


def test_a_loss_that_is_not_finite_is_named_by_its_own_epoch(tmp_path):
    where = "loss is inf at step 3, 3 of epoch 1; the newest checkpoint is from step 0"
    with pytest.raises(FloatingPointError, match=where):
        small_model().fit(ones(5, at=2), verbose=0, shuffle=False, callbacks=[Checkpoint(tmp_path)])


def test_weights_that_are_not_finite_are_not_kept(tmp_path):
    """The last step's loss is fine, what it makes of the weights is not."""
    model, checkpoint = small_model(keras.optimizers.SGD(float("inf"))), Checkpoint(tmp_path)
    with pytest.raises(FloatingPointError, match=r"weights are not finite after step 1; .* from step 0"):
        model.fit(ones(1), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert CheckpointFolder(tmp_path).steps() == [0]


@pytest.mark.parametrize(
    ("name", "options", "scores"),
    [
        ("score", {"mode": "min"}, [3.0, 1.0, 2.0, 2.0, 2.0, 2.0]),
        ("score", {"mode": "max"}, [0.3, 0.9, 0.2, 0.2, 0.2, 0.2]),
        ("val_accuracy", {}, [0.3, 0.9, 0.2, 0.2, 0.2, 0.2]),
        ("val_token_cross_entropy", {}, [3.0, 1.0, 2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_the_newest_and_the_best_are_kept(name, options, scores, tmp_path):
    class Score(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs[name] = scores[epoch]

    checkpoint = Checkpoint(tmp_path, keep=2, monitor=name, **options)
    small_model().fit(ones(3), epochs=6, verbose=0, shuffle=False, callbacks=[Score(), checkpoint])
    assert CheckpointFolder(tmp_path).steps() == [6, 15, 18]


def test_a_measure_that_does_not_tell_its_direction_is_refused(tmp_path):
    with pytest.raises(ValueError, match="name 'score' does not say whether low or high is better"):
        Checkpoint(tmp_path, monitor="score")
    with pytest.raises(ValueError, match="`mode` must be auto, min, max or last; it is 'best'"):
        Checkpoint(tmp_path, monitor="val_loss", mode="best")
    with pytest.raises(ValueError, match="`monitor` must be one of loss; it is 'val_loss'"):
        small_model().fit(ones(1), verbose=0, callbacks=[Checkpoint(tmp_path, monitor="val_loss")])


def test_the_score_of_an_epoch_that_was_cut_at_a_checkpoint_is_kept(tmp_path):
    model, best = small_model(), BestWeights("loss")
    checkpoint = Checkpoint(tmp_path, every_steps=1, tracked=[best])
    stop = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", batch == 1)
    )
    model.fit(ones(4), verbose=0, shuffle=False, callbacks=[best, stop, checkpoint])
    state = read_state(CheckpointFolder(tmp_path).folder(2), KINDS)
    assert (state["epoch"], state["batch"]) == (0, 2)
    assert state["tracked"]["0.BestWeights"]["score"] == best.score < float("inf")


def test_minutes_decide_too(tmp_path):
    checkpoint = Checkpoint(tmp_path, every_minutes=1e-9, keep=99)
    small_model().fit(ones(5), verbose=0, shuffle=False, callbacks=[checkpoint])
    assert CheckpointFolder(tmp_path).steps() == [0, 1, 2, 3, 4, 5]


def test_sigterm_keeps_the_step_and_exits_with_143(tmp_path, caplog):
    class Terminate(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 3:
                signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stop:
        small_model().fit(ones(9), verbose=0, shuffle=False, callbacks=[Terminate(), Checkpoint(tmp_path)])
    assert stop.value.code == 143 and "Stopped by SIGTERM after step 4" in caplog.text
    assert CheckpointFolder(tmp_path).steps() == [0, 4]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_full_disk_is_said_and_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path, every_steps=2)

    class Fill(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 2:
                while CheckpointFolder(tmp_path).steps() != [0, 2]:
                    time.sleep(0.01)
                monkeypatch.setattr(os, "fsync", no_space)

    def no_space(_):
        raise OSError(28, "No space left on device")

    with pytest.raises(
        OSError, match=r"could not be written \(\[Errno 28\].*; the newest checkpoint is from step 2"
    ):
        small_model().fit(ones(9), verbose=0, shuffle=False, callbacks=[Fill(), checkpoint])
    assert CheckpointFolder(tmp_path).newest() == 2


def test_other_models_are_refused(tmp_path):
    small_model().fit(ones(2), verbose=0, shuffle=False, callbacks=[Checkpoint(tmp_path)])
    with pytest.raises(ValueError, match="optimizer/2: expected the same model and optimizer"):
        small_model("adam").fit(
            ones(2), verbose=0, shuffle=False, callbacks=[Checkpoint(tmp_path, resume=True)]
        )
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    plain.compile("sgd", "mse")
    with pytest.raises(TypeError, match=r"needs a keras_tfm.Model; this is a Sequential"):
        plain.fit(ones(2), verbose=0, shuffle=False, callbacks=[Checkpoint(tmp_path)])
    with pytest.raises(ValueError, match="`keep` must be positive; it is 0"):
        Checkpoint(tmp_path, keep=0)


def test_keras_callbacks_keep_their_state(tmp_path):
    """EarlyStopping has waited once before the break: two more epochs, and it stops."""

    def fit(epochs, **options):
        stopping = keras.callbacks.EarlyStopping("loss", patience=3, min_delta=1e9)
        checkpoint = Checkpoint(tmp_path, tracked=[stopping], **options)
        return small_model().fit(
            ones(3), epochs=epochs, verbose=0, shuffle=False, callbacks=[stopping, checkpoint]
        )

    assert len(fit(2).history["loss"]) == 2
    assert len(fit(9, resume=True).history["loss"]) == 4


def test_measures_of_a_cut_epoch_are_not_those_of_validation(tmp_path):
    """A time limit ends an epoch within it, and validation then uses the same measures."""

    class Cut(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    def fit(name, *callbacks, resume=False):
        far = ones(4).map(lambda x, y: (x, 100 * y))
        callbacks = [*callbacks, Checkpoint(tmp_path / name, resume=resume)]
        return small_model().fit(ones(6), validation_data=far, verbose=0, shuffle=False, callbacks=callbacks)

    fit("cut", Cut())
    assert fit("cut", resume=True).history["loss"] == fit("whole").history["loss"]


def test_a_training_broken_at_the_end_of_its_epoch_has_all_measures(tmp_path):
    """No step is left to name them: an adversarial codec, judged by its steps, has one that is no metric."""

    class Terminate(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2:
                signal.raise_signal(signal.SIGTERM)

    def fit(*callbacks, resume=False):
        best = BestWeights("steps", mode="max")
        rows = ones(3).map(lambda x, y: ({"images": tf.repeat(y, 3, 1)}, {"images": tf.repeat(y, 3, 1)}))
        callbacks = [best, *callbacks, Checkpoint(tmp_path, tracked=[best], resume=resume)]
        return adversarial_codec().fit(rows, verbose=0, shuffle=False, callbacks=callbacks)

    with pytest.raises(SystemExit):
        fit(Terminate())
    history = fit(resume=True).history
    assert history["steps"] == [3] and len(history["discriminator_loss"]) == 1


def test_a_strategy_of_one_device_is_resumed(tmp_path):
    """Its datasets are distributed ones, which cannot be saved."""

    def fit(epochs, **options):
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            model = small_model()
        checkpoint = Checkpoint(tmp_path, **options)
        history = model.fit(ones(3), epochs=epochs, verbose=0, shuffle=False, callbacks=[checkpoint])
        return history.history["loss"], checkpoint.step

    assert fit(1)[1] == 3
    losses, step = fit(2, resume=True)
    assert (len(losses), step) == (2, 6)


def run_processes(folder, workers=1, strategy="multi-worker", timeout=300, **options):
    processes = cluster.start(
        "tests.training.resuming", folder, strategy, json.dumps(options), workers=workers
    )
    return cluster.wait(processes, timeout)


def results(folder, worker=0):
    with np.load(folder / f"worker-{worker}.npz", allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("data", ["finite", "endless"])
def test_mirrored_replicas_resume_exactly(data, tmp_path):
    for folder, options in (
        ("whole", {}),
        ("broken", {"stop_at": 11}),
        ("broken", {"resume": True}),
    ):
        ((code, errors),) = run_processes(tmp_path / folder, strategy="mirrored:2", data=data, **options)
        assert code == (-9 if "stop_at" in options else 0), errors[-2000:]
    assert_same(results(tmp_path / "broken"), results(tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize(("then", "now"), [("mirrored:2", "none"), ("none", "mirrored:2")])
def test_another_number_of_replicas_begins_the_epoch_anew_and_says_so(then, now, tmp_path):
    options = {"data": "endless", "epochs": 2}
    run_processes(tmp_path, strategy=then, stop_at=9, signal=int(signal.SIGTERM), **options)
    ((code, errors),) = run_processes(tmp_path, strategy=now, resume=True, **options)
    counts = "had 2 replicas, now there are 1" if now == "none" else "had 1 replicas, now there are 2"
    assert code == 0 and f"Epoch 2 starts again from its beginning: step 10 {counts}" in errors


@pytest.fixture(scope="module")
def whole_of_two(tmp_path_factory):
    """What two workers end with."""
    folder = tmp_path_factory.mktemp("two") / "whole"
    for code, errors in run_processes(folder, workers=2):
        assert code == 0, errors[-2000:]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("worker", "step"), [(0, 11), (1, 2), (1, 12), (0, 17)])
def test_workers_resume_exactly_after_one_was_killed(worker, step, whole_of_two, tmp_path):
    ends = run_processes(tmp_path, workers=2, stop_at=step, worker=worker)
    assert ends[worker][0] == -9 and ends[1 - worker][0] == 1
    assert "UnavailableError" in ends[1 - worker][1]
    for code, errors in run_processes(tmp_path, workers=2, resume=True):
        assert code == 0, errors[-2000:]
    for index in (0, 1):
        assert_same(results(tmp_path, index), results(whole_of_two, index))


@pytest.mark.slow
def test_sigterm_to_one_worker_stops_all_at_one_step(whole_of_two, tmp_path):
    ends = run_processes(tmp_path, workers=2, stop_at=5, worker=1, signal=int(signal.SIGTERM))
    assert [code for code, _ in ends] == [143, 143]
    assert CheckpointFolder(tmp_path / "checkpoints").newest() == 10
    for code, errors in run_processes(tmp_path, workers=2, resume=True):
        assert code == 0, errors[-2000:]
    assert_same(results(tmp_path), results(whole_of_two))


@pytest.mark.slow
def test_a_step_that_is_saved_twice_has_the_place_of_every_worker(tmp_path):
    """The last step of an epoch, and then its end, which others reach while the chief still writes."""
    for code, errors in run_processes(tmp_path, workers=2, every_steps=6, pause=3, epochs=2):
        assert code == 0, errors[-2000:]
    folders = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert [folder.name for folder in folders] == ["step-00000000", "step-00000006", "step-00000012"]
    for folder in folders:
        assert (folder / "worker-1.safetensors").is_file(), folder


@pytest.mark.slow
def test_a_stopped_worker_ends_the_others(whole_of_two, tmp_path):
    """It does not answer: the others wait for a heartbeat, then say so."""
    options = json.dumps({"stop_at": 11, "worker": 1, "signal": int(signal.SIGSTOP)})
    chief, stopped = cluster.start("tests.training.resuming", tmp_path, "multi-worker", options, workers=2)
    ((code, errors),) = cluster.wait([chief], timeout=120)
    cluster.kill(stopped)
    assert code != 0 and "UnavailableError" in errors
    for code, errors in run_processes(tmp_path, workers=2, resume=True):
        assert code == 0, errors[-2000:]
    assert_same(results(tmp_path), results(whole_of_two))


@pytest.mark.slow
def test_another_number_of_workers_begins_the_epoch_anew_and_says_so(tmp_path):
    run_processes(tmp_path, workers=2, stop_at=11)
    ((code, errors),) = run_processes(tmp_path, strategy="none", resume=True)
    assert (
        code == 0
        and "Epoch 2 starts again from its beginning: step 8 had 2 workers, now there are 1" in errors
    )
