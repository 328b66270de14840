"""PDB files: columns by the format, residues that are unknown, what does not fit."""

import numpy as np
import pytest

from keras_tfm.layers.residues import residues
from keras_tfm.visualize import pdb_text


def test_columns():
    """The columns of the format, version 3.3, for each atom."""
    tables = residues()
    text = pdb_text([17, 20, 0], tables.positions[[17, 20, 0]], [90.5, 0, 12.25], [6, 7, 8], "B")
    *atoms, end, last = text.splitlines()
    assert (end, last) == ("TER", "END") and len(atoms) == 14 + 5
    assert {len(line) for line in atoms} == {80}
    for number, line in enumerate(atoms, start=1):
        assert line[:6] == "ATOM  " and int(line[6:11]) == number and line[21] == "B"
        row, residue = (17, 7) if number <= 14 else (0, 9)
        assert line[17:20] == ("TRP" if row else "ALA") and int(line[22:26]) == residue
        place = [float(line[start : start + 8]) for start in (30, 38, 46)]
        names = tables.atoms[row]
        np.testing.assert_allclose(place, tables.positions[row, names.index(line[12:16].strip())], atol=1e-6)
        assert float(line[60:66]) == (90.5 if row else 12.25) and line[76:78].strip() == line[13]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], np.zeros((1, 13, 3))), r"Expected numbers \(N,\)"),
        (([0], np.full((1, 14, 3), np.nan)), "`positions` must be finite"),
        (([0], np.full((1, 14, 3), 1e3)), "`positions` must be finite and within"),
        (([0], np.zeros((1, 14, 3)), None, [9999]), "numbers residues up to 9999"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        pdb_text(*arguments)
