"""Sums of sparse matrices that may be larger than memory: sorted runs on disk, merged row by row."""

import functools
import itertools
import operator
import tempfile

import numpy as np
from scipy import sparse

FAN_IN = 8  # runs that are merged into one, so that few files are open


def on_disk(values: np.ndarray) -> np.ndarray:
    """A copy of `values` in a temporary file, mapped into memory, which vanishes with it."""
    if not values.size:
        return values.copy()  # an empty file cannot be mapped
    with tempfile.TemporaryFile() as file:
        values.tofile(file)
        file.flush()
        return np.memmap(file, values.dtype, "r+", shape=values.shape)


class Runs:
    """The sum of CSR arrays of one shape, given one after another.

    `limit` is how many bytes merging may hold; None keeps everything in memory. With it each array goes to
    disk, and as soon as there are `FAN_IN` of a generation they become one of the next: what is added n times
    is written log n times.
    """

    def __init__(self, limit: int | None = None):
        self.limit = limit
        self.generations: list[list[sparse.csr_array]] = []

    def add(self, run: sparse.csr_array) -> None:
        """One more array, whose columns are in order and different."""
        if self.limit is not None:
            run = _csr([on_disk(part) for part in (run.data, run.indices, run.indptr)], run.shape)
        for generation in self.generations:
            generation.append(run)
            if len(generation) < FAN_IN:
                return
            run = self._merge(generation)
            generation.clear()
        self.generations.append([run])

    def merged(self) -> sparse.csr_array:
        """The sum, of float32."""
        runs = [run for generation in self.generations for run in generation]
        return self._merge(runs, np.float32)

    def _merge(self, runs: list[sparse.csr_array], dtype: type = np.float64) -> sparse.csr_array:
        if self.limit is None:
            return functools.reduce(operator.add, runs).astype(dtype, copy=False)
        stored = np.zeros(runs[0].shape[0] + 1, np.int64)
        for run in runs:
            stored += run.indptr
        cuts = np.searchsorted(stored, np.arange(0, stored[-1], max(self.limit // 64, 1)))
        edges = np.unique([0, *cuts, len(stored) - 1]).tolist()
        starts = np.zeros(len(stored), np.int64)
        with tempfile.TemporaryFile() as data, tempfile.TemporaryFile() as indices:
            for begin, end in itertools.pairwise(edges):
                part = functools.reduce(operator.add, (_rows(run, begin, end) for run in runs))
                part.data.astype(dtype).tofile(data)
                part.indices.astype(np.int32).tofile(indices)
                starts[begin + 1 : end + 1] = starts[begin] + part.indptr[1:]
            data.flush()
            indices.flush()
            arrays = [
                np.memmap(file, kind, "r+", shape=int(starts[-1])) if starts[-1] else np.zeros(0, kind)
                for file, kind in ((data, dtype), (indices, np.int32))
            ]
        if starts[-1] < 2**31:
            starts = starts.astype(np.int32)  # SciPy has one kind of integer for starts and columns
        return _csr([*arrays, starts], runs[0].shape)


def _rows(run: sparse.csr_array, begin: int, end: int) -> sparse.csr_array:
    """Some rows of an array that lies on disk; SciPy's own slices would look at all of it."""
    starts = np.asarray(run.indptr[begin : end + 1])
    entries = slice(int(starts[0]), int(starts[-1]))
    shape = (end - begin, run.shape[1])
    return _csr([run.data[entries], run.indices[entries], starts - starts[0]], shape)


def _csr(arrays: list[np.ndarray], shape: tuple[int, int]) -> sparse.csr_array:
    matrix = sparse.csr_array(tuple(arrays), shape=shape, copy=False)
    matrix.has_canonical_format = True  # what is not looked at needs no reading
    return matrix
