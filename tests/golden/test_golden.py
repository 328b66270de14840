"""Our stacks against the stored outputs of other libraries, made by make_golden.py."""

import json
import pathlib

import numpy as np
import pytest

from tests.golden.torch_stacks import check_stacks

FILES = sorted(pathlib.Path(__file__).parent.glob("torch_*.npz"))


def test_the_references_are_here():
    assert [path.stem for path in FILES] == ["torch_post_norm", "torch_pre_norm"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_torch_stacks(path):
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    state, inputs = (
        {name.removeprefix(part): array for name, array in arrays.items() if name.startswith(part)}
        for part in ("state/", "inputs/")
    )
    check_stacks(json.loads(str(arrays["config"])), state, inputs, (arrays["encoded"], arrays["decoded"]))
