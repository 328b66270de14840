r"""Film reviews as good or bad from few examples: what is known beforehand decides how few are enough.

    keras-tfm vectors --data wiki_tok.txt.xz --out vectors.txt
    python examples/few_examples.py FOLDER --vectors vectors.txt --encoder all-MiniLM-L6-v2/ --minutes 2

learns SST-2 (train.tsv.xz, dev.tsv and test.tsv in FOLDER) from 1, 10 and 100 examples of each class, and
from all, by a bidirectional LSTM on word vectors, the same on random vectors, a small Transformer, and a
published encoder where a folder is given. Each has the same minutes at most. The numbers are accuracies on
test, of few examples the means of three draws; with all examples dev chooses the epoch, with few the last one
counts. On 2 busy cores, where the published encoder came through a tenth of all examples in its two minutes:

    examples of each class                1      10     100     all
    LSTM, word vectors                 51.1    52.2    62.4    81.5
    LSTM, random vectors               50.3    51.6    54.2    80.9
    small Transformer                  50.2    50.8    57.7    81.8
    published encoder                  53.0    57.9    76.3    81.9
"""

import argparse
import pathlib

import keras
import numpy as np

from keras_tfm.data import BERTTokenizer, read_labelled_texts
from keras_tfm.models import BERT, Recurrent
from keras_tfm.tasks import TextClassifier
from keras_tfm.word_vectors import WordVectors

COUNTS = (1, 10, 100)  # examples of a class
DRAWS = 3
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
DIM = 100  # of vectors, where none are given


def read_vectors(path, texts):
    """A tokenizer of the words in `texts` that have vectors, and these, of length 1 on average."""
    known = WordVectors.read(path)
    words = [word for word in sorted({word for text in texts for word in text.split()}) if word in known]
    rows = known.matrix[known.ids(words)]  # (V, D)
    rows /= np.linalg.norm(rows, axis=-1).mean()
    special = np.random.default_rng(0).normal(0, rows.std(), (len(SPECIAL), rows.shape[1]))
    return BERTTokenizer([*SPECIAL, *words]), np.concatenate([special, rows])  # (5 + V, D)


def models(train, vectors, encoder):
    """{name: a function that makes a fresh classifier for examples}."""
    pieces = BERTTokenizer.train(train[0], 16_000)
    words, rows = (pieces, None) if vectors is None else read_vectors(vectors, train[0])

    def recurrent(examples, rows=None):
        dim = DIM if rows is None else rows.shape[1]
        config = {"vocabulary_size": words.vocabulary_size, "dim": dim, "dropout": 0.5}
        backbone = Recurrent(Recurrent.config_of_size("mini", **config), rows)
        return TextClassifier.from_backbone(backbone, words, examples, pooling="mean")

    def transformer(examples):
        config = {"vocabulary_size": pieces.vocabulary_size, "dropout": 0.5, "attention_dropout": 0.1}
        return TextClassifier.from_backbone(
            BERT.from_size("L-2_H-256", **config), pieces, examples, pooling="mean"
        )

    made = {"LSTM, random vectors": recurrent, "small Transformer": transformer}
    if rows is not None:
        made = {"LSTM, word vectors": lambda examples: recurrent(examples, rows), **made}
    if encoder is not None:
        made["published encoder"] = lambda examples: TextClassifier.from_huggingface(encoder, examples)
    return made


def few(examples, count, seed):
    """`count` examples of each class, drawn by `seed`."""
    rng, (texts, labels) = np.random.default_rng(seed), map(np.array, examples)
    rows = np.concatenate([rng.choice(np.flatnonzero(labels == x), count, False) for x in np.unique(labels)])
    return texts[rows].tolist(), labels[rows].tolist()


def accuracy(make, examples, dev, test, minutes, rate):
    """The share of `test` that a model answers rightly which has learnt `examples`, and chose by `dev`."""
    classifier = make(examples)
    options = {"learning_rate": rate, "minutes": minutes, "batch_tokens": 2_048}
    if dev is None:
        many = [
            column * (1 + 2_000 // len(column)) for column in examples
        ]  # an epoch costs more than its steps
        classifier.fit(many, examples, epochs=3, patience=None, **options)
    else:
        classifier.fit(examples, dev, epochs=100, epoch_batches=100, patience=None, **options)
    return classifier.evaluate(test)["accuracy"]


def main(folder, vectors=None, encoder=None, minutes=2.0):
    train, dev, test = (
        read_labelled_texts(pathlib.Path(folder, name)) for name in ("train.tsv.xz", "dev.tsv", "test.tsv")
    )
    header = "".join(f"{count:>8,}" for count in COUNTS)
    print(f"{'test, %, from so many of each class':<36}{header}     all")
    for name, make in models(train, vectors, encoder).items():
        rate = 1e-4 if name == "published encoder" else 1e-3
        row = []
        for count in COUNTS:
            draws = []
            for seed in range(DRAWS):
                keras.utils.set_random_seed(seed)
                draws.append(accuracy(make, few(train, count, seed), None, test, minutes, rate))
            row.append(np.mean(draws))
        keras.utils.set_random_seed(0)
        row.append(accuracy(make, train, dev, test, minutes, rate))
        print(f"{name:<36}" + "".join(f"{100 * value:8.1f}" for value in row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", help="holds train.tsv.xz, dev.tsv and test.tsv")
    parser.add_argument("--vectors", help="word vectors, as keras-tfm vectors writes them")
    parser.add_argument("--encoder", help="a folder of a published encoder, or its hub name")
    parser.add_argument("--minutes", type=float, default=2.0, help="of training at most, for each model")
    main(**vars(parser.parse_args()))
