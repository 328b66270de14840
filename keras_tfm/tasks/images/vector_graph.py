"""A graph of vectors, by which those nearest to another are found without comparing all of them.

It is HNSW (Malkov and Yashunin 2018, "Efficient and robust approximate nearest neighbor search using
Hierarchical Navigable Small World graphs") by Faiss, the extra `search`. A search follows the edges to ever
nearer vectors, and misses a few of the nearest.
"""

import functools
import importlib
import logging
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_tfm.training.folder import Path, new_file

LOG = logging.getLogger(__name__)

NUM_EDGES = 32  # of a vector
CANDIDATES = {"making": 100, "search": 200}  # the vectors that are kept in view while the graph is followed


@functools.cache
def faiss() -> Any | None:
    """The module; None, with a warning the first time, if it cannot be imported."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        LOG.warning(
            "The index has graphs, but Faiss is not installed, so a search compares all vectors: "
            'pip install "keras-tfm[search]"'
        )
        return None


def needed_faiss() -> Any:
    """The module; ImportError, saying what brings it, where it is missing."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise ImportError('A graph of vectors needs Faiss: pip install "keras-tfm[search]"') from None


def write_graph(path: Path, parts: Iterable[np.ndarray], width: int) -> None:
    """Write the graph of the vectors (N, E) of all `parts`; ImportError without Faiss."""
    module = needed_faiss()
    graph = module.IndexHNSWFlat(width, NUM_EDGES, module.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction = CANDIDATES["making"]
    for part in parts:
        graph.add(np.ascontiguousarray(part))
    with new_file(path) as work:
        module.write_index(graph, str(work))


class VectorGraph:
    """The graph in the file `path`, of `count` vectors of `width` numbers; ValueError for any other file.

    The file, which holds the vectors too, is mapped into memory and read where a search goes.
    """

    def __init__(self, path: Path, count: int, width: int):
        module: Any = faiss()
        try:
            graph = module.read_index(str(path), module.IO_FLAG_MMAP_IFC)
        except RuntimeError:
            raise ValueError(f"{path}: expected a graph of vectors by Faiss") from None
        found = type(graph).__name__, graph.ntotal, graph.d
        if found != ("IndexHNSWFlat", count, width):
            expected = f"a graph of {count:,} vectors of {width} numbers"
            raise ValueError(f"{path}: expected {expected}, got {found[0]} of {found[1]:,} of {found[2]}")
        self._graph = graph

    def search(self, vector: np.ndarray, top: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of up to `top` of the vectors nearest to `vector` (E,), and their inner products with it.

        Only rows for which `allowed` (N,) is True are found.
        """
        module: Any = faiss()
        options = {"efSearch": max(CANDIDATES["search"], 2 * top)}
        if not allowed.all():
            options["sel"] = module.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        products, rows = self._graph.search(
            vector.astype("float32")[None], top, params=module.SearchParametersHNSW(**options)
        )
        is_found = rows[0] >= 0
        return rows[0][is_found], products[0][is_found]
