"""Recorded RUNs of every task answer as they did, and so do their exports; see record.py."""

import json

import numpy as np
import pytest

from keras_tfm import tasks
from keras_tfm.asking import ASKED
from tests.recorded.record import ANSWERS, FORMATS, INPUTS, RUNS, exported, predicted

RECORDED = json.loads(ANSWERS.read_text("utf-8"))
QUICK = ("classify", "recommend", "forecast")  # to load and ask any other RUN takes two seconds and more


def same(found, recorded):
    """Raise AssertionError where JSON values differ, numbers and levels of pixels by more than rounding."""
    if isinstance(recorded, dict):
        assert found.keys() == recorded.keys()
        for key, value in recorded.items():
            if key in ("picture", "png"):
                np.testing.assert_allclose(found[key], value, atol=1, rtol=0)
            else:
                same(found[key], value)
    elif isinstance(recorded, list):
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            same(one, other)
    elif isinstance(recorded, float):
        np.testing.assert_allclose(found, recorded, rtol=1e-5, atol=1e-5)
    else:
        assert found == recorded


def test_every_task_is_recorded():
    kept = {json.loads((RUNS / name / "config.json").read_text("utf-8"))["task"] for name in INPUTS}
    assert kept == set(ASKED) and RECORDED.keys() == INPUTS.keys()


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in INPUTS]
)
def test_a_run_answers_as_recorded(name):
    same(predicted(tasks.load(RUNS / name), name), RECORDED[name]["predict"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "format"), [(name, format) for name in INPUTS for format in FORMATS if format in RECORDED[name]]
)
def test_an_export_answers_as_recorded(name, format):
    same(exported(tasks.load(RUNS / name), name, format), RECORDED[name][format])
