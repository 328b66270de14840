"""What simple rules score on the validation data: the numbers beside which a training is read."""

import collections
import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_tfm.training.diagnosis import FEW, Remark, no_better, rule_wins
from keras_tfm.training.monitor import Mode, Monitor

COMMONEST, MEAN, LAST_VALUE = "the commonest class", "the mean", "the last value"
TF_IDF = "TF-IDF with logistic regression"
COMMONEST_OF_WORD = "the commonest tag of each word"
CODE = {TF_IDF: " (scikit-learn: make_pipeline(TfidfVectorizer(), LogisticRegression()))"}
# Bounds of TF-IDF, for seconds: rows times classes, and characters. Beyond them it learns from some texts.
MOST_PRODUCTS, MOST_CHARACTERS = 1_000_000, 10_000_000
MOST_CLASSES = 200
ROUNDING = 1e-6  # of the training's metrics, which are means in 32 bits


@dataclasses.dataclass(frozen=True)
class Baselines:
    """The scores of simple rules on the validation data.

    Args:
        metric, mode: the metric of the training beside which they stand, and its better end.
        rules: {name of the rule: its score}; the first rule gives every example the same answer.
        count: on how many validation examples they were measured.
    """

    metric: str
    mode: Mode
    rules: Mapping[str, float]
    count: int

    def __str__(self) -> str:
        return in_words(self.entries())

    def entries(self) -> dict[str, Any]:
        """The values for training.json."""
        return {"metric": self.metric, **{name: round(score, 6) for name, score in self.rules.items()}}

    def remark(self, history: Mapping[str, Sequence[float]]) -> Remark | None:
        """The `Remark` on a training that no rule should have kept up with, if one did; None for validation
        data so few that a rule may do so by chance.
        """
        judge = Monitor(self.metric, self.mode)
        ranks = [judge.score({self.metric: score}) for score in history.get(self.metric, ())]
        ranks = [rank for rank in ranks if np.isfinite(rank)]
        if not ranks or self.count < FEW:
            return None
        best = min(ranks)
        reached = judge.sign * best
        for place, (name, score) in enumerate(self.rules.items()):
            rank = judge.score({self.metric: score})
            if place == 0 and rank <= best + ROUNDING:
                return no_better(self.metric, reached, name, score)
            if rank < best:
                return rule_wins(self.metric, reached, name, score, CODE.get(name, ""))
        return None


def in_words(entries: Mapping[str, Any]) -> str:
    """The `entries` of `Baselines` as a line."""
    scores = ", ".join(f"{score:.4f} by {name}" for name, score in entries.items() if name != "metric")
    return f"baselines on the validation data: {entries['metric']} {scores}"


def of_classes(known: np.ndarray, asked: np.ndarray) -> dict[str, float]:
    """The accuracy of always answering the commonest of the training classes `known` to those `asked`."""
    return {COMMONEST: float(np.mean(asked == np.bincount(known).argmax()))}


def of_dictionary(
    words: Sequence[str], known: np.ndarray, asked_words: Sequence[str], asked: np.ndarray
) -> dict[str, float]:
    """The accuracy of giving each word the tag that it had most often, and others the commonest tag."""
    commonest = np.bincount(known).argmax()
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    for word, tag in zip(words, known, strict=True):
        counts[word][tag] += 1
    dictionary = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    answers = np.array([dictionary.get(word, commonest) for word in asked_words])
    return {COMMONEST_OF_WORD: float(np.mean(answers == asked))}


def of_words(
    texts: Sequence[str], known: np.ndarray, asked_texts: Sequence[str], asked: np.ndarray, seed: int
) -> dict[str, float]:
    """The accuracy of scikit-learn's logistic regression on TF-IDF of the words, with its defaults.

    From many texts `seed` draws a part, so that it takes seconds; {} where nothing can be learnt: for a
    single class, for more than `MOST_CLASSES`, and for texts without words.
    """
    from sklearn.exceptions import ConvergenceWarning  # slow to import, and only needed here
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    num_classes = len(np.unique(known))
    if not 2 <= num_classes <= MOST_CLASSES:
        return {}
    rows = np.random.default_rng(seed).permutation(len(texts))
    sizes = np.cumsum([len(texts[row]) for row in rows])
    rows = rows[: min(MOST_PRODUCTS // num_classes, int(np.searchsorted(sizes, MOST_CHARACTERS)) + 1)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is a baseline all the same
        try:
            model.fit([texts[row] for row in rows], known[rows])
        except ValueError:  # no words, or a single class in the part
            return {}
    return {TF_IDF: float(model.score(asked_texts, asked))}
