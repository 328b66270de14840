"""Several devices and several processes train, evaluate and predict as one device does."""

import numpy as np
import pytest

from tests.training.exactness import differences, run_layout, run_layouts
from tests.training.exactness_cases import BOUNDS, CASES, DRAWING, QUICK, QUICK_OF_PROCESSES


def check(results, expected):
    for name, result in results.items():
        for kind, difference in differences(result, expected[name]).items():
            bound = BOUNDS[CASES[name].policy] * (1 if kind == "weight" else 10)
            assert difference <= bound, (name, kind, difference)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The quick cases, a diffusion model and pairs of players, on one device and on two replicas."""
    file = tmp_path_factory.mktemp("first") / "results.npz"
    return run_layouts(["none", "mirrored:2"], file, [*QUICK, "denoiser", "adversarial", "adversarial codec"])


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """Cases that are not among CASES, likewise."""
    file = tmp_path_factory.mktemp("others") / "results.npz"
    return run_layouts(
        ["none", "mirrored:2"], file, ["dropout", "changes", "teacher", "averages", "dropout again"]
    )


@pytest.mark.slow
def test_weights_of_classes_count_alike_on_two_replicas(tmp_path):
    results = run_layouts(["none", "mirrored:2"], tmp_path / "results.npz", ["weighted classes"])
    one, two = (results[layout]["weighted classes"] for layout in ("none", "mirrored:2"))
    for kind, difference in differences(two, one).items():
        assert difference <= 1e-5, (kind, difference)


@pytest.mark.slow
def test_a_teacher_of_images_answers_on_each_replica(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_TFM_JIT", "1")  # XLA refuses weights that lie on another device
    results = run_layouts(["none", "mirrored:2"], tmp_path / "results.npz", ["taught"])
    one, two = (results[layout]["taught"] for layout in ("none", "mirrored:2"))
    for kind, difference in differences(two, one).items():
        assert difference <= 1e-5, (kind, difference)


def test_two_replicas_are_exact(first):
    check({name: first["mirrored:2"][name] for name in QUICK}, first["none"])


# Their noise is an input here.
@pytest.mark.parametrize("name", ["denoiser", "adversarial", "adversarial codec"])
def test_models_that_draw_are_exact_on_two_replicas(name, first):
    for kind, difference in differences(first["mirrored:2"][name], first["none"][name]).items():
        assert difference <= 1e-6 * (1 if kind == "weight" else 10), (kind, difference)


@pytest.mark.slow
def test_a_replica_without_examples_has_the_moving_averages_of_all(others):
    one, two = others["none"]["averages"], others["mirrored:2"]["averages"]
    np.testing.assert_allclose(one["means"], [[0.3, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(one["variances"], [[0.9, 0.9]], rtol=1e-6)
    for name, values in one.items():
        np.testing.assert_allclose(two[name], [*values, *values], rtol=1e-6)
        np.testing.assert_array_equal(*two[name])


@pytest.mark.slow
def test_a_teacher_follows_alike_on_two_replicas(others):
    for kind, difference in differences(others["mirrored:2"]["teacher"], others["none"]["teacher"]).items():
        assert difference <= 1e-6 * (1 if kind == "weight" else 10), (kind, difference)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["mirrored:2", "mirrored:4", "processes:2"])
def test_all_cases_are_exact(layout, tmp_path):
    expected = run_layout("none", tmp_path / "none.npz", tuple(CASES))
    check(run_layout(layout, tmp_path / "results.npz", tuple(CASES)), expected)


@pytest.mark.slow
def test_two_processes_learn_to_track_as_one(tmp_path):
    """Two frames of each example share the layers of one network, and its state goes from one to the next."""
    expected = run_layout("none", tmp_path / "none.npz", ("TransTrack",))
    check(run_layout("processes:2", tmp_path / "results.npz", ("TransTrack",)), expected)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    file = tmp_path_factory.mktemp("processes") / "results.npz"
    return run_layout("processes:2", file, QUICK_OF_PROCESSES)


@pytest.mark.slow  # as tests/training/test_launched.py is
def test_two_processes_are_exact(first, two_processes):
    check(two_processes, first["none"])


@pytest.mark.slow
def test_dropout_differs_between_replicas_and_repeats(others):
    results, again = others["mirrored:2"]["dropout"], others["mirrored:2"]["dropout again"]
    for name, value in results.items():
        np.testing.assert_array_equal(value, again[name])
    zeros = results["masks"] == 0
    assert 0.4 < zeros.mean() < 0.6
    assert (zeros[0] != zeros[1]).mean() > 0.3


@pytest.mark.slow
def test_changes_of_inputs_differ_between_replicas(others):
    assert others["none"]["changes"]["steps"].tolist() == [0]
    assert len(set(others["mirrored:2"]["changes"]["steps"].tolist())) == 2


@pytest.mark.slow
def test_dropout_repeats_in_another_process(others, tmp_path):
    again = run_layout("mirrored:2", tmp_path / "results.npz", ["dropout"])["dropout"]
    for name, value in others["mirrored:2"]["dropout"].items():
        np.testing.assert_array_equal(value, again[name])


@pytest.mark.slow
def test_what_replicas_recompute_drops_the_same(tmp_path):
    results = run_layout("mirrored:2", tmp_path / "results.npz", list(DRAWING))
    plain, rematerialized = (results[name] for name in DRAWING)
    for kind, difference in differences(rematerialized, plain).items():
        assert difference <= 1e-6, (kind, difference)
