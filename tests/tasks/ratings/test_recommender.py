"""The task `recommend`: what it learns and answers, its folder, its run, its export, the command line."""

import csv
import json
import shutil

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.data import Ratings
from keras_tfm.tasks import Recommender
from keras_tfm.training.safetensors import CheckpointError, read_tensors
from keras_tfm.training.weights import write_tensors
from tests.fresh_process import ask
from tests.test_cli import run


def structured(num_users=60, num_items=40, share=0.5, seed=0):
    """(what each user thinks of each item, from 1 to 5; the ratings of which some are known)."""
    draw = np.random.default_rng(seed)
    users, items = draw.normal(size=(num_users, 2)), draw.normal(size=(num_items, 2))
    dense = 3 + 0.8 * users @ items.T + 0.3 * draw.normal(size=num_items)
    dense = np.clip(dense, 1, 5).astype("float32")
    known = np.argwhere(draw.random(dense.shape) < share)
    names = [f"u{user}" for user, _ in known], [f"b{item}" for _, item in known]
    return dense, Ratings(*names, dense[tuple(known.T)])


@pytest.fixture(scope="module")
def dense_and_ratings():
    return structured()


@pytest.fixture(scope="module")
def fitted(dense_and_ratings):
    task = Recommender.from_ratings(dense_and_ratings[1], dim=2, regularization=0.1, lowest=1, highest=5)
    history = task.fit(dense_and_ratings[1], epochs=30, patience=None)
    return task, history


def seen_by(ratings, user):
    return {item for one, item, _ in zip(*ratings, strict=True) if one == user}


def test_it_learns_what_users_would_say(fitted, dense_and_ratings):
    (task, history), (dense, ratings) = fitted, dense_and_ratings
    assert len(history["loss"]) == 30 and (np.diff(history["loss"]) <= 1e-3).all()
    known = set(zip(ratings.users, ratings.items, strict=True))
    hidden = [(f"u{u}", f"b{i}") for u, i in np.ndindex(dense.shape) if (f"u{u}", f"b{i}") not in known]
    users, items = zip(*hidden, strict=True)
    truth = [dense[int(u[1:]), int(i[1:])] for u, i in hidden]
    measured = task.evaluate((users, items, truth))
    assert measured["rmse"] < 0.25 < 0.8 < np.std(truth) and measured["ratings"] == len(hidden)
    assert measured["mae"] == pytest.approx(np.abs(task.rate(users, items) - truth).mean(), abs=1e-4)
    assert min(history["val_rmse"]) == pytest.approx(
        tasks.Recommender.measure(task, task._parts(ratings, None, 0)[1])["rmse"], rel=1e-6
    )


def test_nobody_is_told_of_what_he_has_rated(fitted, dense_and_ratings):
    (task, _), (dense, ratings) = fitted, dense_and_ratings
    answers = task.predict(["u3", " u17 "], num_items=1_000)
    for user, answer in zip(("u3", "u17"), answers, strict=True):
        seen = seen_by(ratings, user)
        assert {item for item, _ in answer} == set(task.items.names) - seen
        values = [rating for _, rating in answer]
        assert values == sorted(values, reverse=True) and 1 <= values[-1] <= values[0] <= 5
        np.testing.assert_allclose(
            values, task.rate([user] * len(answer), [item for item, _ in answer]), rtol=1e-5
        )
        # What stands first is what he would like: more than the mean of what is left.
        rest = [dense[int(user[1:]), int(item[1:])] for item, _ in answer]
        assert np.mean(rest[:3]) > np.mean(rest) + 0.5
    assert task.as_line(answers[0][:2]) == "\t".join(item for item, _ in answers[0][:2])


def test_somebody_new_is_recommended_to_by_some_ratings(fitted, dense_and_ratings):
    (task, _), (dense, _) = fitted, dense_and_ratings
    given = {f"b{item}": float(dense[8, item]) for item in range(12)}
    answer = task.recommend(given, 5)
    assert len(answer) == 5 and not given.keys() & {item for item, _ in answer}
    liked = np.mean([dense[8, int(item[1:])] for item, _ in answer])
    assert liked > dense[8, 12:].mean() + 0.5
    popular = task.recommend({}, 40)
    biases = dict(zip(task.items.names, task.model.item_biases, strict=True))
    assert [item for item, _ in popular] == sorted(biases, key=lambda item: -biases[item])
    unknown = task.rate(["nobody", "u1", "nobody"], ["b1", "nothing", "nothing"])
    mean, user = float(task.model.mean), task.users.places["u1"]
    np.testing.assert_allclose(
        unknown, [mean + biases["b1"], mean + task.model.user_biases[user], mean], rtol=1e-6
    )


