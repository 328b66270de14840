"""Protein sequences in FASTA, and alignments in A3M: FASTA whose lower-case letters are insertions.

A sequence begins with a line of ">" and its name. In A3M upper-case letters and "-", a gap, are the columns
of the first sequence; a lower-case letter stands between two of them and is counted, not kept.
"""

import os
from typing import NamedTuple

import numpy as np

from keras_tfm.data.sources.lines import DataError, numbered_lines

RESIDUES = "ARNDCQEGHILKMFPSTWYV"  # numbers 0 to 19
UNKNOWN, GAP = 20, 21
LIKE = {"B": "D", "U": "C", "Z": "E"}  # read as the residue that they may be


class Alignment(NamedTuple):
    """S sequences over the N residues of the first.

    Args:
        names: the S lines after ">".
        numbers: (S, N), residues 0 to 19 in the order of `RESIDUES`, 20 for an unknown one, 21 for a gap.
        deletions: (S, N), how many inserted residues stood right before this column.

    >>> keras_tfm.data.Alignment(["query"], np.array([[0, 1]]), np.array([[0, 0]])).numbers.shape
    (1, 2)
    """

    names: list[str]
    numbers: np.ndarray
    deletions: np.ndarray


def read_fasta(path: str | os.PathLike) -> list[tuple[str, str]]:
    """The (name, sequence) pairs of a FASTA file, plain, .gz or .xz, with lines joined.

    DataError for letters before the first name, for a sequence that is empty, and for characters that are
    neither letters nor "-", "." or "*"; these two mean nothing and are left out.

    >>> import pathlib
    >>> _ = pathlib.Path("some.fasta").write_text(">a peptide\\nMKT\\nAY\\n")
    >>> keras_tfm.data.read_fasta("some.fasta")
    [('a peptide', 'MKTAY')]
    """
    found: list[tuple[str, int, list[str]]] = []
    for number, line in numbered_lines(os.fspath(path)):
        text = line.strip()
        if text.startswith(">"):
            found.append((text[1:].strip(), number, []))
        elif text and not text.startswith(";"):
            if not found:
                raise DataError(path, number, f'expected ">" and a name, got {text!r:.40}')
            text = text.replace(".", "").replace("*", "")
            if wrong := sorted({x for x in text if not (x.isascii() and x.isalpha()) and x != "-"}):
                raise DataError(path, number, f"expected letters of residues, got {wrong[0]!r}")
            found[-1][2].append(text)
    if not found:
        raise DataError(path, None, 'expected sequences, each after ">" and a name; there are none')
    for name, number, parts in found:
        if not "".join(parts):
            raise DataError(path, number, f"expected residues for {name!r:.40}, got none")
    return [(name, "".join(parts)) for name, _, parts in found]


def read_alignment(path: str | os.PathLike) -> Alignment:
    """The alignment in an A3M file, or in a FASTA file of sequences of one length; see `Alignment`.

    DataError, naming the sequence, for another number of columns than the first one's, and for a first one
    without any.

    >>> import pathlib
    >>> _ = pathlib.Path("some.a3m").write_text(">query\\nARN\\n>relative\\nA-skN\\n")
    >>> alignment = keras_tfm.data.read_alignment("some.a3m")
    >>> alignment.numbers.tolist(), alignment.deletions.tolist()
    ([[0, 1, 2], [0, 21, 2]], [[0, 0, 0], [0, 0, 2]])
    """
    sequences = read_fasta(path)
    rows = [columns_of(sequence) for _, sequence in sequences]
    width = len(rows[0][0])
    if not width:
        problem = f"expected columns, upper-case letters, {sequences[0][0]!r:.40} has none"
        raise DataError(path, 1, problem, "sequence")
    for number, ((name, _), (row, _)) in enumerate(zip(sequences, rows, strict=True), start=1):
        if len(row) != width:
            problem = f"expected {width} columns as in the first, {name!r:.40} has {len(row)}"
            raise DataError(path, number, problem, "sequence")
    numbers, deletions = (np.array(x, "int32").reshape(-1, width) for x in zip(*rows, strict=True))
    return Alignment([name for name, _ in sequences], numbers, deletions)


def columns_of(sequence: str) -> tuple[list[int], list[int]]:
    """(The number of each column, the letters inserted before it) of a row of A3M."""
    numbers, deletions, inserted = [], [], 0
    for letter in sequence:
        if letter.islower():
            inserted += 1
            continue
        letter = LIKE.get(letter, letter)
        numbers.append(GAP if letter == "-" else RESIDUES.find(letter) if letter in RESIDUES else UNKNOWN)
        deletions.append(inserted)
        inserted = 0
    return numbers, deletions
