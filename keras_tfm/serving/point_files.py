"""Files of points, read with NumPy alone, and the choice of as many points as a model reads.

    .ply           ascii or binary: vertices with x, y and z among their numbers, and faces
    .off           vertices and faces
    .npz, .npy     an array (N, 3 or more): the only one, or the one called points
    .csv, .xyz, …  lines of x, y, z and further numbers, with commas, semicolons or white space between; a
                   first line may hold names, and # begins a comment

A file's content says which it is, whatever its name. A file with faces is a mesh, whose points are drawn
uniformly from its surface. The order in which points are chosen is drawn from a seed and the number of points
alone, so that training, tasks and exports choose the same ones.
"""

import io
import os
import re
import zipfile
import zlib
from typing import Any

import numpy as np

from .examples import Refused, check, not_cloud
from .image_headers import regular

MOST_BYTES = 1 << 31  # of a file
SURFACE = 2  # how many times as many points as a model reads are drawn from a mesh
SEED = 0
NAMES = ("points", "xyz", "vertices", "coordinates", "pc")  # of arrays in .npz files
AXES = ("x", "y", "z")
TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4",
    "uint32": "u4", "float32": "f4", "float64": "f8",
}  # fmt: skip
ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}


def cloud_of(source, num_points):
    """The points (N, 3), float64, of a file, by its path or bytes, or of an array; of a mesh `SURFACE` times
    `num_points` of its surface. Raises `Refused`.
    """
    check(source, not_cloud)
    if not (isinstance(source, str | bytes) or hasattr(source, "__fspath__")):
        return np.asarray(source, "float64")
    vertices, triangles = shape_in(source)
    if triangles is None:
        return vertices
    return surface_points(vertices, triangles, SURFACE * num_points)


def refuse_few(points, least_points):
    """Raise `Refused` for fewer than `least_points`."""
    if len(points) < least_points:
        raise Refused(
            f"expected {least_points} points or more, as many as the neighbours that the model looks at; got "
            f"{len(points)}"
        )


