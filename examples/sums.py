"""Sums and word problems: answers at once, units first, or by a scratch-pad, number of digits by number.

    python examples/sums.py
    python examples/sums.py --tasks steps marked --minutes 5
    python examples/sums.py --tasks marked --minutes 15 --resume

Trains seven models for 15 minutes each. Expected: 100 % of sums of up to five digits by a scratch-pad whose
places are marked, for which two minutes of CPU time were enough, and nothing of six and seven digits, which
training never had; 100 % of word problems by a scratch-pad for each operation, after twelve minutes.
docs/guides/sums.md has what was measured of the other forms after a shorter training.
"""

import argparse
import functools
import pathlib

from keras_tfm.data import train_tokenizer
from keras_tfm.data.worlds import final_answer, sum_pairs, word_problem_pairs
from keras_tfm.heads import LanguageModel
from keras_tfm.models import Llama
from keras_tfm.tasks import Translator, TranslatorConfig

SEEN, TESTED = 5, 7  # digits of a longer number: at most so many in training, and in testing
TASKS = {
    "direct": functools.partial(sum_pairs, form="direct"),
    "reversed": functools.partial(sum_pairs, form="reversed"),
    "steps": functools.partial(sum_pairs, form="steps"),
    "marked": functools.partial(sum_pairs, form="steps", mark_places=True),
    "words": functools.partial(word_problem_pairs, form="direct"),
    "words-lines": functools.partial(word_problem_pairs, form="lines"),
    "words-steps": functools.partial(word_problem_pairs, form="steps"),
}


def untrained(pairs):
    """A tiny Llama, a decoder that reads the question before it writes; each character, so each digit, is a
    token.
    """
    tokenizer = train_tokenizer([*pairs.sources, *pairs.targets], "characters")
    longest = 3 * max(map(len, [*pairs.sources, *pairs.targets])) // 2  # more digits than in training fit
    sizes = {"vocabulary_size": tokenizer.vocabulary_size, "max_length": 2 * longest, "num_layers": 3}
    model = Llama.from_size("tiny", **sizes)
    return Translator(LanguageModel(model), tokenizer, config=TranslatorConfig(longest))


def exact_match(translator, pairs):
    """The share of answers that are right, whatever the scratch-pad before them says, in per cent."""
    answers = translator.generate(pairs.sources)
    right = [final_answer(a) == final_answer(b) for a, b in zip(answers, pairs.targets, strict=True)]
    return 100 * sum(right) / len(right)


def main(tasks=tuple(TASKS), minutes=15.0, folder="saved_models/sums", resume=False, count=150_000):
    for task in tasks:
        draw = TASKS[task]
        train = draw(count, seed=1)
        translator = untrained(train)
        translator.fit(
            train,
            draw(500, part="test", seed=2),  # judges the epochs
            run=pathlib.Path(folder, task),
            resume=resume,
            overwrite=not resume,
            epochs=10_000,
            epoch_batches=200,
            minutes=minutes,
            patience=None,
            batch_tokens=2_048 if task in ("direct", "reversed") else 4_096,
            learning_rate=1e-3,
            schedule="linear",
            warmup_steps=200,
            label_smoothing=0.0,
        )
        if task.startswith("words"):
            print(f"{task:12} {exact_match(translator, draw(1_000, part='test', seed=3)):5.1f} %")
            continue
        for digits in range(1, TESTED + 1):
            share = exact_match(translator, draw(300, (digits, digits), part="test", seed=3))
            print(f"{task:12} {digits} digits{', unseen' * (digits > SEEN):8}  {share:5.1f} %", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--minutes", type=float, default=15.0, help="of training, for each model")
    parser.add_argument("--folder", default="saved_models/sums", help="receives a RUN of each task")
    parser.add_argument("--resume", action="store_true", help="go on with the RUNs in the folder")
    main(**vars(parser.parse_args()))
