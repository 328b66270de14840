"""CoNLL columns: a word and its tag a line, a blank line after each sentence (Tjong Kim Sang and De Meulder
2003).

Tabs or else spaces separate cells; every other character, a no-break space too, belongs to a word. Without a
choice the first column holds words and the last one tags, with two exceptions. A first column that counts the
words of each sentence is left out, as in GermEval and CoNLL-U. In the ten columns of CoNLL-U the tag is the
fourth, UPOS; behind a counter, of two last columns of B-, I- and O alone, it is the first, the outer tag.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from keras_tfm.data.sources.lines import DataError

DOCUMENT = "-DOCSTART-"  # begins a document in CoNLL's files
NUM_OF_UNIVERSAL, UPOS = 10, 3  # the columns of CoNLL-U, and which is the tag
OUTSIDE = re.compile(r"O|[BIESLU]-\S+")
RANGE = re.compile(r"\d+[-.]\d+")  # CoNLL-U: several words written as one, or a word that is not written


class Line(NamedTuple):
    """A line with a word: its number, and its cells."""

    number: int
    cells: list[str]


class Sentences(NamedTuple):
    """The words of sentences, and their tags."""

    words: list[list[str]]
    tags: list[list[str]]


def parse_sentences(
    path: str, lines: Iterable[tuple[int, str]], columns: Sequence[int] | None = None
) -> Sentences:
    """The sentences in the numbered lines of a file. `columns` are the word's and the tag's, from 0.

    DataError if lines differ in the number of columns, for a blank word or tag, and if a column to read is
    missing.
    """
    sentences = _sentences(lines)
    rows = [row for sentence in sentences for row in sentence]
    if not rows:
        return Sentences([], [])
    first, width = rows[0], len(rows[0].cells)
    for row in rows:
        if len(row.cells) != width or width < 2:
            expected = width if width > 1 else "two or more"
            raise DataError(path, row.number, f"expected {expected} columns, got {len(row.cells)}")
    if columns is not None and max(columns) >= width:
        raise DataError(path, first.number, f"expected column {max(columns)} (from 0), got {width} columns")
    word, tag = columns or _columns(sentences)
    if columns is None and all(row.cells[tag] == "_" for row in rows):
        problem = f"expected tags in column {tag} (from 0), which holds _ alone"
        raise DataError(path, first.number, f"{problem}; choose the word and the tag: --columns 0,1")
    for row in rows:
        if not row.cells[word] or not row.cells[tag]:
            raise DataError(path, row.number, f"expected a word and a tag, got {row.cells!r:.60}")
    words, tags = ([[row.cells[x] for row in sentence] for sentence in sentences] for x in (word, tag))
    return Sentences(words, tags)


def held_if_tagged(
    lines: Iterable[tuple[int, str]], labels: Sequence[str]
) -> tuple[list[tuple[int, str]], bool]:
    """The numbered lines of a file up to the first that no CoNLL columns have, or all; and whether they are
    CoNLL columns, see `is_tagged`.
    """
    held, width = [], 0
    for number, text in lines:
        held.append((number, text))
        cells = cells_of(text)
        if not cells or cells[0] == DOCUMENT or cells[0][0] == "#":
            continue
        width = width or len(cells)
        is_universal = width == NUM_OF_UNIVERSAL
        if is_universal and RANGE.fullmatch(cells[0]):
            continue
        if len(cells) != width or width < 2:
            return held, False
        tags = [*cells[-2:], cells[UPOS]] if is_universal else cells[-2:]
        if not any(_is_tag(tag, labels) for tag in tags):
            return held, False
    return held, is_tagged([text for _, text in held], labels)


def _is_tag(cell: str, labels: Sequence[str]) -> bool:
    return cell in labels or OUTSIDE.fullmatch(cell) is not None


def is_tagged(lines: Iterable[str], labels: Sequence[str]) -> bool:
    """Whether lines are CoNLL columns and not sentences: all have the same number of columns, at least two,
    and each tag is one of `labels`, "O", or of the B-, I- kind.
    """
    sentences = _sentences(enumerate(lines, start=1))
    rows = [row.cells for sentence in sentences for row in sentence]
    if len(set(map(len, rows))) != 1 or len(rows[0]) < 2:
        return False
    _, tag = _columns(sentences)
    return all(_is_tag(row[tag], labels) for row in rows)


def _sentences(lines: Iterable[tuple[int, str]]) -> list[list[Line]]:
    """The lines with words by sentence: without the comments that open a sentence, marks of documents, and
    CoNLL-U's ranges.
    """
    parts: list[list[Line]] = [[]]
    for number, text in lines:
        cells = cells_of(text)
        if cells and cells[0] != DOCUMENT:
            parts[-1].append(Line(number, cells))
        elif parts[-1]:
            parts.append([])
    words = [row.cells for part in parts for row in part if row.cells[0][0] != "#"]
    width, tags = len(words[0]) if words else None, {cells[-1] for cells in words}

    def is_comment(row: Line) -> bool:
        """Whether the line begins with # and is no word: a word has as many cells as others, and a tag."""
        mark, tag = row.cells[0], row.cells[-1]
        is_word = len(row.cells) == width and (mark != "#" or tag in tags or OUTSIDE.fullmatch(tag))
        return width is not None and mark[0] == "#" and not is_word

    sentences = []
    for part in parts:
        part = list(itertools.dropwhile(is_comment, part))
        if width == NUM_OF_UNIVERSAL:
            part = [row for row in part if not RANGE.fullmatch(row.cells[0])]
        if part:
            sentences.append(part)
    return sentences


def _columns(sentences: list[list[Line]]) -> tuple[int, int]:
    """Which columns hold words and tags."""
    rows = [row.cells for sentence in sentences for row in sentence]
    width = len(rows[0])
    if width < 3 or not _counts(sentences):
        return 0, width - 1
    if width == NUM_OF_UNIVERSAL:
        return 1, UPOS
    is_nested = width > 3 and all(OUTSIDE.fullmatch(cell) for row in rows for cell in row[-2:])
    return 1, width - 2 if is_nested else width - 1


def _counts(sentences: list[list[Line]]) -> bool:
    """Whether the first column counts the words of each sentence, from 0 or 1, and some has two or more."""
    first = sentences[0][0].cells[0]
    return (
        first in ("0", "1")
        and max(map(len, sentences)) > 1
        and all(
            row.cells[0] == str(number)
            for sentence in sentences
            for number, row in enumerate(sentence, start=int(first))
        )
    )


def cells_of(line: str) -> list[str]:
    """The cells of a line; [] for a blank one."""
    if not line.strip("\ufeff \t").strip():
        return []
    if line[:1] == "\ufeff" and line[1:2] not in (" ", "\t"):
        line = line[1:]  # a byte order mark, where files were joined
    line = line.strip(" \t")
    return [cell.strip(" ") for cell in line.split("\t")] if "\t" in line else re.split(" +", line)
