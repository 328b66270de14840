"""Structures of proteins as files of the Protein Data Bank's format, which viewers of molecules read."""

from typing import Any

import numpy as np

from keras_tfm.layers.residues import LETTERS, NAMES, residues

ATOM = (
    "ATOM  {serial:>5} {atom:<4} {name:>3} {chain}{number:>4}    "
    "{x:>8.3f}{y:>8.3f}{z:>8.3f}{occupancy:>6.2f}{confidence:>6.2f}          {element:>2}  "
)


def pdb_text(
    numbers: Any,
    positions: Any,
    confidences: Any = None,
    residue_index: Any = None,
    chain: str = "A",
) -> str:
    """The PDB file of one chain: residues with `numbers` (N,) and atoms at `positions` (N, 14, 3), in
    angstroms, as a `StructureModule` gives them; unknown residues have none.

    `confidences` (N,), for example pLDDT from 0 to 100, go where the file has temperatures. `residue_index`
    (N,) counts from 0.

    Raises:
        ValueError: for shapes that do not fit, positions that are not finite or that the columns have no room
            for, and more residues than the format numbers, 9,999.

    >>> alanine = keras_tfm.layers.residues().positions[:1]
    >>> keras_tfm.visualize.pdb_text([0], alanine).splitlines()[0]
    'ATOM      1  N   ALA A   1      -0.525   1.363   0.000  1.00  0.00           N  '
    """
    numbers, positions = np.asarray(numbers), np.asarray(positions, "float64")
    length = len(numbers)
    index = np.arange(length) if residue_index is None else np.asarray(residue_index)
    scores = np.zeros(length) if confidences is None else np.asarray(confidences, "float64")
    if positions.shape != (length, 14, 3) or index.shape != (length,) or scores.shape != (length,):
        raise ValueError(
            f"Expected numbers (N,), positions (N, 14, 3), confidences and residue_index (N,); they are "
            f"{numbers.shape}, {positions.shape}, {scores.shape} and {index.shape}."
        )
    if length and (index.min() < 0 or index.max() > 9998):
        raise ValueError(f"The format numbers residues up to 9999; `residue_index` goes to {index.max()}.")
    if not np.isfinite(positions).all() or np.abs(positions).max(initial=0) >= 1000:
        raise ValueError("`positions` must be finite and within 1,000 angstroms of the origin.")
    tables = residues()
    lines: list[str] = []
    for residue, (number, place) in enumerate(zip(numbers, index, strict=True)):
        name = NAMES[number] if number < len(LETTERS) else "UNK"
        for slot, atom in enumerate(tables.atoms[number]):
            x, y, z = positions[residue, slot]
            lines.append(
                ATOM.format(
                    serial=(len(lines) + 1) % 100_000,
                    atom=f" {atom}",
                    name=name,
                    chain=chain,
                    number=place + 1,
                    x=x,
                    y=y,
                    z=z,
                    occupancy=1.0,
                    confidence=scores[residue],
                    element=atom[0],
                )
            )
    return "\n".join([*lines, "TER", "END"]) + "\n"
