"""`keras-tfm vectors` learns word vectors with GloVe; `keras-tfm neighbours` prints similar words."""

import argparse
import dataclasses
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from keras_tfm.cli.console import say
from keras_tfm.cli.generated import add_options, given, in_flags
from keras_tfm.cli.outputs import refuse_file
from keras_tfm.configs import Between, Config, Count, Minutes, Natural, Option

# Words in plain text: runs of letters and digits, which may contain apostrophes.
LETTERS = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclasses.dataclass(frozen=True)
class Counting(Config):
    """How words and their neighbours are counted."""

    words: Annotated[
        Literal["spaces", "letters"],
        Option("how texts are split: at spaces, or into lower-case runs of letters and digits"),
    ] = "spaces"
    min_count: Annotated[Count, Option("ignore words with fewer occurrences")] = 5
    max_size: Annotated[
        Count | None, Option("keep the N most frequent words", flag="--vocabulary-size", default="all")
    ] = None
    window: Annotated[
        Annotated[int, Between(1, 1_000)], Option("count neighbours up to N words away in the same line")
    ] = 10
    memory: Annotated[
        Annotated[float, Between(0.01, 10**6)] | None,
        Option("GiB of memory for counting; the rest goes to temporary files", default="no limit"),
    ] = None


@dataclasses.dataclass(frozen=True)
class Method(Config):
    """How vectors are learnt from the counts."""

    method: Annotated[
        Literal["glove", "glove-als"], Option("GloVe by AdaGrad, or by alternating least squares")
    ] = "glove"
    dim: Annotated[Annotated[int, Between(1, 10_000)], Option("dimension of the vectors")] = 100
    x_max: Annotated[
        Annotated[float, Between(0, 10**9, is_above=True)],
        Option("counts of at least R have full weight in the loss"),
    ] = 10.0
    epochs: Annotated[Count | None, Option("passes over the counts", default="the method's")] = None
    minutes: Annotated[Minutes | None, Option("start no new epoch after this time", default="no limit")] = (
        None
    )
    seed: Annotated[Natural, Option("seed of the initial vectors and of the order")] = 0


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm vectors and keras-tfm neighbours."""
    vectors = add_verb(group, "vectors", run_vectors, "learn word vectors from text with GloVe")
    vectors.add_argument(
        "--data",
        nargs="+",
        required=True,
        metavar="FILE",
        help="text files (plain, .gz or .xz, one text per line), folders or patterns of them, .jsonl or "
        ".parquet files with texts, or - for standard input",
    )
    vectors.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="the file to write: .npz, or with any other name the text format of word2vec, also .gz or .xz",
    )
    vectors.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    add_options(vectors.add_argument_group("counting", Counting.__doc__), Counting)
    add_options(vectors.add_argument_group("learning", Method.__doc__), Method)

    neighbours = add_verb(group, "neighbours", run_neighbours, "print the most similar words, by cosine")
    neighbours.add_argument(
        "vectors",
        metavar="VECTORS",
        help="a file of vectors: word2vec's text or .bin, GloVe's text, also .gz or .xz, or .npz",
    )
    neighbours.add_argument("word", nargs="+", metavar="WORD", help="a word in the file")
    add_options(neighbours, Asking)


@dataclasses.dataclass(frozen=True)
class Asking(Config):
    """What is printed for a word."""

    count: Annotated[Count, Option("number of words to print")] = 10


def run_vectors(arguments: argparse.Namespace) -> None:
    """vectors: write a file of vectors."""
    from keras_tfm.word_vectors import GloVe, cooccurrence

    out = arguments.out
    refuse_file(out, arguments.data, arguments.overwrite)
    with in_flags(Counting, Method):
        counting, learning = Counting(**given(arguments, Counting)), Method(**given(arguments, Method))
        options = dataclasses.asdict(counting)
        words_by = options.pop("words")
        matrix, words = cooccurrence(_texts(arguments.data, words_by), **options)
        if not matrix.nnz:
            kept = f"{len(words):,} word{'s' * (len(words) > 1)} of {counting.min_count:,} occurrences"
            raise ValueError(f"{arguments.data[0]}: expected words next to each other, got {kept} or more")
        method = {"glove": "adagrad", "glove-als": "als"}[learning.method]
        glove = GloVe(learning.dim, learning.x_max, method=method, seed=learning.seed)
        glove.fit(matrix, learning.epochs, learning.minutes)
    glove.vectors(words).write(out)
    say(f"the vectors of {len(words):,} words are in {out}")


def run_neighbours(arguments: argparse.Namespace) -> None:
    """neighbours: print one line per word, with its most similar words and their cosines."""
    from keras_tfm.word_vectors import WordVectors

    vectors = WordVectors.read(arguments.vectors)
    if unknown := next((word for word in arguments.word if word not in vectors), None):
        raise ValueError(f"{arguments.vectors}: there is no vector for {unknown!r}")
    count = Asking(**given(arguments, Asking)).count
    for word in arguments.word:
        near = vectors.neighbours(word, count)
        print(word, *(f"{other} {cosine:.3f}" for other, cosine in near), sep="\t")


def _texts(paths: Iterable[str], words_by: str) -> Iterator[str | list[str]]:
    """The texts in files, one after another as they are read; DataError for an empty file."""
    from keras_tfm.data.sources.documents import read_texts
    from keras_tfm.data.sources.files import read_lines
    from keras_tfm.data.sources.lines import DataError, files_of, text_files
    from keras_tfm.data.sources.rows import has_names

    for file in (file for path in files_of(paths) for file in text_files(path)):
        is_empty = True
        for text in read_texts(file) if has_names(file) else read_lines(file):
            is_empty = is_empty and not text.strip()
            yield text if words_by == "spaces" else LETTERS.findall(text.lower())
        if is_empty:
            raise DataError(file, None, "expected text, the file is empty")
