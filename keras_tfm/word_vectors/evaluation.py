"""How well vectors know which words are alike, and what they stand to each other as: two usual measures.

Finkelstein et al., Placing Search in Context (2002), for similarity; Mikolov et al., Efficient Estimation
of Word Representations in Vector Space (2013), for analogies by the nearest word to b - a + c.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import scipy  # which loads its packages when they are first used: `stats` takes a while

from keras_tfm.word_vectors.vectors import WordVectors

Path = str | os.PathLike[str]
Question = tuple[str, str, str, str]  # a is to b as c is to d

BATCH = 512  # questions that are compared with the whole vocabulary at once


class Similarity(NamedTuple):
    """Spearman's correlation, of how many pairs, and which share of all pairs these are."""

    correlation: float
    answered: int
    coverage: float


class Analogies(NamedTuple):
    """The share of right answers, in all and by section, among the questions that can be answered; how many
    these are, and which share of all.
    """

    accuracy: float
    answered: int
    coverage: float
    sections: dict[str, float]


def similarity(vectors: WordVectors, pairs: Iterable[tuple[str, str, float]]) -> Similarity:
    """Spearman's rank correlation between the cosines of `pairs` (word, word, score) and people's scores.

    Pairs with an unknown word are left out, and `coverage` says how many are not. A word is looked up as it
    is, then in lower case. ValueError where less than two pairs are known.
    """
    pairs = list(pairs)
    first = _rows(vectors, [pair[0] for pair in pairs])
    second = _rows(vectors, [pair[1] for pair in pairs])
    is_known = (first >= 0) & (second >= 0)
    if is_known.sum() < 2:
        raise ValueError(f"`pairs` must hold two of known words; of {len(pairs):,} {is_known.sum()} are.")
    cosines = (vectors.unit[first[is_known]] * vectors.unit[second[is_known]]).sum(1)
    scores = np.array([pair[2] for pair in pairs], np.float64)[is_known]
    correlation = float(scipy.stats.spearmanr(cosines, scores).statistic)
    return Similarity(correlation, int(is_known.sum()), float(is_known.mean()))


def analogies(vectors: WordVectors, questions: Mapping[str, Iterable[Question]]) -> Analogies:
    """How often d is the nearest word to b - a + c (3CosAdd, of vectors at length 1): a is to b as c is to d.

    `questions` are by section. The answer is sought among all words but a, b and c; questions with an unknown
    word are left out, and `coverage` says how many are not. A word is looked up as it is, then in lower case.
    ValueError where no question is left.
    """
    right: dict[str, np.ndarray] = {}
    number = 0
    for section, asked in questions.items():
        words = np.array(list(asked), object).reshape(-1, 4)
        number += len(words)
        rows = _rows(vectors, words.ravel().tolist()).reshape(-1, 4)
        rows = rows[(rows >= 0).all(1)]
        batches = [_is_right(vectors.unit, rows[k : k + BATCH]) for k in range(0, len(rows), BATCH)]
        right[section] = np.concatenate(batches) if batches else np.zeros(0, bool)
    answers = np.concatenate([np.zeros(0, bool), *right.values()])
    if not answers.size:
        raise ValueError(f"`questions` must hold one of known words; of {number:,} none is.")
    sections = {section: float(values.mean()) for section, values in right.items() if values.size}
    return Analogies(float(answers.mean()), len(answers), len(answers) / number, sections)


def _is_right(unit: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Whether each question (N, 4) is answered rightly, (N,)."""
    a, b, c, d = rows.T
    near = (unit[b] - unit[a] + unit[c]) @ unit.T  # (N, V)
    np.put_along_axis(near, rows[:, :3], -np.inf, axis=1)
    return near.argmax(1) == d


def _rows(vectors: WordVectors, words: list[str]) -> np.ndarray:
    rows = vectors.ids(words)
    return np.where(rows >= 0, rows, vectors.ids(map(str.lower, words)))


def read_similarities(path: Path) -> list[tuple[str, str, float]]:
    """(word, word, score) of the lines of a file, separated by white space or commas, as WordSim-353, MEN and
    SimLex come. A first line whose third field is no number is a header. ValueError with file and line.
    """
    pairs = []
    for number, fields in _lines(path, ","):
        try:
            first, second, score = fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError):
            if number == 1 and len(fields) > 2:
                continue
            got = " ".join(fields)[:60]
            raise ValueError(f"{path}, line {number}: expected two words and a number, got {got!r}") from None
        pairs.append((first, second, score))
    return pairs


def read_analogies(path: Path) -> dict[str, list[Question]]:
    """Questions by section: of one file, as Mikolov's, in which a line ": name" begins a section, or of a
    folder of .txt files, as GloVe's, each a section. ValueError with file and line.
    """
    folder = pathlib.Path(path)
    files = sorted(folder.glob("*.txt")) if folder.is_dir() else [folder]
    if not files:
        raise ValueError(f"{path}: expected .txt files of questions, got none")
    questions: dict[str, list[Question]] = {}
    for file in files:
        section = questions.setdefault(file.stem, [])
        for number, fields in _lines(file):
            if fields[0].startswith(":"):
                section = questions.setdefault(" ".join(fields).lstrip(": "), [])
            elif len(fields) == 4:
                section.append((fields[0], fields[1], fields[2], fields[3]))
            else:
                got = " ".join(fields)[:60]
                raise ValueError(f"{file}, line {number}: expected four words, got {got!r}")
    return {section: asked for section, asked in questions.items() if asked}


def _lines(path: Path, separator: str = " ") -> Iterator[tuple[int, list[str]]]:
    """(Number from 1, fields) of the lines that are not blank; ValueError for what is not UTF-8."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                fields = line.decode("utf-8-sig").replace(separator, " ").split()
            except UnicodeDecodeError:
                raise ValueError(f"{path}, line {number}: expected UTF-8") from None
            if fields:
                yield number, fields