def test_ids_may_be_numbers_and_have_white_space_around_them():
    ratings = [7, 8, 7, " 8 "], ["a\tb", "a\tb", " c", "c"], [5.0, 4.0, 1.0, 2.0]
    task = Recommender.from_ratings(ratings, dim=1)
    assert task.users.names == ["7", "8"] and task.items.names == ["a\tb", "c"]
    task.fit(ratings, ratings, epochs=3)
    assert task.rate([7, "8 "], ["c", "nothing"])[1] == task.rate(["8"], [0])[0]
    assert task.predict([7, "8"]) == [[], []]  # they have rated everything
    assert task.recommend({" c ": 5})[0].item == "a\tb" and task.as_line(task.recommend({"c": 5})) == "a b"
    with pytest.raises(ValueError, match="row 2: expected a pair once, '7' rated 'c' in row 0"):
        task.fit(([7, 8, "7 "], ["c", "c", "c"], [1, 2, 3]))


def test_a_folder_keeps_all_of_it(fitted, tmp_path):
    task, _ = fitted
    task.save(tmp_path / "run")
    loaded = tasks.load(tmp_path / "run")
    assert isinstance(loaded, Recommender) and loaded.config == task.config and loaded.is_trained
    assert loaded.predict(task.users.names, num_items=7) == task.predict(task.users.names, num_items=7)
    path = tmp_path / "run" / "model.safetensors"
    whole = dict(read_tensors(path)[0])
    whole = {name: np.array(array) for name, array in whole.items()}
    size = len(whole["item_biases"])
    for changes, message in (
        ({"users": None}, "users: expected ids"),
        ({"users_ends": whole["users_ends"][:-1]}, "users_ends: expected the ends of ids"),
        ({"items_ends": whole["items_ends"][::-1].copy()}, "items_ends: expected the ends"),
        ({"items": np.full_like(whole["items"], 255)}, "items: expected ids in UTF-8"),
        ({"items": np.full_like(whole["items"], 65)}, "`items` must be different ids"),
        ({"item_biases": None}, "item_biases: expected float32, got none"),
        ({"item_biases": np.zeros(size, "i4")}, "item_biases: expected float32, got int32"),
        ({"wings": np.zeros(2, "f4")}, "wings: expected no such array, got float32"),
        ({"mean": np.zeros(2, "f4")}, r"`mean` must have the shape \(\)"),
        ({"user_biases": np.zeros((), "f4")}, "users and items have names"),
        ({"seen_items": whole["seen_items"][None]}, "recommender's arrays"),
        ({"item_biases": np.full(size, np.nan, "f4")}, "`item_biases` must be finite"),
        (
            {"item_biases": np.zeros(1, "f4"), "item_factors": np.zeros((1, 2), "f4")},
            "users and items have names",
        ),
        ({"seen_items": whole["seen_items"] + 1_000}, "recommender's arrays"),
        ({"seen_offsets": whole["seen_offsets"][1:]}, "recommender's arrays"),
    ):
        tensors = {name: array for name, array in (whole | changes).items() if array is not None}
        write_tensors(tensors, path)
        with pytest.raises(ValueError, match=message):
            tasks.load(tmp_path / "run")
        if not changes.keys() & {"users", "users_ends", "items", "items_ends"}:
            with pytest.raises(ValueError, match=message):
                loaded.load_weights(path)
    assert loaded.predict(task.users.names, num_items=7) == task.predict(task.users.names, num_items=7)
    with pytest.raises(ValueError, match="no weights that could be kept in 8 bits"):
        task.quantize("int8")