def shape_in(source):
    """(Vertices (N, 3), float64, triangles (F, 3) or None) of a file, by its path or bytes; `Refused` for one
    that cannot be read, is damaged, has no points, or a coordinate that is not finite.
    """
    data = _content(source)
    read = next((read for begin, read in READERS if re.match(begin, data)), _text)
    try:
        vertices, triangles = read(data)
    except Refused:
        raise
    except (
        ValueError,
        KeyError,
        IndexError,
        OverflowError,
        EOFError,
        MemoryError,  # NumPy's for an array of the size that a header states
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        problem = " ".join(str(error).split())[:150]
        raise Refused(f"expected a whole file of points, .ply, .off, .npz or text: {problem}") from None
    check(vertices, not_cloud)
    if (
        triangles is not None
        and triangles.size
        and not 0 <= triangles.min() <= triangles.max() < len(vertices)
    ):
        raise Refused(f"expected faces of vertices 0 to {len(vertices) - 1}, got others")
    return vertices, triangles if triangles is not None and len(triangles) else None


def surface_points(vertices, triangles, count, seed=SEED):
    """`count` points (count, 3) drawn uniformly from the surface of `triangles` (F, 3), indices of `vertices`
    (N, 3). Where all triangles are flat lines, each is as likely as any other.

    Osada et al. 2002, "Shape Distributions", eq. 1.
    """
    rng = np.random.default_rng(seed)
    corners = vertices[triangles]  # (F, 3, 3)
    sides = corners[:, 1:] - corners[:, :1]
    areas = np.linalg.norm(np.cross(sides[:, 0], sides[:, 1]), axis=-1)
    ends = np.cumsum(areas if areas.sum() > 0 else np.ones_like(areas))
    first, second, which = rng.random((3, count))
    chosen = np.minimum(np.searchsorted(ends, which * ends[-1], "right"), len(ends) - 1)
    root = np.sqrt(first)
    weights = np.stack([1 - root, root * (1 - second), root * second], axis=-1)  # (count, 3)
    return np.einsum("nc,ncd->nd", weights, corners[chosen])


def order_of(count, num_points):
    """The order in which `num_points` of `count` points are chosen: a permutation (count,) drawn from `SEED`;
    all of them stay as they are.
    """
    if count == num_points:
        return np.arange(count)
    return np.argsort(np.random.default_rng(SEED).random(count), kind="stable")


def sampled(points, num_points):
    """`num_points` of the points (N, 3) in their order; fewer ones are repeated in turn."""
    return points[order_of(len(points), num_points)[np.arange(num_points) % len(points)]]


def moved(points):
    """Points as seen from the first of them, float32: a map's coordinates would lose their digits there."""
    return (points - points[:1]).astype("float32")


def _content(source):
    if isinstance(source, bytes):
        return source
    try:
        with open(os.fspath(source), "rb", opener=regular) as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise Refused(f"expected a file of {MOST_BYTES:,} bytes at most, it is larger")
    return data


def _arrays(data):
    """.npz and .npy."""
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise Refused(f"expected arrays of {MOST_BYTES:,} bytes at most, they are larger")
    found = np.load(io.BytesIO(data), allow_pickle=False)
    if isinstance(found, np.ndarray):
        arrays = {"points": found}
    else:
        arrays = {name: found[name] for name in found.files if name in NAMES or len(found.files) == 1}
    array: Any = next((arrays[name] for name in [*NAMES, *arrays] if name in arrays), np.zeros(0))
    if array.ndim != 2 or array.shape[1] < 3 or array.dtype.kind not in "iuf":
        raise Refused(f"expected an array of points (N, 3 or more), got {array.dtype} {array.shape}")
    return array[:, :3].astype("float64"), None


def _text(data):
    """Lines of numbers, the first three of which are x, y and z, or columns of these names."""
    lines = [line.split("#")[0] for line in data.decode("utf-8-sig").splitlines()]
    rows = [(number, re.sub("[,;]", " ", line).split()) for number, line in enumerate(lines, start=1)]
    rows = [(number, row) for number, row in rows if row]
    places = [0, 1, 2]
    names = [name.strip("\"'/").lower() for name in rows[0][1]] if rows else []
    if names and not any(map(_is_number, names)):
        places = [names.index(name) for name in AXES] if set(AXES) <= set(names) else places
        rows = rows[1:]
    if not rows:
        raise Refused("expected points, the file has none")
    number, width = rows[0][0], len(rows[0][1])
    fields = re.split(r"[;\s]+", lines[number - 1].strip())
    if len(fields) >= 3 and any(re.fullmatch(r"[-+]?\d+,\d+", field) for field in fields):
        raise Refused(f"line {number}: expected decimal points, got decimal commas")
    for number, row in rows:
        if len(row) != width or width < 3 or not all(_is_number(row[place]) for place in places):
            expected = f"{width} numbers" if width >= 3 else "three numbers or more"
            # Without its words: a server would show whoever names a file what is in it.
            raise Refused(f"line {number}: expected {expected}, got others")
    return np.array([[row[place] for place in places] for _, row in rows]).astype("float64"), None


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def _off(data):
    """OFF, also with normals, colours or texture at its vertices."""
    text = re.sub(OFF, b"", re.sub(rb"#[^\n]*", b"", data), count=1).decode("latin-1")  # "OFF8 6 0" is common
    lines = [line.split() for line in text.splitlines() if line.split()]
    count, num_faces = map(int, lines[0][:2])
    if len(lines) <= count + num_faces or count < 0 or num_faces < 0:
        got = f"{count} and {num_faces}, in {len(lines) - 1} lines"
        raise Refused(f"expected as many vertices and faces as the file says, {got}")
    vertices = np.array([line[:3] for line in lines[1 : count + 1]]).astype("float64").reshape(-1, 3)
    faces = [line[1 : int(line[0]) + 1] for line in lines[count + 1 : count + 1 + num_faces]]
    return vertices, _triangles([[int(place) for place in face] for face in faces])


def _triangles(polygons):
    """Polygons, lists of indices, as fans of triangles (F, 3)."""
    fans = [[face[0], *face[i : i + 2]] for face in polygons for i in range(1, len(face) - 1)]
    return np.array(fans, "int64").reshape(-1, 3)


def _ply(data):
    """PLY 1.0: a header of elements and their properties, and one element after another."""
    end = re.search(rb"^end_header\r?\n", data, re.MULTILINE)
    if end is None:
        raise Refused("expected end_header in a .ply file, there is none")
    lines = [line.split() for line in data[: end.start()].decode("latin-1").splitlines()]
    format = next((line[1] for line in lines if line[0:1] == ["format"] and line[1:]), None)
    if format not in ORDERS:
        raise Refused(f"expected a .ply file of the format {', '.join(ORDERS)}, got {format!r:.40}")
    elements: list[tuple[str, int, list]] = []
    for line in lines:
        if line[0:1] == ["element"]:
            if not line[2].isdecimal():
                raise Refused(f"expected a number of rows of {line[1]}, got {line[2]!r:.40}")
            elements.append((line[1], int(line[2]), []))
        elif line[0:1] == ["property"]:
            elements[-1][2].append((line[-1], [TYPES[kind] for kind in line[1:-1] if kind != "list"]))
    read = _words_of(data[end.end() :]) if format == "ascii" else _values_of(data, end.end(), ORDERS[format])
    vertices, triangles = np.zeros((0, 3)), None
    for name, count, properties in elements:
        columns = read(count, properties)
        if name == "vertex":
            if missing := [axis for axis in AXES if axis not in columns]:
                raise Refused(f"expected vertices with x, y and z, there is no {missing[0]}")
            vertices = np.stack([np.array(columns[axis]) for axis in AXES], axis=-1).astype("float64")
        elif name == "face":
            polygons: Any = next((columns[key] for key in columns if key.startswith("vertex_ind")), [])
            triangles = _triangles([list(map(int, polygon)) for polygon in polygons])
            break  # what follows is not read
    return vertices, triangles


def _words_of(data):
    """A function that reads the next `count` rows of `properties` of an ascii file: {name: column}."""
    lines = iter([line for line in data.decode("latin-1").splitlines() if line.strip()])

    def read(count, properties):
        columns: dict[str, list] = {name: [] for name, _ in properties}
        for _ in range(count):
            if (line := next(lines, None)) is None:
                raise Refused("expected as many rows as the header of the .ply file says, there are fewer")
            words = line.split()
            for name, kinds in properties:
                size = 1 if len(kinds) == 1 else _length(words.pop(0))
                values = [float(words.pop(0)) for _ in range(size)]
                columns[name].append(values[0] if len(kinds) == 1 else values)
        return columns

    return read


def _values_of(data, place, order):
    """A function that reads the next `count` rows of `properties` of a binary file: {name: column}."""

    def take(kind, count=1):
        nonlocal place
        values = np.frombuffer(data, order + kind if isinstance(kind, str) else kind, count, place)
        place += values.nbytes
        return values

    def read(count, properties):
        if all(len(kinds) == 1 for _, kinds in properties):
            row = np.dtype([(name, order + kinds[0]) for name, kinds in properties])
            found = take(row, count)
            return {name: found[name] for name, _ in properties}
        columns: dict[str, list] = {name: [] for name, _ in properties}
        for _ in range(count):
            for name, kinds in properties:
                values = take(kinds[-1], 1 if len(kinds) == 1 else _length(take(kinds[0])[0]))
                columns[name].append(values[0] if len(kinds) == 1 else values)
        return columns

    return read


def _length(number):
    """The length of a list; ValueError for a negative one."""
    if (length := int(number)) < 0:
        raise ValueError(f"a list of {length} values")
    return length


OFF = rb"\s*(ST)?C?N?OFF"
READERS = ((rb"ply\r?\n", _ply), (OFF, _off), (rb"PK\x03\x04|\x93NUMPY", _arrays))
