"""Training texts: in memory or, if they are too large for it, as a `TextStream`."""

import os
from collections.abc import Callable, Sequence

from keras_tfm.data.sources.lines import files_of, text_files
from keras_tfm.data.sources.rows import is_table
from keras_tfm.data.sources.text_stream import TextStream
from keras_tfm.training.folder import Path

Texts = Sequence[str] | TextStream

LARGE = 2**30  # bytes: more text than this is read as a stream
SAMPLE = 2**25  # characters of a stream on which a vocabulary is trained
EPOCH_BATCHES = 1_000  # batches in an epoch of a stream by default


def read_or_stream(
    paths: Sequence[Path], read: Callable[[Sequence[Path]], list[str]], separator: str | None
) -> Texts:
    """The result of `read(paths)`, or a stream if the text files have more than `LARGE` bytes together.

    Tables and .xz files are always read whole, since they cannot be streamed.
    """
    found = [path for path in files_of(paths) if not is_table(path) and path != "-"]
    files = [file for path in found for file in text_files(path)]
    size = sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    can_stream = len(found) == len(files_of(paths)) and not any(file.endswith(".xz") for file in files)
    return TextStream(paths, separator) if can_stream and size > LARGE else read(paths)


def sample_of(texts: Texts) -> Sequence[str]:
    """Texts to train a vocabulary on: all of them, or passages of a stream."""
    return texts.sample(SAMPLE) if isinstance(texts, TextStream) else texts
