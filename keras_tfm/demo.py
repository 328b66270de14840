"""The built-in demonstration, end to end: it translates dates in 40 languages to ISO 8601."""

import logging
import shlex
import subprocess
import sys
import time

from keras_tfm.data.worlds.dates import date_splits
from keras_tfm.tasks.text.translator import Translator

LOG = logging.getLogger(__name__)

# Answers each line of standard input from a SavedModel, in a process that cannot import this package.
SERVE = """
import sys
sys.modules["keras_tfm"] = None
import tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
lines = sys.stdin.buffer.read().decode().split("\\n")
print(*(text.decode() for text in serve(text=tf.constant(lines))["text"].numpy()), sep="\\n")
"""


EXAMPLE = "Sunday, July 15, 1984"  # shown on the attention page


def run(folder, run_folder, command="keras-tfm"):
    """Train and measure a translator, save it to `run_folder`, export it to `folder`, and query the
    SavedModel.

    Returns whether the SavedModel gives the same answers as the model. `command` is the name of the command
    in the hint that is printed at the end.
    """
    began = time.perf_counter()
    train, test = date_splits()
    LOG.info("%d dates to learn from, %d other dates held out", len(train.sources), len(test.sources))
    translator = Translator.from_pairs(train, size="tiny", vocabulary_size=1_000, max_length=64)
    translator.fit(
        train, epochs=6, batch_tokens=4096, learning_rate=2e-3, schedule="inverse-root", label_smoothing=0.0
    )

    answers = translator.generate(test.sources)
    right = [answer == target for answer, target in zip(answers, test.targets, strict=True)]
    for i in range(0, len(right), max(1, len(right) // 20)):
        print(f"{'right' if right[i] else 'WRONG'}  {test.sources[i]}  ->  {answers[i]}")
    print(f"exact match {100 * sum(right) / len(right):.1f} %")

    translator.save(run_folder, overwrite=True)
    translator.export(folder, overwrite=True)
    asked = test.sources[:200]
    served = subprocess.run(
        [sys.executable, "-c", SERVE, str(folder)],
        input="\n".join(asked),
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout.splitlines()
    equal = served == answers[: len(asked)]
    print(
        f"{folder} answers {len(asked)} dates in a process without keras_tfm: "
        f"{'as the model does' if equal else 'DIFFERENTLY from the model'}"
    )
    LOG.info("%.0f s in all", time.perf_counter() - began)
    line = shlex.join([command, "attention", str(run_folder), "--text", EXAMPLE, "--out", "attention.html"])
    print(f"what it attended to: {line}")
    return equal
