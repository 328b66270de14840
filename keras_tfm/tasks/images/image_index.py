"""An index of images on disk: their vectors, searched by the vector of a text or of another image.

A folder holds index.json, which describes the model that made the vectors, and one part for each time that
images were added: images-NUMBER-….npy, (N, E) in float32, and a .jsonl file with one path per line. The .npy
is written last, so that an interrupted run leaves no half of a part. A graph-FIRST-END-….faiss connects the
vectors of these rows, counted over all parts. Existing files are never rewritten.
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_tfm.configs import Config, Size, brief, parse_json
from keras_tfm.tasks.images.vector_graph import VectorGraph, faiss, write_graph
from keras_tfm.training.folder import MARK, Path, new_file, new_folder
from keras_tfm.training.safetensors import CheckpointError, read_json
from keras_tfm.version import __version__

NAME = "index.json"
LEAST = 10_000  # vectors of a graph: fewer are compared as quickly as a graph is followed


@dataclasses.dataclass(frozen=True)
class IndexConfig(Config):
    """What made the vectors of an index.

    Args:
        model: the folder or hub id of the model.
        fingerprint: a digest of the model's configuration and weights.
        width: the length of the vectors.
    """

    model: str
    fingerprint: str
    width: Size


class Image(NamedTuple):
    """An image's file as it was when its vector was computed."""

    path: str
    size: int
    modified: int  # in nanoseconds

    @classmethod
    def at(cls, path: Path) -> Self:
        """The file as it is now; OSError if it cannot be read."""
        status = os.stat(path)
        return cls(os.path.abspath(path), status.st_size, status.st_mtime_ns)


class Part(NamedTuple):
    """Vectors (N, E) that were added together: the file's name, and which row of the index is their first."""

    name: str
    first: int
    vectors: np.ndarray


