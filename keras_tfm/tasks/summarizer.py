"""Summaries, two ways: by an encoder-decoder, or by one language model that goes on behind the article.

The second is `family="gpt2"`: article, delimiter, summary in one row, with loss on the summary only.
"""

import numpy as np

from keras_tfm.data.documents import split_sentences
from keras_tfm.tasks.translator import Translator

MEASURES = ("rouge1", "rouge2", "rougeL")


class Summarizer(Translator):
    """Articles to summaries: a `Translator` that is measured by ROUGE."""

    name = "summarize"

    def measures(self, sources, answers, targets):
        """ROUGE-1, -2 and -L (Lin 2004): F1 in percent, with stemming, means over the texts; beside each
        that of "lead1", the article's first sentence.
        """
        lead = [next(iter(split_sentences(source)), "") for source in sources]
        scores, of_lead = rouge(answers, targets), rouge(lead, targets)
        return scores | {f"lead1_{name}": of_lead[name] for name in MEASURES} | {"pairs": len(sources)}


def rouge(answers, targets):
    """{measure: F1 in percent, a mean} of `answers` beside `targets`; 0 where there are none."""
    from rouge_score.rouge_scorer import RougeScorer  # seconds to import, and needed here alone

    scorer = RougeScorer(MEASURES, use_stemmer=True)
    pairs = zip(answers, targets, strict=True)
    scores = [scorer.score(target, answer) for answer, target in pairs]
    return {
        name: round(100 * float(np.mean([score[name].fmeasure for score in scores] or [0.0])), 2)
        for name in MEASURES
    }
