"""Each task trains in both kinds of 16 bits and on two replicas, or refuses it, as recorded: trainings.py."""

import json

import pytest

from tests.recorded.trainings import COLUMNS, KEPT, LEARN, PRECISIONS, STRATEGY, on_two_devices, trained

RECORDED = json.loads(KEPT.read_text("utf-8"))
QUICK = "classify"


def test_every_task_that_learns_is_recorded():
    assert RECORDED.keys() == set(LEARN)
    assert all(set(PRECISIONS) <= cells.keys() <= set(COLUMNS) for cells in RECORDED.values())


# A pooler, which pre-training by masked words does not use, gets no gradient.
@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "name", [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LEARN]
)
def test_a_task_trains_in_16_bits_as_recorded(name, precision):
    assert trained(name, precision) == RECORDED[name][precision]


@pytest.mark.slow
def test_tasks_train_on_two_replicas_as_recorded():
    recorded = {name: cells[STRATEGY] for name, cells in RECORDED.items() if STRATEGY in cells}
    assert on_two_devices([*recorded]) == recorded