class ImageIndex:
    """An index in a `folder` that `create` made: images and their vectors of length 1. ValueError if it is
    damaged.
    """

    def __init__(self, folder: Path):
        self.folder = pathlib.Path(folder)
        path = self.folder / NAME
        if not path.is_file():
            raise ValueError(f"{folder}: no index of images, it has no {NAME}")
        try:
            content = {name: value for name, value in read_json(path).items() if name != MARK}
            self.config: IndexConfig = IndexConfig.from_json(content)
        except CheckpointError as error:
            raise ValueError(str(error)) from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        self.images: list[Image] = []
        self._parts: list[Part] = []
        self._rows: dict[str, int] = {}  # the last row of each path: a file may have changed since
        for part in sorted(self.folder.glob("images-*.npy")):
            self._take(_read_images(part.with_suffix(".jsonl")), _read_vectors(part), part)
        self._graphs: list[tuple[VectorGraph, slice]] = []  # of the rows from 0 on, one behind the other
        for file in sorted(self.folder.glob("graph-*.faiss")):
            if faiss() is None:
                break
            self._take_graph(file)

    @classmethod
    def create(cls, folder: Path, config: IndexConfig) -> Self:
        """An empty index in a new `folder`; FileExistsError if the folder exists."""
        with new_folder(folder) as work:
            content = {MARK: __version__, **dataclasses.asdict(config)}
            (work / NAME).write_text(json.dumps(content, indent=2) + "\n", "utf-8")
        return cls(folder)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, image: Image) -> bool:
        """Whether the index has the file in its present state."""
        row = self._rows.get(image.path)
        return row is not None and self.images[row] == image

    def check(self, config: IndexConfig) -> None:
        """Raise ValueError if vectors of this model cannot be compared with the vectors in the index."""
        if config.width != self.config.width:
            problem = f"has vectors of {self.config.width} numbers, the model makes {config.width}"
        elif config.fingerprint != self.config.fingerprint:
            problem = f"was made by another model, {self.config.model}, or by other weights of it"
        else:
            return
        raise ValueError(f"{self.folder}: the index {problem}: make a new one")

    def add(self, images: Sequence[Image], vectors: np.ndarray) -> None:
        """Add images with their vectors (N, E) as a new part; ValueError for vectors of another width."""
        vectors = np.ascontiguousarray(vectors, "float32")
        if vectors.shape != (len(images), self.config.width):
            expected = (len(images), self.config.width)
            raise ValueError(f"`vectors` must have the shape {expected}; it is {vectors.shape}.")
        refuse_infinite(vectors, images)
        if not len(images):
            return
        part = self.folder / f"images-{len(self._parts):06d}-{secrets.token_hex(4)}.npy"
        with new_file(part.with_suffix(".jsonl")) as work:
            lines = (json.dumps(image._asdict()) + "\n" for image in images)
            work.write_text("".join(lines), "utf-8")
        with new_file(part) as work, open(work, "wb") as stream:
            np.save(stream, vectors, allow_pickle=False)
        self._take(list(images), vectors, part)

    @property
    def num_connected(self) -> int:
        """How many rows, from the first on, have a graph that a search can follow."""
        return self._graphs[-1][1].stop if self._graphs else 0

    def connect(self, least: int = LEAST) -> int:
        """Write a graph of the rows that have none, if there are `least` or more; how many it connects.

        Raises ImportError if Faiss, the extra `search`, is not installed.
        """
        first, end = self.num_connected, len(self.images)
        if end - first < least:
            return 0
        path = self._graph_path(first, end)
        write_graph(path, self._parts_from(first), self.config.width)
        self._take_graph(path)
        return end - first

    def search(self, vector: np.ndarray, top: int = 5, exact: bool = False) -> list[tuple[str, float]]:
        """The `top` nearest images as (path, cosine similarity), nearest first. `vector` (E,) has length 1.

        Rows that have a graph are found by it, which misses a few, unless the search is to be `exact`.
        """
        if vector.shape != (self.config.width,):
            raise ValueError(f"`vector` must have the shape {(self.config.width,)}; it is {vector.shape}.")
        if not np.isfinite(vector).all():
            raise ValueError(
                f"`vector` must be finite numbers; entry {int(np.isfinite(vector).argmin())} is not."
            )
        if not self._rows:
            return []
        rows, cosines = self._candidates(vector.astype("float32"), top, exact)
        is_current = self._is_current[rows]
        rows, cosines = rows[is_current], cosines[is_current]
        if not np.isfinite(cosines).all():
            path = self.images[rows[np.isfinite(cosines).argmin()]].path
            raise ValueError(f"{self.folder}: the vector of {path} is not finite: make a new index")
        if not (top := min(top, len(rows))):
            return []
        best = np.argpartition(cosines, -top)[-top:]
        best = best[np.argsort(-cosines[best], kind="stable")]
        return [(self.images[rows[place]].path, float(cosines[place])) for place in best]

    def _candidates(self, vector: np.ndarray, top: int, exact: bool) -> tuple[np.ndarray, np.ndarray]:
        """Rows and their cosines: rows that a graph finds near `vector`, and all that no graph connects."""
        graphs = [] if exact else self._graphs
        first = self.num_connected if graphs else 0
        rows = [np.arange(first, len(self.images))]
        cosines = [part @ vector for part in self._parts_from(first)]
        for graph, connected in graphs:
            near, products = graph.search(vector, top, self._is_current[connected])
            rows.append(connected.start + near)
            cosines.append(products)
        return np.concatenate(rows), np.concatenate(cosines)

    def _parts_from(self, first: int) -> list[np.ndarray]:
        """The parts from row `first` on, where one of them begins."""
        return [part.vectors for part in self._parts if part.first >= first]

    @functools.cached_property
    def _is_current(self) -> np.ndarray:
        """(N,), False for a row whose image has a newer one, since its file changed."""
        is_current = np.zeros(len(self.images), bool)
        is_current[list(self._rows.values())] = True
        return is_current

    def _graph_path(self, first: int, end: int) -> pathlib.Path:
        """The file of the graph of these rows.

        Its name has a digest of their parts' names: a process that adds images at the same time may put a
        part of its own between them, after which the rows are others.
        """
        names = "".join(part.name for part in self._parts if first <= part.first < end)
        digest = hashlib.sha256(names.encode()).hexdigest()[:8]
        return self.folder / f"graph-{first:09d}-{end:09d}-{digest}.faiss"

    def _take_graph(self, path: pathlib.Path) -> None:
        """Use a graph that begins where the others end, and of rows that are as they were."""
        first, match = self.num_connected, re.fullmatch(r"graph-\d+-(\d+)-\w+", path.stem)
        end = int(match[1]) if match else 0
        if first < end <= len(self.images) and path == self._graph_path(first, end):
            self._graphs.append((VectorGraph(path, end - first, self.config.width), slice(first, end)))

    def _take(self, images: list[Image], vectors: np.ndarray, path: pathlib.Path) -> None:
        if vectors.shape != (len(images), self.config.width):
            expected = f"{len(images)} vectors of {self.config.width} numbers"
            raise ValueError(f"{path}: expected {expected}, got the shape {vectors.shape}")
        first = len(self.images)
        self._rows |= {image.path: row for row, image in enumerate(images, start=first)}
        self._parts.append(Part(path.name, first, vectors))
        self.images += images
        self.__dict__.pop("_is_current", None)  # computed from the rows


