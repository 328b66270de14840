"""Summarisation, by an encoder-decoder or by a single language model.

The second, `family="gpt2"`, reads article, delimiter and summary in one row, with the loss on the summary
only.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from keras_tfm.configs import Length, Option
from keras_tfm.data.sources.documents import split_sentences
from keras_tfm.tasks.text.translator import Translator
from keras_tfm.tasks.text.translator_options import TranslatorConfig

MEASURES = ("rouge1", "rouge2", "rougeL")


@dataclasses.dataclass(frozen=True)
class SummarizerConfig(TranslatorConfig):
    """Like a translator's, for longer texts."""

    max_length: Annotated[
        Length, Option("most tokens of an article or summary; longer pairs are skipped, and counted")
    ] = 512


class Summarizer(Translator):
    """Writes summaries of articles: a `Translator` that is measured by ROUGE.

    >>> pairs = ["The cat sat on the mat. It slept."] * 4, ["A cat slept."] * 4
    >>> task = keras_tfm.tasks.Summarizer.from_pairs(pairs, size="tiny", vocabulary_size=300)
    >>> sorted(task.compare(pairs[0], pairs[1], pairs[1]))[-3:]
    ['rouge1', 'rouge2', 'rougeL']
    """

    name = "summarize"
    config_class = SummarizerConfig

    def compare(
        self, sources: Sequence[str], answers: Sequence[str], targets: Sequence[str]
    ) -> dict[str, Any]:
        """ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004): F1 in percent with stemming, averaged over the texts.

        The same metrics of "lead1", the first sentence of each article, are a baseline.
        """
        lead = [next(iter(split_sentences(source)), "") for source in sources]
        scores, of_lead = rouge(answers, targets), rouge(lead, targets)
        return scores | {f"lead1_{name}": of_lead[name] for name in MEASURES}


def rouge(answers: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
    """{metric: mean F1 in percent} of `answers` compared with `targets`; 0 if there are none."""
    from rouge_score.rouge_scorer import RougeScorer  # takes seconds to import

    scorer = RougeScorer(MEASURES, use_stemmer=True)
    pairs = zip(answers, targets, strict=True)
    scores = [scorer.score(target, answer) for answer, target in pairs]
    return {
        name: 100 * float(np.mean([score[name].fmeasure for score in scores] or [0.0])) for name in MEASURES
    }
