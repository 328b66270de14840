"""Several devices and several processes train, evaluate and predict as one device does."""

import numpy as np
import pytest

from tests.training.exactness import BOUNDS, CASES, DRAWING, QUICK, differences, run_layout

LAYOUTS = ("mirrored:2", "mirrored:4", "processes:2")


def check(names, layouts, tmp_path):
    expected = run_layout("none", tmp_path / "none.npz", names)
    for layout in layouts:
        results = run_layout(layout, tmp_path / f"{layout.replace(':', '_')}.npz", names)
        for name in names:
            for kind, difference in differences(results[name], expected[name]).items():
                bound = BOUNDS[CASES[name].policy] * (1 if kind == "weight" else 10)
                assert difference <= bound, (layout, name, kind, difference)


def test_quick_cases_are_exact(tmp_path):
    check(QUICK, ("mirrored:2", "processes:2"), tmp_path)


@pytest.mark.slow
def test_all_cases_are_exact(tmp_path):
    check(tuple(CASES), LAYOUTS, tmp_path)


def test_dropout_differs_between_replicas_and_repeats(tmp_path):
    first, second = (
        run_layout("mirrored:2", tmp_path / f"{i}.npz", ["dropout"])["dropout"] for i in range(2)
    )
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])
    zeros = first["masks"] == 0
    assert 0.4 < zeros.mean() < 0.6
    assert (zeros[0] != zeros[1]).mean() > 0.3


def test_what_replicas_recompute_drops_the_same(tmp_path):
    plain, rematerialized = run_layout("mirrored:2", tmp_path / "2.npz", DRAWING).values()
    for kind, difference in differences(rematerialized, plain).items():
        assert difference <= 1e-6, (kind, difference)
