"""The twenty amino acids: their atoms, and where these are in the rigid groups that turn about bonds.

A residue has eight groups: 0 the backbone, 1 and 2 hold hydrogens alone, 3 turns with psi, 4 to 7 with the
angles chi 1 to 4 of the side chain. Atoms are placed in the frame of their group, in angstroms: x along the
bond that the group turns about. Jumper et al. 2021, supplement, section 1.8.4 and table 2; positions are
means over the authors' structures.
"""

import functools
import re
from typing import NamedTuple

import numpy as np

UNKNOWN = 20  # the number of a residue that is none of the twenty
NUM_GROUPS = 8
NUM_PLACES = 14  # for the atoms of a residue; tryptophan has as many

# Letter, name and the chain of atoms whose bonds turn; then the atoms: name, group, x, y, z.
TABLE = """
A ALA
  N 0 -0.525 1.363 0, CA 0 0 0 0, C 0 1.526 0 0, O 3 0.627 1.062 0, CB 0 -0.529 -0.774 -1.205
R ARG N CA CB CG CD NE CZ
  N 0 -0.524 1.362 0, CA 0 0 0 0, C 0 1.525 0 0, O 3 0.626 1.062 0, CB 0 -0.524 -0.778 -1.209,
  CG 4 0.616 1.39 0, CD 5 0.564 1.414 0, NE 6 0.539 1.357 0, CZ 7 0.758 1.093 0,
  NH1 7 0.206 2.301 0, NH2 7 2.078 0.978 0
N ASN N CA CB CG OD1
  N 0 -0.536 1.357 0, CA 0 0 0 0, C 0 1.526 0 0, O 3 0.625 1.062 0, CB 0 -0.531 -0.787 -1.2,
  CG 4 0.584 1.399 0, OD1 5 0.633 1.059 0, ND2 5 0.593 -1.188 0.001
D ASP N CA CB CG OD1
  N 0 -0.525 1.362 0, CA 0 0 0 0, C 0 1.527 0 0, O 3 0.626 1.062 0, CB 0 -0.526 -0.778 -1.208,
  CG 4 0.593 1.398 0, OD1 5 0.61 1.091 0, OD2 5 0.592 -1.101 -0.003
C CYS N CA CB SG
  N 0 -0.522 1.362 0, CA 0 0 0 0, C 0 1.524 0 0, O 3 0.625 1.062 0, CB 0 -0.519 -0.773 -1.212,
  SG 4 0.728 1.653 0
Q GLN N CA CB CG CD OE1
  N 0 -0.526 1.361 0, CA 0 0 0 0, C 0 1.526 0 0, O 3 0.626 1.062 0, CB 0 -0.525 -0.779 -1.207,
  CG 4 0.615 1.393 0, CD 5 0.587 1.399 0, OE1 6 0.634 1.06 0, NE2 6 0.593 -1.189 -0.001
E GLU N CA CB CG CD OE1
  N 0 -0.528 1.361 0, CA 0 0 0 0, C 0 1.526 0 0, O 3 0.626 1.062 0, CB 0 -0.526 -0.781 -1.207,
  CG 4 0.615 1.392 0, CD 5 0.6 1.397 0, OE1 6 0.607 1.095 0, OE2 6 0.589 -1.104 -0.001
G GLY
  N 0 -0.572 1.337 0, CA 0 0 0 0, C 0 1.517 0 0, O 3 0.626 1.062 0
H HIS N CA CB CG ND1
  N 0 -0.527 1.36 0, CA 0 0 0 0, C 0 1.525 0 0, O 3 0.625 1.063 0, CB 0 -0.525 -0.778 -1.208,
  CG 4 0.6 1.37 0, ND1 5 0.744 1.16 0, CD2 5 0.889 -1.021 0.003, CE1 5 2.03 0.851 0.002,
  NE2 5 2.145 -0.466 0.004
I ILE N CA CB CG1 CD1
  N 0 -0.493 1.373 0, CA 0 0 0 0, C 0 1.527 0 0, O 3 0.627 1.062 0, CB 0 -0.536 -0.793 -1.213,
  CG1 4 0.534 1.437 0, CG2 4 0.54 -0.785 -1.199, CD1 5 0.619 1.391 0
L LEU N CA CB CG CD1
  N 0 -0.52 1.363 0, CA 0 0 0 0, C 0 1.525 0 0, O 3 0.625 1.063 0, CB 0 -0.522 -0.773 -1.214,
  CG 4 0.678 1.371 0, CD1 5 0.53 1.43 0, CD2 5 0.535 -0.774 1.2
K LYS N CA CB CG CD CE NZ
  N 0 -0.526 1.362 0, CA 0 0 0 0, C 0 1.526 0 0, O 3 0.626 1.062 0, CB 0 -0.524 -0.778 -1.208,
  CG 4 0.619 1.39 0, CD 5 0.559 1.417 0, CE 6 0.56 1.416 0, NZ 7 0.554 1.387 0
M MET N CA CB CG SD CE
  N 0 -0.521 1.364 0, CA 0 0 0 0, C 0 1.525 0 0, O 3 0.625 1.062 0, CB 0 -0.523 -0.776 -1.21,
  CG 4 0.613 1.391 0, SD 5 0.703 1.695 0, CE 6 0.32 1.786 0
F PHE N CA CB CG CD1
  N 0 -0.518 1.363 0, CA 0 0 0 0, C 0 1.524 0 0, O 3 0.626 1.062 0, CB 0 -0.525 -0.776 -1.212,
  CG 4 0.607 1.377 0, CD1 5 0.709 1.195 0, CD2 5 0.706 -1.196 0, CE1 5 2.102 1.198 0,
  CE2 5 2.098 -1.201 0, CZ 5 2.794 -0.003 -0.001
P PRO N CA CB CG CD
  N 0 -0.566 1.351 0, CA 0 0 0 0, C 0 1.527 0 0, O 3 0.621 1.066 0, CB 0 -0.546 -0.611 -1.293,
  CG 4 0.382 1.445 0, CD 5 0.477 1.424 0
S SER N CA CB OG
  N 0 -0.529 1.36 0, CA 0 0 0 0, C 0 1.525 0 0, O 3 0.626 1.062 0, CB 0 -0.518 -0.777 -1.211,
  OG 4 0.503 1.325 0
T THR N CA CB OG1
  N 0 -0.517 1.364 0, CA 0 0 0 0, C 0 1.526 0 0, O 3 0.626 1.062 0, CB 0 -0.516 -0.793 -1.215,
  OG1 4 0.472 1.353 0, CG2 4 0.55 -0.718 -1.228
W TRP N CA CB CG CD1
  N 0 -0.521 1.363 0, CA 0 0 0 0, C 0 1.525 0 0, O 3 0.627 1.062 0, CB 0 -0.523 -0.776 -1.212,
  CG 4 0.609 1.37 0, CD1 5 0.824 1.091 0, CD2 5 0.854 -1.148 -0.005, NE1 5 2.14 0.69 -0.004,
  CE2 5 2.186 -0.678 -0.007, CE3 5 0.622 -2.53 -0.007, CZ2 5 3.283 -1.543 -0.011,
  CZ3 5 1.715 -3.389 -0.011, CH2 5 3.028 -2.89 -0.013
Y TYR N CA CB CG CD1
  N 0 -0.522 1.362 0, CA 0 0 0 0, C 0 1.524 0 0, O 3 0.627 1.062 0, CB 0 -0.522 -0.776 -1.213,
  CG 4 0.607 1.382 0, CD1 5 0.716 1.195 0, CD2 5 0.713 -1.194 -0.001, CE1 5 2.107 1.2 -0.002,
  CE2 5 2.104 -1.201 -0.003, CZ 5 2.791 -0.001 -0.003, OH 5 4.168 -0.002 -0.005
V VAL N CA CB CG1
  N 0 -0.494 1.373 0, CA 0 0 0 0, C 0 1.527 0 0, O 3 0.627 1.062 0, CB 0 -0.533 -0.795 -1.213,
  CG1 4 0.54 1.429 0, CG2 4 0.533 -0.776 1.203
"""
ENTRIES = [entry.split("\n", 1) for entry in re.split(r"\n(?=\S)", TABLE.strip())]
LETTERS = "".join(head[0] for head, _ in ENTRIES)  # in the order of their numbers
NAMES = [head.split()[1] for head, _ in ENTRIES]
# All names of atoms, in the order in which structures with a place for each keep them.
ATOMS = (
    "N", "CA", "C", "CB", "O", "CG", "CG1", "CG2", "OG", "OG1", "SG", "CD", "CD1", "CD2", "ND1", "ND2",
    "OD1", "OD2", "SD", "CE", "CE1", "CE2", "CE3", "NE", "NE1", "NE2", "OE1", "OE2", "CH2", "NH1",
    "NH2", "OH", "CZ", "CZ2", "CZ3", "NZ", "OXT",
)  # fmt: skip
# Angles after which half a turn changes nothing: {letter: the number of chi, from 0}.
HALF_TURNS = {"D": 1, "E": 2, "F": 1, "Y": 1}


