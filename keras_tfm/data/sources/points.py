"""Clouds of points in files or as arrays, with labels or without."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_tfm.data.sources.image_files import kept_rows
from keras_tfm.data.sources.images import (
    asked_files,
    in_class_folders,
    in_order,
    label_of,
    not_of_a_kind,
    place_of,
    refuse_special,
    source_of,
)
from keras_tfm.data.sources.lines import Inputs, Paths, files_of
from keras_tfm.data.sources.rows import (
    ColumnNames,
    Columns,
    is_table,
    one_of_each,
    parse_layout,
    read_all,
    without_labels,
)
from keras_tfm.log import Bar
from keras_tfm.serving.examples import Refused
from keras_tfm.serving.point_files import cloud_of, moved, refuse_few, shape_in

CLOUDS = ("cloud", "points", "path", "file", "filename", "file_name", "filepath", "object_path", "shape")
LABELS = ("label", "labels", "class", "category", "target", "class_name")
KINDS = (
    "a folder with a folder of clouds per class (.ply, .off, .npz or text); or a .csv, .tsv or .jsonl table "
    "of paths and labels"
)


class LabelledPoints(NamedTuple):
    """Clouds and the indices (N,) of their labels in `class_names`.

    >>> clouds = keras_tfm.data.PointClouds([np.zeros((5, 3)), np.ones((9, 3))])
    >>> data = keras_tfm.data.LabelledPoints(clouds, np.array([1, 0]), class_names=["chair", "lamp"])
    >>> [data.class_names[label] for label in data.labels]
    ['lamp', 'chair']
    """

    clouds: "PointClouds"
    labels: np.ndarray
    class_names: list[str]


class PointClouds:
    """Clouds of several sizes, arrays (n, 3), in memory. An integer selects one, a slice or an array several.

    >>> clouds = keras_tfm.data.PointClouds([np.zeros((5, 3)), np.ones((9, 3)), np.eye(3)])
    >>> len(clouds), clouds.sizes, clouds[1].shape, clouds[np.array([2, 0])].sizes
    (3, [5, 9, 3], (9, 3), [3, 5])
    """

    dtype = np.dtype("float32")

    def __init__(self, clouds: Sequence[np.ndarray], places: Sequence[str] | None = None):
        self.clouds = [np.asarray(cloud, self.dtype) for cloud in clouds]
        self.places = [f"cloud {row}" for row in range(len(clouds))] if places is None else list(places)

    def __len__(self) -> int:
        return len(self.clouds)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(self.clouds)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, int | np.integer):
            return self.clouds[rows]
        chosen = range(len(self))[rows] if isinstance(rows, slice) else rows
        return PointClouds([self.clouds[row] for row in chosen], [self.places[row] for row in chosen])

    @property
    def sizes(self) -> list[int]:
        """How many points each cloud has."""
        return list(map(len, self.clouds))

    def place(self, row: int) -> str:
        """Where a cloud comes from: its path, or its index."""
        return self.places[row]

    def identity(self) -> Iterator[str]:
        """Strings that change if the clouds change."""
        for cloud in self.clouds:
            yield hashlib.sha256(cloud.tobytes()).hexdigest()


def read_labelled_points(
    paths: Paths,
    num_points: int,
    least_points: int = 1,
    columns: ColumnNames = None,
    normalize: bool = True,
) -> LabelledPoints:
    """Read labelled clouds from folders with a folder of them per class; or from .csv, .tsv or .jsonl tables
    with one column of paths, relative to the table, and one of labels, chosen by `columns`.

    `serving.point_files` says which files are read. From a mesh as many points are drawn as
    `cloud_of(path, num_points)` draws. With `normalize` clouds are moved to the origin. Classes are sorted by
    name, numbers by value. Clouds that cannot be read, or have fewer than `least_points`, are skipped, with a
    warning.

    Raises:
        DataError: if there are fewer than two classes, or a class has no cloud that can be read.

    >>> import pathlib
    >>> for name in ("chair", "lamp"):
    ...     pathlib.Path("shapes", name).mkdir(parents=True)
    ...     np.savetxt(f"shapes/{name}/0.xyz", np.eye(3))
    >>> data = keras_tfm.data.read_labelled_points("shapes", num_points=3)
    >>> data.clouds.sizes, data.labels.tolist(), data.class_names
    ([3, 3], [0, 1], ['chair', 'lamp'])
    """
    files = files_of(paths)
    for file in files:
        refuse_special(file)
    sources: list[Any] = []
    labels: list[Any] = []
    places: list[str] = []
    if all(map(os.path.isdir, files)):
        sources, labels = in_class_folders(files, "clouds")
        places = list(map(str, sources))
    elif all(map(is_table, files)):
        chosen = Columns(("cloud", "label"), one_of_each(CLOUDS, LABELS), parse_layout(columns))
        for row in read_all(files, chosen, "clouds"):
            sources.append(source_of(row, "a cloud of points"))
            labels.append(label_of(row))
            places.append(place_of(row, sources[-1]))
    else:
        raise not_of_a_kind(files, KINDS)
    clouds: list[np.ndarray] = []
    problems: dict[int, str] = {}
    with Bar(total=len(sources), desc="reading", unit="cloud") as bar:
        for number, source in enumerate(sources):
            try:
                points = cloud_of(source, num_points)
                refuse_few(points, least_points)
            except Refused as refused:
                problems[number], points = str(refused), np.zeros((1, 3))
            clouds.append(moved(points) if normalize else points)
            bar.update()
    found = PointClouds(clouds, places)
    rows = kept_rows(problems, found.place, np.array(labels, object), len(sources), "clouds")
    numbers, names = in_order(np.array(labels, object)[rows], files[0], "clouds")
    return LabelledPoints(found[rows], numbers, names)


def read_points(paths: Paths, columns: ColumnNames = None) -> Inputs:
    """Clouds to answer, each with its place: files, folders of them (and the folders in them, sorted by
    name), and rows of tables as in `read_labelled_points`. A .csv file of numbers is a cloud.
    """
    chosen = without_labels(("cloud", "label"), 1, one_of_each(CLOUDS), columns)
    files = files_of(paths)
    for file in files:
        refuse_special(file)
        if is_table(file) and not _is_cloud(file):
            for row in read_all(file, chosen, "clouds"):
                source = source_of(row, "a cloud of points")
                yield source, place_of(row, source)
        else:
            yield from asked_files(file, files, "clouds of points", shape_in)


def _is_cloud(path: str) -> bool:
    try:
        shape_in(path)
    except Refused:
        return False
    return True
