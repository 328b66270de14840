"""Two common measures of word vectors: agreement with people's similarity scores, and analogies.

Finkelstein et al., Placing Search in Context (2002), for similarity; Mikolov et al., Efficient Estimation
of Word Representations in Vector Space (2013), for analogies by the nearest word to b - a + c.
"""

import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import scipy  # which loads its packages when they are first used: `stats` takes a while

from keras_tfm.configs import number_in
from keras_tfm.word_vectors.vectors import WordVectors

Path = str | os.PathLike[str]
Question = tuple[str, str, str, str]  # a is to b as c is to d

BATCH = 512  # questions that are compared with the whole vocabulary at once


class Similarity(NamedTuple):
    """Spearman's correlation, the number of pairs with known words, and their share of all pairs.

    >>> matrix = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> vectors = keras_tfm.word_vectors.WordVectors(["frog", "toad", "car"], matrix)
    >>> pairs = [("frog", "toad", 9.0), ("frog", "car", 1.0), ("frog", "zebra", 3.0)]
    >>> result = keras_tfm.word_vectors.similarity(vectors, pairs)
    >>> result.answered, round(result.coverage, 2)  # "zebra" has no vector
    (2, 0.67)
    """

    correlation: float
    answered: int
    coverage: float


class Analogies(NamedTuple):
    """The share of right answers, the number of questions with known words, and their share of all questions.

    `sections` has the share of right answers in each section.

    >>> matrix = np.array([[1.0, 1.0], [1.0, -1.0], [3.0, 1.0], [3.0, -1.0]])
    >>> vectors = keras_tfm.word_vectors.WordVectors(["king", "queen", "man", "woman"], matrix)
    >>> keras_tfm.word_vectors.analogies(vectors, {"sex": [("man", "king", "woman", "queen")]})
    Analogies(accuracy=1.0, answered=1, coverage=1.0, sections={'sex': 1.0})
    """

    accuracy: float
    answered: int
    coverage: float
    sections: dict[str, float]


def similarity(vectors: WordVectors, pairs: Iterable[tuple[str, str, float]]) -> Similarity:
    """Spearman's rank correlation between the cosines of `pairs` (word, word, score) and people's scores.

    Pairs with an unknown word are left out; `coverage` is the share of the others. A word is looked up as it
    is, then in lower case. Raises ValueError if fewer than two pairs are known.

    >>> matrix = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> vectors = keras_tfm.word_vectors.WordVectors(["frog", "toad", "car"], matrix)
    >>> pairs = [("frog", "toad", 9.0), ("frog", "car", 1.0), ("toad", "car", 2.0)]
    >>> round(keras_tfm.word_vectors.similarity(vectors, pairs).correlation, 3)
    1.0
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

    `questions` are grouped by section. The answer may be any word except a, b and c. Questions with an
    unknown word are left out; `coverage` is the share of the others. A word is looked up as it is, then in
    lower case. Raises ValueError if no question is left.

    >>> matrix = np.array([[1.0, 1.0], [1.0, -1.0], [3.0, 1.0], [3.0, -1.0]])
    >>> vectors = keras_tfm.word_vectors.WordVectors(["king", "queen", "man", "woman"], matrix)
    >>> keras_tfm.word_vectors.analogies(vectors, {"sex": [("man", "king", "woman", "queen")]}).accuracy
    1.0
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
    """Whether each question (N, 4) is answered correctly: (N,)."""
    a, b, c, d = rows.T
    near = (unit[b] - unit[a] + unit[c]) @ unit.T  # (N, V)
    np.put_along_axis(near, rows[:, :3], -np.inf, axis=1)
    return near.argmax(1) == d


def _rows(vectors: WordVectors, words: list[str]) -> np.ndarray:
    rows = vectors.ids(words)
    return np.where(rows >= 0, rows, vectors.ids(map(str.lower, words)))


def read_similarities(path: Path) -> list[tuple[str, str, float]]:
    r"""The (word, word, score) lines of a file such as WordSim-353, MEN or SimLex.

    White space or commas separate the fields. A first line whose third field is no number is a header. Raises
    ValueError, naming file and line, for any other line.

    >>> _ = pathlib.Path("pairs.csv").write_text("word,word,score\nfrog,toad,9.0\n")
    >>> keras_tfm.word_vectors.read_similarities("pairs.csv")
    [('frog', 'toad', 9.0)]
    """
    pairs = []
    for number, fields in _lines(path, ","):
        try:
            first, second, score = fields[0], fields[1], number_in(fields[2])
        except (IndexError, ValueError):
            if number == 1 and len(fields) > 2:
                continue
            got = " ".join(fields)[:60]
            raise ValueError(f"{path}, line {number}: expected two words and a number, got {got!r}") from None
        pairs.append((first, second, score))
    return pairs


def read_analogies(path: Path) -> dict[str, list[Question]]:
    r"""Read questions by section, {section: [(a, b, c, d)]}.

    In a file such as Mikolov's, a line ": name" starts a section; in a folder such as GloVe's, each .txt file
    is a section. Raises ValueError, naming file and line, for a line that has not four words.

    >>> _ = pathlib.Path("questions.txt").write_text(": capitals\nParis France Rome Italy\n")
    >>> keras_tfm.word_vectors.read_analogies("questions.txt")
    {'capitals': [('Paris', 'France', 'Rome', 'Italy')]}
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
    """(Number from 1, fields) of the lines that are not blank; raises ValueError unless they are UTF-8."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                fields = line.decode("utf-8-sig").replace(separator, " ").split()
            except UnicodeDecodeError:
                raise ValueError(f"{path}, line {number}: expected UTF-8") from None
            if fields:
                yield number, fields
