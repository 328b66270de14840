"""Ids of users or items: strings with an index each, which can be stored as arrays in a file of weights."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Self

import numpy as np

from keras_tfm.training.folder import Path
from keras_tfm.training.safetensors import CheckpointError


def as_ids(values: Iterable[object]) -> list[str]:
    """Names of users or items, such as numbers, as strings without white space around them."""
    return [str(value).strip() for value in values]


class Ids:
    """Distinct ids, `names`, and their indices, `places`. ValueError, naming `what` they are, if they are not
    distinct.
    """

    def __init__(self, what: str, names: Sequence[str]):
        self.what, self.names = what, list(names)
        self.places = {name: place for place, name in enumerate(self.names)}
        if not self.names or len(self.places) < len(self.names):
            raise ValueError(f"`{what}` must be different ids, one at least; they are {len(self.names):,}.")

    def __len__(self) -> int:
        return len(self.names)

    def indices(self, names: Iterable[str]) -> np.ndarray:
        """The indices of `names`, -1 for an unknown one: an array (N,)."""
        return np.fromiter((self.places.get(name, -1) for name in names), np.int64)

    def arrays(self) -> dict[str, np.ndarray]:
        """The ids in UTF-8, joined, and the position at which each of them ends."""
        texts = [name.encode() for name in self.names]
        ends = np.cumsum([len(text) for text in texts], dtype="int64")
        return {self.what: np.frombuffer(b"".join(texts), np.uint8), f"{self.what}_ends": ends}

    @classmethod
    def of_arrays(cls, what: str, arrays: Mapping[str, np.ndarray], path: Path) -> Self:
        """The ids that `arrays` stored, read from the file `path`; CheckpointError for malformed arrays."""
        data, ends = arrays.get(what), arrays.get(f"{what}_ends")
        if data is None or ends is None or data.dtype != np.uint8 or ends.dtype != np.int64:
            raise CheckpointError(path, what, "ids, and where each ends", "none")
        begins = np.concatenate([[0], ends[:-1]]) if ends.ndim == 1 and ends.size else ends
        if data.ndim != 1 or ends.ndim != 1 or (begins > ends).any() or ends[-1:].tolist() != [len(data)]:
            raise CheckpointError(path, f"{what}_ends", f"the ends of ids, the last at {data.size}", "others")
        text = data.tobytes()
        try:
            pairs = zip(begins.tolist(), ends.tolist(), strict=True)
            return cls(what, [text[begin:end].decode() for begin, end in pairs])
        except UnicodeDecodeError:
            raise CheckpointError(path, what, "ids in UTF-8", "other bytes") from None