def refuse_infinite(vectors: np.ndarray, images: Sequence[Image]) -> None:
    """Raise ValueError for a vector of `images` that has entries which are no finite numbers."""
    is_finite = np.isfinite(vectors).all(axis=1)
    if not is_finite.all():
        row = int(is_finite.argmin())
        raise ValueError(
            f"`vectors` must be finite numbers; the vector of {images[row].path}, row {row}, is not."
        )


def config_of(task: Any, model: Path) -> IndexConfig:
    """The description of an index made by `task`, an `ImageTextMatcher` from the folder or hub id `model`."""
    digest = hashlib.sha256()
    described = task.describe_model() | {"head": None}  # the head's initial values do not matter
    prepared = dataclasses.asdict(task.preprocessing)
    if not prepared["rounds_crop"]:
        del prepared["rounds_crop"]  # indices of earlier versions do not have it
    about = [described, prepared, task.tokenizer.tokens]
    if task.seen == "videos":
        about.append(dataclasses.asdict(task.sampling))
    digest.update(json.dumps(about, sort_keys=True).encode())
    for weight in task.model.weights:
        digest.update(np.ascontiguousarray(weight.numpy()).tobytes())
    path = os.path.abspath(model) if os.path.exists(model) else os.fspath(model)
    return IndexConfig(path, digest.hexdigest(), task.width)


def _read_images(path: pathlib.Path) -> list[Image]:
    """The lines of a part's .jsonl file; ValueError if they are malformed."""
    try:
        return list(map(_image, path.read_text("utf-8").splitlines()))
    except (ValueError, TypeError, OSError) as error:
        raise ValueError(f"{path}: expected a path, a size and a time a line ({error})") from None


def _image(line: str) -> Image:
    content = parse_json(line)
    image = Image(**content)
    if [type(value) for value in image] != [str, int, int]:
        raise ValueError(f"got {brief(content)}")
    return image


def _read_vectors(path: pathlib.Path) -> np.ndarray:
    """The array of a part, memory-mapped; ValueError for another kind of array."""
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: expected vectors in NumPy's format ({error})") from None
    if vectors.ndim != 2 or vectors.dtype != np.float32:
        raise ValueError(f"{path}: expected vectors in float32, got {vectors.dtype} {vectors.shape}")
    return vectors


def unknown_images(index: ImageIndex, paths: Iterable[Path]) -> list[Image]:
    """The files among `paths` that the index does not have in their present state; missing files are
    skipped.
    """
    found = []
    for path in paths:
        try:
            image = Image.at(path)
        except OSError:
            continue
        if image not in index:
            found.append(image)
    return found