def test_a_run_goes_on_as_if_it_had_not_been_broken_off(dense_and_ratings, tmp_path):
    _, ratings = dense_and_ratings

    def begun():
        return Recommender.from_ratings(ratings, dim=3)

    whole = begun()
    expected = whole.fit(ratings, epochs=6, patience=None, seed=4)

    class Stop(Exception):
        pass

    class Stopper:
        def on_epoch_end(self, epoch, logs):
            if epoch == 2:
                raise Stop

    run_folder = tmp_path / "run"
    with pytest.raises(Stop):
        begun().fit(ratings, run=run_folder, epochs=6, patience=None, seed=4, callbacks=[Stopper()])
    assert tasks.load(run_folder).is_trained
    (run_folder / "checkpoints" / "step-00000003" / "state.safetensors").write_bytes(b"cut")
    resumed = tasks.load(run_folder)
    history = resumed.fit(ratings, run=run_folder, resume=True, epochs=6, patience=None, seed=4)
    assert history == expected
    for name, array in whole.model.arrays().items():
        np.testing.assert_array_equal(getattr(resumed.model, name), array)
        np.testing.assert_array_equal(getattr(tasks.load(run_folder).model, name), array)
    rows = list(csv.DictReader((run_folder / "metrics.csv").read_text().splitlines()))
    assert [row["epoch"] for row in rows] == list("123456")
    np.testing.assert_allclose([float(row["val_rmse"]) for row in rows], expected["val_rmse"], rtol=1e-6)
    record = json.loads((run_folder / "training.json").read_text())
    assert record["results"]["best_epoch"] == 1 + int(np.argmin(expected["val_rmse"]))
    with pytest.raises(ValueError, match=r"these differ: data .*, seed \(now 5, then 4\)"):
        tasks.load(run_folder).fit(ratings, run=run_folder, resume=True, seed=5)
    done = tasks.load(run_folder)
    assert done.fit(ratings, run=run_folder, resume=True, epochs=6, patience=None, seed=4) == expected
    np.testing.assert_array_equal(done.model.item_factors, whole.model.item_factors)
    shutil.rmtree(run_folder / "checkpoints")
    with pytest.raises(ValueError, match="got none beside weights that are trained already: begin anew"):
        done.fit(ratings, run=run_folder, resume=True, epochs=6, patience=None, seed=4)


def test_learning_ends_by_patience_and_by_time(dense_and_ratings):
    _, ratings = dense_and_ratings
    noise = np.random.default_rng(0).normal(size=len(ratings.ratings))
    noisy = ratings._replace(ratings=ratings.ratings + noise)
    errors = Recommender.from_ratings(noisy, 8, 0.5).fit(noisy, epochs=50, patience=2)["val_rmse"]
    assert len(errors) < 50 and len(errors) - 1 - int(np.argmin(errors)) == 2
    task = Recommender.from_ratings(ratings, dim=2)
    assert len(task.fit(ratings, epochs=50, minutes=0.0)["loss"]) == 1


