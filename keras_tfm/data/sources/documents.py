"""Plain text to texts and documents, and documents to sentences."""

import os
import pathlib
import re
from collections.abc import Iterator, Sequence

from keras_tfm.data.sources.files import read_lines
from keras_tfm.data.sources.lines import DataError, files_of
from keras_tfm.data.sources.rows import Columns, has_names, parse_columns, read_all

TEXTS = ("text", "document", "article", "content", "body", "sentence")
TEXT_FILES = (".txt", ".txt.gz", ".txt.xz")

# White space after a sentence's last mark and before what may begin another; none after the signs of Chinese
# and Japanese. Initials and the commonest titles end no sentence.
ENDS = re.compile(
    r"""(?<!\b[A-Z]\.)(?<!\b(?:Mr|Dr|St|Jr|Sr|Lt|vs|No|Mt)\.)(?<!\b(?:Mrs|Col|Gen|Rev|Sgt)\.)"""
    r"""(?:(?<=[.!?…])|(?<=[.!?…]["'”’»)\]]))\s+(?=["'“‘«(\[]*(?:\d|[^\W\d_a-z]))|(?<=[。！？])\s*(?=\S)"""
)


def read_texts(paths, separator: str | None = None, columns: Sequence[str | int] | None = None) -> list[str]:
    """The texts of UTF-8 files (plain, .gz or .xz), or of standard input for "-", as they are but for CRLF,
    which becomes LF: a file is a document, or several between which `separator` stands ("\\n\\n" for a blank
    line). Of .jsonl and .parquet files and sets of TFDS each row's text is a document, in the column that
    `columns` names, by default a known one; blank ones are left out. A path may be a pattern. Raises
    DataError as `read_lines` does, and where a file holds no text.
    """
    texts = []
    for path in files_of(paths):
        whole = _column(path, columns) if has_names(path) else ["".join(f"{x}\n" for x in read_lines(path))]
        parts = [part for text in whole for part in (text.split(separator) if separator else [text])]
        parts = [part for part in parts if part and not part.isspace()]
        if not parts:
            raise DataError(path, None, "expected text, the file is empty")
        texts += parts
    return texts


def read_documents(paths, columns: Sequence[str | int] | None = None) -> list[str]:
    """The documents in text files (plain, .gz or .xz): paragraphs, a line each, and blank lines between
    documents. A folder stands for its .txt, .txt.gz and .txt.xz files by name, whatever else is in it; "-"
    for standard input. Of .jsonl and .parquet files and sets of TFDS each row's text is a document, as
    `read_texts` finds it. White space around a paragraph is dropped. Raises DataError as `read_lines` does,
    and where a path holds no text.
    """
    documents: list[str] = []
    for path in files_of(paths):
        before = len(documents)
        if has_names(path):
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


def _column(path: str, columns: Sequence[str | int] | None) -> Iterator[str]:
    """The texts in one column of a table whose columns have names; blank ones are left out."""
    chosen = Columns(("text",), known_text, parse_columns(columns, counts=(1,)))
    for row in read_all(path, chosen, "texts"):
        (text,) = row.cells
        if text is not None and not (isinstance(text, str) and (not text or text.isspace())):
            yield row.text(0)


def known_text(cells: list[str]) -> tuple[int] | None:
    """Where a table's text stands; None if it has none of a known name."""
    return next(((cells.index(name),) for name in TEXTS if name in cells), None)


def split_sentences(document: str) -> list[str]:
    """The sentences of a document, by marks and capitals; none goes over the end of a line."""
    return [sentence for line in document.splitlines() for sentence in ENDS.split(line) if sentence.strip()]


def text_files(path: str) -> Sequence[str]:
    """The text files in a folder, by name, or else the path itself; DataError for a folder without any."""
    if not os.path.isdir(path):
        return [path]
    files = sorted(str(file) for file in pathlib.Path(path).iterdir() if file.name.endswith(TEXT_FILES))
    if not files:
        raise DataError(path, None, f"expected text files, {', '.join(TEXT_FILES)}; the folder has none")
    return files
