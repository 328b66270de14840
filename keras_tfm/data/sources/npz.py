"""Arrays in .npz files, without pickled ones, and of a bounded size."""

import zipfile
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from keras_tfm.data.sources.lines import DataError

MAX_BYTES = 1 << 33  # largest array


def read_npz(path: str, choose: Callable[[list[str]], Sequence[str]], expected: str) -> list[np.ndarray]:
    """The arrays of a file whose names `choose` takes among the file's; DataError for what cannot be read, or
    is not what is `expected`, in words.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
        chosen = choose(list(sizes))
        for name in chosen:
            if sizes[name] > MAX_BYTES:
                raise DataError(path, None, f"expected at most {MAX_BYTES:,} bytes as {name!r}, got more")
        with np.load(path, allow_pickle=False) as arrays:
            return [arrays[name] for name in chosen]
    except OSError as error:
        raise DataError(path, None, f"cannot be read: {error.strerror or error}") from None
    except DataError:
        raise
    except (ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        problem = " ".join(str(error).split())[:200]
        raise DataError(path, None, f"expected an .npz of {expected}: {problem}") from None