def test_what_cannot_be_learnt_or_asked_is_refused(fitted):
    task, _ = fitted
    for call, message in (
        (lambda: task.fit((["u1"], ["b1"], [6.0])), "row 0: expected a rating of at most 5, got 6.0"),
        (lambda: task.fit((["u1"], ["b1"], [np.nan])), "row 0: expected a number as the rating, got nan"),
        (
            lambda: task.fit((["u1"] * 2, ["b1"] * 2, [1, 2])),
            "row 1: expected a pair once, 'u1' rated 'b1' in row 0",
        ),
        (lambda: task.fit((["u1"] * 2, ["b1"], [1, 2])), "columns of one length"),
        (
            lambda: task.fit((["u1", "x"], ["b1"] * 2, [1, 2]), 0.5),
            "row 0: this task does not know the user 'x'",
        ),
        (lambda: task.predict(["u1", "x"]), "row 1: the training had no ratings by 'x'"),
        (lambda: task.predict(["u1"], num_items=0), "`n` must be at least 1; it is 0"),
        (lambda: task.recommend({"x": 1}), "this task does not know the item 'x'"),
        (lambda: task.recommend({"b1": 9}), "expected a rating of at most 5 of 'b1', got 9"),
        (lambda: Recommender.from_ratings(([], [], [])), "`users` must be different ids, one at least"),
        (
            lambda: Recommender.from_ratings((["a"], ["b"], [1]), lowest=5, highest=1),
            "`highest` must be above",
        ),
        (lambda: Recommender.start_from("run", None), "--from: 'recommend' always begins anew"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="no option learning_rate; it has epochs, minutes, patience, seed"):
        task.fit((["u1"], ["b1"], [1]), learning_rate=1)


def test_the_export_answers_alone_as_the_task_does(fitted, dense_and_ratings, tmp_path):
    (task, _), (_, ratings) = fitted, dense_and_ratings
    more = ["all"] * 38, [f"b{item}" for item in range(2, 40)], [3.0] * 38
    everything = Ratings(*([*column, *rest] for column, rest in zip(ratings, more, strict=True)))
    task = Recommender.from_ratings(everything, dim=2, lowest=1, highest=5)
    task.fit(everything, epochs=3)
    task.export(tmp_path / "served", num_items=4)
    served = ask(tmp_path / "served", of_text=False, user=["u3", "nobody", "all"])
    items, values = served["item"].tolist(), served["rating"]
    for row, user in ((0, "u3"), (2, "all")):
        expected = task.predict([user], num_items=4)[0]
        assert items[row] == [item for item, _ in expected] + [""] * (4 - len(expected))
        np.testing.assert_allclose(values[row][: len(expected)], [x for _, x in expected], rtol=1e-5)
    assert len(task.predict(["all"], num_items=4)[0]) == 2 and np.isnan(values[2][2:]).all()
    assert items[1] == [item for item, _ in task.recommend({}, 4)]


def test_the_command_line(dense_and_ratings, tmp_path, capsys):
    _, ratings = dense_and_ratings
    path, out = tmp_path / "u.data", tmp_path / "run"
    rows = zip(*ratings, range(len(ratings.users)), strict=True)
    path.write_text("".join(f"{user}\t{item}\t{rating:g}\t{time}\n" for user, item, rating, time in rows))
    assert run("train", "recommend", "--help") == 0
    said = capsys.readouterr().out
    assert "--dim" in said and "--lowest" in said and "--patience" in said
    for other in ("--learning-rate", "--from", "--strategy", "--config", "--save-minutes", "--tensorboard"):
        assert other not in said
    train = "train", "recommend", "--data", path, "--columns", "0,1,2", "--out", out, "--dim", 2
    options = "--regularization", 0.1, "--lowest", 1, "--highest", 5
    assert run(*train, *options, "--epochs", 2) == 0
    assert run(*train, *options) == 2 and "pass --resume or --overwrite" in capsys.readouterr().err
    assert run("train", "recommend", "--out", out, "--resume", "--dim", 3) == 2
    assert "these differ: --dim (now 3, then 2)" in capsys.readouterr().err
    assert run("train", "recommend", "--out", out, "--resume", "--epochs", 20) == 0
    assert "Resuming after sweep 2" in capsys.readouterr().err
    assert run("evaluate", out, "--data", path, "--columns", "0,1,2") == 0
    assert json.loads(capsys.readouterr().out)["rmse"] < 0.3
    (tmp_path / "asked").write_text("u1\nnobody\n\nu2\n")
    assert run("predict", out, "--data", tmp_path / "asked", "--items", 3) == 0
    output = capsys.readouterr()
    task = tasks.load(out)
    first, *none, last = output.out.splitlines()
    assert none == ["", ""] and [first, last] == list(
        map(task.as_line, task.predict(["u1", "u2"], num_items=3))
    )
    assert "line 2 gets an empty line: the training had no ratings by 'nobody'" in output.err
    (tmp_path / "asked.csv").write_text("x,user\n1,u2\n")
    assert run("predict", out, "--data", tmp_path / "asked.csv", "--json") == 0
    answer = [list(one) for one in task.predict(["u2"])[0]]
    assert json.loads(capsys.readouterr().out) == {"place": "line 2", "answer": answer}
    assert run("predict", out, "--data", tmp_path / "asked", "--beam", 2) == 2
    assert "does not generate text" in capsys.readouterr().err


def test_a_weights_file_of_nothing_is_refused(fitted, tmp_path):
    fitted[0].save(tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="whole safetensors"):
        tasks.load(tmp_path / "run")