class Residues(NamedTuple):
    """Tables by the number of a residue; unknown ones have atoms at no place.

    `atoms` are names, 14 or fewer. `groups` (21, 14) and `positions` (21, 14, 3) place them, `exists` (21,
    14) is 1 where there is one. `frames` (21, 8, 4, 4) lead from each group to the one before it, or to the
    backbone, at an angle of 0; a group that a residue lacks has zeros. `half_turns` (21, 4) is 1 for a chi
    that half a turn leaves as it is. `chi_exists` (21, 4) says which there are.
    """

    atoms: list
    groups: np.ndarray
    positions: np.ndarray
    exists: np.ndarray
    frames: np.ndarray
    half_turns: np.ndarray
    chi_exists: np.ndarray


@functools.cache
def residues() -> Residues:
    """The tables, made once."""
    count = len(LETTERS) + 1
    groups = np.zeros((count, NUM_PLACES), "int32")
    positions = np.zeros((count, NUM_PLACES, 3), "float32")
    exists = np.zeros((count, NUM_PLACES), "float32")
    frames = np.zeros((count, NUM_GROUPS, 4, 4), "float32")
    half_turns = np.zeros((count, 4), "float32")
    chi_exists = np.zeros((count, 4), "float32")
    names: list = []
    for number, (head, atoms) in enumerate(ENTRIES):
        letter, _, *chain = head.split()
        fields = [atom.split() for atom in atoms.split(",")]
        names.append([name for name, *_ in fields])
        places = {name: np.array(place, "float64") for name, _, *place in fields}
        groups[number, : len(places)] = [int(group) for _, group, *_ in fields]
        positions[number, : len(places)] = np.stack([*places.values()])
        exists[number, : len(places)] = 1
        frames[number] = _frames(places, chain)
        chi_exists[number, : max(len(chain) - 3, 0)] = 1
        if letter in HALF_TURNS:
            half_turns[number, HALF_TURNS[letter]] = 1
    return Residues([*names, []], groups, positions, exists, frames, half_turns, chi_exists)


def _frames(places, chain):
    """The frames (8, 4, 4) of a residue with atoms at `places` and the side `chain`."""
    frames = np.zeros((NUM_GROUPS, 4, 4))
    frames[:2] = np.eye(4)
    nitrogen, alpha, carbon = (places[name] for name in ("N", "CA", "C"))
    frames[2] = _frame(nitrogen - alpha, np.array([1.0, 0.0, 0.0]), nitrogen)
    frames[3] = _frame(carbon - alpha, alpha - nitrogen, carbon)
    if chain:
        end = places[chain[2]]
        frames[4] = _frame(end - alpha, nitrogen - alpha, end)
    for number, name in enumerate(chain[3:-1]):
        frames[5 + number] = _frame(places[name], np.array([-1.0, 0.0, 0.0]), places[name])
    return frames


def _frame(x, y, origin):
    """The frame (4, 4) at an `origin` with its first axis along `x` and `y` in its first two."""
    x = x / np.linalg.norm(x)
    y = y - x * (x @ y)
    y = y / np.linalg.norm(y)
    frame = np.eye(4)
    frame[:3] = np.stack([x, y, np.cross(x, y), origin], axis=1)
    return frame
