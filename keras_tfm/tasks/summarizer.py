"""Summaries, two ways: by an encoder-decoder, or by one language model that goes on behind the article.

The second is `family="gpt2"`: article, delimiter, summary in one row, with loss on the summary only.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from keras_tfm.configs import Length, Option
from keras_tfm.data.sources.documents import split_sentences
from keras_tfm.tasks.translator import Translator, TranslatorConfig

MEASURES = ("rouge1", "rouge2", "rougeL")


@dataclasses.dataclass(frozen=True)
class SummarizerConfig(TranslatorConfig):
    """As a translator's, for longer texts."""

    max_length: Annotated[
        Length, Option("tokens of an article or summary; longer pairs are left out, and counted")
    ] = 512


class Summarizer(Translator):
    """Articles to summaries: a `Translator` that is measured by ROUGE."""

    name = "summarize"
    help = "train a model that sums up a text in a line"
    config_class = SummarizerConfig

    def compare(
        self, sources: Sequence[str], answers: Sequence[str], targets: Sequence[str]
    ) -> dict[str, Any]:
        """ROUGE-1, -2 and -L (Lin 2004): F1 in percent, with stemming, means over the texts; beside each
        that of "lead1", the article's first sentence.
        """
        lead = [next(iter(split_sentences(source)), "") for source in sources]
        scores, of_lead = rouge(answers, targets), rouge(lead, targets)
        return scores | {f"lead1_{name}": of_lead[name] for name in MEASURES}


def rouge(answers: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
    """{measure: F1 in percent, a mean} of `answers` beside `targets`; 0 where there are none."""
    from rouge_score.rouge_scorer import RougeScorer  # seconds to import, and needed here alone

    scorer = RougeScorer(MEASURES, use_stemmer=True)
    pairs = zip(answers, targets, strict=True)
    scores = [scorer.score(target, answer) for answer, target in pairs]
    return {
        name: 100 * float(np.mean([score[name].fmeasure for score in scores] or [0.0])) for name in MEASURES
    }
