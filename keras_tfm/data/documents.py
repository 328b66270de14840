"""Plain text to documents, and documents to sentences."""

import os
import pathlib
import re
from collections.abc import Sequence

from keras_tfm.data.sources import DataError, read_lines

TEXT_FILES = (".txt", ".txt.gz", ".txt.xz")

# White space after a sentence's last mark and before what may begin another; none after the signs of Chinese
# and Japanese. Initials and the commonest titles end no sentence.
ENDS = re.compile(
    r"""(?<!\b[A-Z]\.)(?<!\b(?:Mr|Dr|St|Jr|Sr|Lt|vs|No|Mt)\.)(?<!\b(?:Mrs|Col|Gen|Rev|Sgt)\.)"""
    r"""(?:(?<=[.!?…])|(?<=[.!?…]["'”’»)\]]))\s+(?=["'“‘«(\[]*(?:\d|[^\W\d_a-z]))|(?<=[。！？])\s*(?=\S)"""
)


def read_documents(paths) -> list[str]:
    """The documents in text files (plain, .gz or .xz): paragraphs, a line each, and blank lines between
    documents. A folder stands for its .txt, .txt.gz and .txt.xz files by name, whatever else is in it; "-"
    for standard input. White space around a paragraph is dropped. Raises DataError as `read_lines` does, and
    where a path holds no text.
    """
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    documents: list[str] = []
    for path in map(os.fspath, paths):
        before = len(documents)
        for file in text_files(path):
            paragraphs: list[str] = []
            for line in read_lines(file):
                if line := line.strip():
                    paragraphs.append(line)
                elif paragraphs:
                    documents.append("\n".join(paragraphs))
                    paragraphs = []
            if paragraphs:
                documents.append("\n".join(paragraphs))
        if len(documents) == before:
            raise DataError(path, None, "expected documents, it holds no text")
    return documents


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
