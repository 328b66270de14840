"""The contract that every layer and model passes: a `Case` a class, a test an invariant.

    test_contract = contract.check(
        Case("causal", lambda: TransformerBlock(2, 16, causal=True), {"x": floats("T", 8), "mask": mask("T")},
             causal="T"),
    )

What a class can do is declared in its case; an invariant that does not apply is skipped with its reason. Axes
are named by a letter, so that padding and causality know which inputs belong together. A layer is checked as
a functional model of unknown batch size and lengths; every weight, biases and scales too, is drawn at random.
Invariants that cost seconds are marked slow, but for cases of a `kind`. A family is made of bricks that pass
the contract themselves: only invariants that a composition can break are quick.
"""

import pytest

from tests.contract.case import Case, Spec, floats, ids, mask, randomise
from tests.contract.invariants import DEAR, INVARIANTS, OF_FAMILIES
from tests.contract.tools import assert_close, num_parameters, run

__all__ = [
    "Case",
    "Spec",
    "assert_close",
    "check",
    "check_family",
    "floats",
    "ids",
    "mask",
    "num_parameters",
    "randomise",
    "run",
]


def check(*cases):
    """The test of all invariants for `cases`, each pair under an id of its own."""
    return _check(cases, slow=DEAR)


def check_family(*cases):
    """`check` for models of a family: all but OF_FAMILIES is slow too, but for cases of a `kind`."""
    return _check(cases, slow={*INVARIANTS} - OF_FAMILIES)


def _check(cases, slow):
    def parameter(invariant, case):
        is_slow = invariant in slow and case.kind is None
        name = f"{invariant.__name__}-{case.name}"
        return pytest.param(invariant, case, id=name, marks=pytest.mark.slow if is_slow else ())

    @pytest.mark.parametrize(
        ("invariant", "case"), [parameter(invariant, case) for case in cases for invariant in INVARIANTS]
    )
    def test(invariant, case):
        invariant(case)

    return test
