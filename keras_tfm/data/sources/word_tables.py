"""Tables with a word per row, its tag and, in a column of their own, sentences: .csv and .tsv files.

Without that column a blank line ends a sentence; in it a blank cell means the sentence of the row before, as
in tables that were made with spreadsheets.
"""

import dataclasses
from collections.abc import Iterator

from keras_tfm.data.sources.lines import DataError
from keras_tfm.data.sources.rows import (
    Columns,
    Layout,
    kind_of,
    names_in_first_row,
    one_of_each,
    read_rows,
)

GROUPS = {
    "sentence": ("sentence", "sentence_id", "sent_id", "sentence #", "sentence_idx", "sentence_number"),
    "word": ("word", "token", "form", "words", "tokens"),
    "tag": ("tag", "label", "ner_tag", "ner", "tags", "labels", "ner_tags", "pos", "pos_tag", "upos"),
}


def is_word_table(path: str, layout: Layout, always: tuple[str, ...] = (".csv",)) -> bool:
    """Whether the file is a table with a word per row: of a kind that is `always` one, or a .csv or .tsv file
    with a header.
    """
    kind = kind_of(path)
    if kind not in (".csv", ".tsv") or kind in always:
        return kind in always
    if layout.header is not None or layout.quoted or isinstance((layout.columns or [0])[0], str):
        return kind == ".csv" or layout.header is not False
    return _header_in(path, layout) is not None


def read_word_table(
    path: str, layout: Layout, has_tags: bool = True
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the words of each sentence and their tags; without `has_tags` no tags, which may then be missing.

    A `layout` has the columns of the sentence (or none), the word and the tag. DataError for a blank word or
    tag.
    """
    columns = _columns(path, layout, has_tags)
    has_sentences, before, sentence = "sentence" in columns.names, -1, ""
    words: list[str] = []
    tags: list[str] = []
    for row in read_rows(path, columns):
        cells = dict(zip(columns.names, (str(cell).strip() for cell in row.cells), strict=True))
        for name in ("word", "tag"):
            if not cells.get(name, "-"):
                row.refuse(f"expected a {name}, the cell is blank")
        is_new = row.number > before + 1 and not has_sentences
        if has_sentences and cells["sentence"]:
            is_new, sentence = cells["sentence"] != sentence, cells["sentence"]
        if is_new and words:
            yield words, tags
            words, tags = [], []
        words.append(cells["word"])
        tags += [cells["tag"]] if has_tags else []
        before = row.number
    if words:
        yield words, tags


def _columns(path: str, layout: Layout, has_tags: bool) -> Columns:
    """The columns to read, by the names "sentence", "word" and "tag"."""
    header, chosen = _header_in(path, layout), layout.columns
    if chosen is None and header and layout.header is not False:
        names = ["sentence"] * ("sentence" in header) + ["word", "tag"]
    else:
        width = len(names_in_first_row(path, layout)) if chosen is None else len(chosen)
        names = {1: ["word"], 2: ["word", "tag"], 3: ["sentence", "word", "tag"]}.get(width, [])
        if not names or (width == 1 and has_tags):
            expected = "a header that names a word and a tag, or the columns word and tag"
            raise DataError(path, None, f"expected {expected}, got {width} columns; choose: --columns A,B")
        chosen = list(range(width)) if chosen is None else chosen
    if not has_tags and names[-1] == "tag":
        names, chosen = names[:-1], chosen and chosen[:-1]
    known = one_of_each(*(GROUPS[name] for name in names))
    return Columns(tuple(names), known, dataclasses.replace(layout, columns=chosen), tells_blank=False)


def _header_in(path: str, layout: Layout) -> list[str] | None:
    """Which of "sentence", "word" and "tag" a header names; None unless these are the word and another."""
    cells = [name.lower() for name in names_in_first_row(path, layout)]
    found = [name for name, names in GROUPS.items() if any(cell in names for cell in cells)]
    return found if "word" in found and len(found) > 1 else None
