"""Texts with labels, and words with tags, from files."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_tfm.data.sources.conll import held_if_tagged, parse_sentences
from keras_tfm.data.sources.headers import refuse_names, refuse_order
from keras_tfm.data.sources.lines import (
    DataError,
    Inputs,
    Path,
    Paths,
    as_inputs,
    check_text,
    files_of,
    inputs_in,
    numbered_lines,
)
from keras_tfm.data.sources.multi_hot import read_multi_hot
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    Layout,
    Row,
    has_names,
    is_table,
    names_in_first_row,
    one_of_each,
    parse_layout,
    read_all,
    read_inputs,
    read_rows,
    without_labels,
)
from keras_tfm.data.sources.word_tables import is_word_table, read_word_table

LABELS = (
    "label", "labels", "class", "category", "sentiment", "score", "target", "gold_label", "intent", "emotion",
    "topic", "stars", "rating",
)  # fmt: skip
# Columns of texts to label, as in known data sets.
TEXTS = (
    ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("text1", "text2"),
    ("question", "sentence"), ("question", "passage"), ("text_a", "text_b"), ("first", "second"),
    ("sentence",), ("text",), ("review",), ("comment",), ("comment_text",), ("review_text",), ("message",),
    ("tweet",), ("content",), ("phrase",), ("utterance",), ("question",),
)  # fmt: skip
WORDS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "ner", "labels", "pos_tags", "pos", "upos")
PROBLEMS = ("classes", "multi-label", "regression")


class LabelledTexts(NamedTuple):
    """Two lists of equal length: a text, or a tuple of two texts, and its label.

    A label is a string, a list of strings for several labels, or a number.

    >>> pair = ("A cat sleeps.", "An animal sleeps.")
    >>> examples = keras_tfm.data.LabelledTexts(texts=[pair], labels=["entailment"])
    >>> examples.texts[0][1], examples.labels[0]
    ('An animal sleeps.', 'entailment')
    """

    texts: list
    labels: list


class TaggedWords(NamedTuple):
    """Two lists of equal length: the words of a sentence, and their tags.

    >>> sentences = keras_tfm.data.TaggedWords(words=[["Ada", "wrote"]], tags=[["B-PER", "O"]])
    >>> list(zip(sentences.words[0], sentences.tags[0]))
    [('Ada', 'B-PER'), ('wrote', 'O')]
    """

    words: list[list[str]]
    tags: list[list[str]]


def read_labelled_texts(paths: Paths, columns: ColumnNames = None, problem: str = "classes") -> LabelledTexts:
    r"""Read texts, or pairs of texts, and their labels from tables.

    Args:
        paths: one or several .tsv, .csv, .jsonl or .parquet files, patterns of them, or data sets of TFDS.
        columns: text and label, or text, text and label, by name or by position from 0; or a `Layout`. A
            first row is a header if `columns` are names, if it contains known names, or if the layout says
            so.
        problem: what a label is: "classes", "multi-label" (names separated by commas, or a list; or columns
            named as the labels, which hold 0 or 1, beside one known column of texts) or "regression" (a
            number).

    Raises:
        DataError: for any mistake in a file; for a first row of unknown names, if the other labels of 20 rows
            or more repeat; for columns in the order label, text. The message names the file and the line.

    >>> import pathlib
    >>> _ = pathlib.Path("reviews.csv").write_text("text,label\nVery good,positive\nToo long,negative\n")
    >>> keras_tfm.data.read_labelled_texts("reviews.csv")
    LabelledTexts(texts=['Very good', 'Too long'], labels=['positive', 'negative'])
    """
    if problem not in PROBLEMS:
        raise ValueError(f"problem: expected one of {', '.join(PROBLEMS)}, got {problem!r}")
    layout = parse_layout(columns, counts=(2, 3))
    names = ("text", "text", "label") if len(layout.columns or ()) == 3 else ("text", "label")
    examples = LabelledTexts([], [])
    for path in files_of(paths):
        if problem == "multi-label" and (found := _of_multi_hot(path, layout)):
            examples.texts.extend(found[0])
            examples.labels.extend(found[1])
            continue
        begin, first = len(examples.labels), None
        for row in read_all(path, Columns(names, known_columns, layout), "labelled texts"):
            first = first or row
            texts = tuple(map(row.text, range(len(row.cells) - 1)))
            examples.texts.append(texts if len(texts) == 2 else texts[0])
            examples.labels.append(_label(row, len(texts), problem))
        if first is not None and problem != "regression":
            labels = [x if isinstance(x, list) else [x] for x in examples.labels[begin:]]
            refuse_order(first, examples.texts[begin:], labels, layout.columns is not None)
            refuse_names(first, labels)
    if len({type(text) for text in examples.texts}) > 1:
        raise ValueError("paths: expected either texts or pairs of texts in all files, got both")
    return examples


def read_unlabelled_texts(path: Path, columns: ColumnNames = None, pairs: bool | None = False) -> Inputs:
    """Texts, or `pairs` of them, to answer: the lines of text files, with a tab within a pair, or the columns
    of tables. If `pairs` is None, a table holds what its header, or else its number of columns, says.
    """
    layout = parse_layout(columns, range(1, 4))
    for file in filter(is_table, files_of(path)):
        pairs = _holds_pairs(file, layout, pairs)
    names = ("text", "text", "label") if pairs else ("text", "label")
    count = len(names) - 1

    def known(cells: list[str]) -> tuple[int, ...] | None:
        places = known_columns(cells)
        if places is not None and len(places) > count:
            return places
        texts = next((group for group in TEXTS if len(group) == count and set(group) <= set(cells)), None)
        return texts and tuple(map(cells.index, texts))

    def example(row: Row) -> str | tuple[str, ...]:
        texts = tuple(map(row.text_or_blank, range(count)))
        return texts if pairs else texts[0]

    return read_inputs(path, without_labels(names, 1, known, columns), example)


def _holds_pairs(path: str, layout: Layout, pairs: bool | None) -> bool:
    """Whether two texts are read of each row of a table: as `pairs` says, or else the table; DataError if its
    header names two texts, of which one would be read, and if neither says.
    """
    if pairs or (layout.columns is not None and pairs is False):
        return pairs
    if (chosen := layout.columns) is not None:
        is_labelled = chosen[-1] in LABELS or len(chosen) == 3
        return len(chosen) - is_labelled == 2
    cells = [name.lower() for name in names_in_first_row(path, layout)]
    texts = None if layout.header is False else _known_texts(cells)
    if pairs is False and texts and len(texts) == 2:
        problem = f"expected one text in a row, got {' and '.join(texts)}: choose one by --columns"
        raise DataError(path, None, problem)
    if pairs is None and texts is None and len(cells) not in (1, 3):
        problem = "expected known names of columns, of one text or of two: choose these by --columns"
        raise DataError(path, None, f"{problem}, as the model may read either")
    return pairs is None and len(texts or cells[1:]) == 2


def _of_multi_hot(path: str, layout: Layout) -> tuple[list[str], list[list[str]]] | None:
    """What `read_multi_hot` makes of a table that has a known column of texts, and none of labels."""
    if layout.columns is not None or layout.header is False:
        return None
    names = names_in_first_row(path, layout)
    cells = [name.lower() for name in names]
    text = next((found for (found, *second) in TEXTS if found in cells and not second), None)
    if text is None or known_columns(cells) is not None:
        return None
    return read_multi_hot(path, names, cells.index(text), layout)


def known_columns(cells: list[str]) -> tuple[int, ...] | None:
    """The positions of texts and label in a header; None if it is not a header or lacks one of them."""
    label, texts = next((name for name in LABELS if name in cells), None), _known_texts(cells)
    return None if label is None or texts is None else tuple(map(cells.index, (*texts, label)))


def _known_texts(cells: list[str]) -> tuple[str, ...] | None:
    """The names in a header of the text, or of the two texts, to label; None if it has none of them."""
    return next((names for names in TEXTS if set(names) <= set(cells)), None)


def _label(row: Row, place: int, problem: str):
    value = row.cells[place]
    if problem == "multi-label":
        names = value.split(",") if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            row.refuse(f"expected names of labels, got {value!r:.60}")
        return [name.strip() for name in names if name.strip()]
    if (
        isinstance(value, bool | list | dict)
        or value is None
        or (isinstance(value, str) and not value.strip())
    ):
        row.refuse(f"expected a label, got {value!r:.60}")
    if problem == "classes":
        return str(value).strip()
    number = row.as_number(place)
    if math.isnan(number):
        row.refuse(f"expected a number as the label, got {value!r:.60}")
    return number


def read_tagged_words(paths: Paths, columns: ColumnNames = None) -> TaggedWords:
    r"""Read words and their tags from one or several files or patterns.

    A file has CoNLL columns: one word per line, first the word and last its tag, separated by tabs or else by
    spaces, a blank line after each sentence; `columns` are the positions of others, from 0. Skipped are
    -DOCSTART- lines, comments ("# …") that open a sentence, and a first column that counts words; the tags of
    CoNLL-U are its fourth column. Or it is a .json, .jsonl or .parquet file or a data set of TFDS with a list
    of words and a list of tags per row, whose `columns` have known names by default; or a .csv file, or a
    .tsv file with a header, with a word per row (see `word_tables`).

    Raises:
        DataError: if lines differ in the number of columns, if a sentence has more or fewer tags than words,
            or if a file is empty.

    >>> import pathlib
    >>> _ = pathlib.Path("words.conll").write_text("Ada B-PER\nwrote O\n\nBabbage B-PER\n")
    >>> keras_tfm.data.read_tagged_words("words.conll").words
    [['Ada', 'wrote'], ['Babbage']]
    """
    layout = parse_layout(columns, counts=(2, 3))
    chosen = Columns(("words", "tags"), one_of_each(WORDS, TAGS), layout)
    examples = TaggedWords([], [])
    for path in files_of(paths):
        if is_word_table(path, layout):
            sentences = _listed(read_word_table(path, layout))
        elif len(layout.columns or ()) == 3:
            expected = "the columns of words and of tags; a column of sentences is for .csv and .tsv files"
            raise DataError(path, None, f"--columns: expected two, {expected}; got three")
        elif has_names(path):
            sentences = _listed(map(_tagged, read_all(path, chosen, "tagged words")))
        else:
            sentences = TaggedWords(*parse_sentences(path, numbered_lines(path), layout.positions_in(path)))
        if not sentences.words:
            raise DataError(path, None, "expected tagged words, the file has none")
        for column, more in zip(examples, sentences, strict=True):
            column.extend(more)
    return examples


def _listed(sentences: Iterable[tuple[list[str], list[str]]]) -> TaggedWords:
    """The words and the tags of all sentences that have words."""
    nonempty = [sentence for sentence in sentences if sentence[0]]
    return TaggedWords([words for words, _ in nonempty], [tags for _, tags in nonempty])


def read_unlabelled_words(path: Path, labels: Sequence[str], columns: ColumnNames = None) -> Inputs:
    """Sentences to tag: lines of text files, sentences in CoNLL columns, or words or lists of words from
    tables.

    A file is taken for CoNLL columns, and held whole, if `columns` are chosen, of which the second holds tags
    and is ignored, or if every line ends in a tag, one of `labels` or of their kind.
    """
    layout = parse_layout(columns, counts=(1, 2, 3))
    words_alone = dataclasses.replace(layout, columns=layout.columns and layout.columns[:1])

    def read(file: str) -> Inputs:
        if is_word_table(file, layout, always=()):
            return numbered(words for words, _ in read_word_table(file, layout, has_tags=False))
        if has_names(file):
            rows = read_rows(file, Columns(("words",), one_of_each(WORDS), words_alone))
            return ((words_of(row), row.place) for row in rows)
        lines, positions = numbered_lines(file), words_alone.positions_in(file)
        held, has_columns = (list(lines), True) if positions else held_if_tagged(lines, labels)
        if has_columns:
            return numbered(parse_sentences(file, held, positions and positions * 2).words)
        return as_inputs(itertools.chain(held, lines))

    def numbered(sentences: Iterable[list[str]]) -> Inputs:
        return ((words, f"sentence {number}") for number, words in enumerate(sentences, start=1))

    return inputs_in(files_of(path), read)


def words_of(row: Row) -> list[str]:
    """The first cell of the row as a list of words; DataError for anything else."""
    words = row.cells[0]
    if not isinstance(words, list):
        row.refuse(f"expected a list of words as {row.names[0]}, got {words!r:.60}")
    return [check_text(word, row.path, row.number, "word", row.unit) for word in words]


def _tagged(row: Row) -> tuple[list[str], list[str]]:
    words, tags = words_of(row), row.cells[1]
    if not isinstance(tags, list) or len(tags) != len(words):
        row.refuse(f"expected {len(words)} tags, one for each word, got {tags!r:.60}")
    for tag in tags:
        if not isinstance(tag, int | str) or not str(tag).strip():
            row.refuse(f"expected a tag, got {tag!r:.60}")
    return words, [str(tag) for tag in tags]
