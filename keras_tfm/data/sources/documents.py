"""Plain text to texts and documents, and documents to sentences."""

import re
from collections.abc import Iterator

from keras_tfm.data.sources.files import read_lines
from keras_tfm.data.sources.lines import DataError, Paths, files_of, text_files
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    is_table,
    one_of_each,
    parse_layout,
    read_all,
    refuse_columns_of_text,
)

TEXTS = ("text", "document", "article", "content", "body", "sentence")

# White space between the end of a sentence and a possible beginning; none is needed after Chinese
# and Japanese marks. Initials and the commonest titles do not end a sentence.
ENDS = re.compile(
    r"""(?<!\b[A-Z]\.)(?<!\b(?:Mr|Dr|St|Jr|Sr|Lt|vs|No|Mt)\.)(?<!\b(?:Mrs|Col|Gen|Rev|Sgt)\.)"""
    r"""(?:(?<=[.!?…])|(?<=[.!?…]["'”’»)\]]))\s+(?=["'“‘«(\[]*(?:\d|[^\W\d_a-z]))|(?<=[。！？])\s*(?=\S)"""
)


def read_texts(paths: Paths, separator: str | None = None, columns: ColumnNames = None) -> list[str]:
    r"""Read texts from UTF-8 files (plain, .gz or .xz), or from standard input for "-".

    A file is one document, or several that `separator` separates ("\n\n" for a blank line). In .tsv, .csv,
    .jsonl and .parquet files and data sets of TFDS, each row is a document: the column that `columns` names,
    or one with a known name, or a .tsv or .csv file's only one. Blank documents are skipped. Texts are
    returned unchanged, except that CRLF becomes LF. Paths may be patterns.

    Raises:
        DataError: if a file is missing, truncated, not UTF-8, or without text, or if none is a table that
            `columns` are for.

    >>> import pathlib
    >>> _ = pathlib.Path("texts.txt").write_text("A cat.\n\nA dog.")
    >>> keras_tfm.data.read_texts("texts.txt", separator="\n\n")
    ['A cat.', 'A dog.\n']
    """
    refuse_columns_of_text(paths, columns)
    texts = []
    for path in files_of(paths):
        whole = _column(path, columns) if is_table(path) else ["".join(f"{x}\n" for x in read_lines(path))]
        parts = [part for text in whole for part in (text.split(separator) if separator else [text])]
        parts = [part for part in parts if part and not part.isspace()]
        if not parts:
            raise DataError(path, None, "expected text, the file is empty")
        texts += parts
    return texts


def read_documents(paths: Paths, columns: ColumnNames = None) -> list[str]:
    r"""Read documents from text files (plain, .gz or .xz), whose paragraphs are lines and whose documents are
    separated by blank lines.

    A folder stands for its .txt, .txt.gz and .txt.xz files, sorted by name, "-" for standard input. Each
    row of a table is a document, as in `read_texts`. White space around paragraphs is removed.

    Raises:
        DataError: if a file is missing, truncated, not UTF-8, or without text, or if none is a table that
            `columns` are for.

    >>> import pathlib
    >>> _ = pathlib.Path("documents.txt").write_text("A title\nA paragraph.\n\nAnother document.\n")
    >>> keras_tfm.data.read_documents("documents.txt")
    ['A title\nA paragraph.', 'Another document.']
    """
    refuse_columns_of_text(paths, columns)
    documents: list[str] = []
    for path in files_of(paths):
        before = len(documents)
        if is_table(path):
            paragraphs = ([x.strip() for x in text.splitlines()] for text in _column(path, columns))
            documents += ["\n".join(filter(None, x)) for x in paragraphs if any(x)]
        else:
            documents += [document for file in text_files(path) for document in _documents(file)]
        if len(documents) == before:
            raise DataError(path, None, "expected documents, it holds no text")
    return documents


def _documents(file: str) -> Iterator[str]:
    paragraphs: list[str] = []
    for line in (*read_lines(file), ""):
        if line := line.strip():
            paragraphs.append(line)
        elif paragraphs:
            yield "\n".join(paragraphs)
            paragraphs = []


def _column(path: str, columns: ColumnNames) -> Iterator[str]:
    """The texts in one column of a table; blank ones are skipped."""
    chosen = Columns(("text",), one_of_each(TEXTS), parse_layout(columns, counts=(1,)))
    for row in read_all(path, chosen, "texts"):
        (text,) = row.cells
        if text is not None and not (isinstance(text, str) and (not text or text.isspace())):
            yield row.text(0)


def split_sentences(document: str) -> list[str]:
    """The sentences of a document, found by punctuation and capitals; a sentence never crosses the end of a
    line.

    >>> keras_tfm.data.split_sentences("Dr. Who came. Then she left!")
    ['Dr. Who came.', 'Then she left!']
    """
    return [sentence for line in document.splitlines() for sentence in ENDS.split(line) if sentence.strip()]
