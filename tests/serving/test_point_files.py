"""Files of points: every kind gives the numbers that were written, or one line that says what is wrong."""

import io
import struct
import zipfile

import numpy as np
import pytest

from keras_tfm.serving.examples import Refused
from keras_tfm.serving.point_files import (
    cloud_of,
    moved,
    order_of,
    sampled,
    shape_in,
    surface_points,
)

POINTS = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0.5, 0.5, 2]])
FACES = [[0, 1, 2, 3], [0, 1, 4]]
TRIANGLES = [[0, 1, 2], [0, 2, 3], [0, 1, 4]]


def lines_of(rows):
    return "".join(" ".join(map(str, row)) + "\n" for row in rows)


def ply(format, with_faces=True, ending="\n"):
    """A file whose vertices have a colour between their coordinates."""
    names = ["x float", "red uchar", "y double", "z float"]
    header = ["ply", f"format {format} 1.0", "comment made by hand", f"element vertex {len(POINTS)}"]
    header += [f"property {kind} {name}" for name, kind in map(str.split, names)]
    faces = FACES if with_faces else []
    if with_faces:
        header += [
            f"element face {len(faces)}",
            "property uchar flag",
            "property list uchar int vertex_indices",
        ]
    data = (ending.join([*header, "end_header"]) + ending).encode()
    if format == "ascii":
        rows = [[x, 9, y, z] for x, y, z in POINTS] + [[1, len(face), *face] for face in faces]
        return data + lines_of(rows).encode()
    order = "<" if "little" in format else ">"
    data += b"".join(struct.pack(f"{order}fBdf", x, 9, y, z) for x, y, z in POINTS)
    return data + b"".join(struct.pack(f"{order}BB{len(face)}i", 1, len(face), *face) for face in faces)


def off(begin="OFF\n"):
    return (
        f"{begin}{len(POINTS)} {len(FACES)} 0 # counts\n\n"
        + lines_of([*x, 7] for x in POINTS)
        + lines_of([len(face), *face, 255, 0, 0] for face in FACES)
    ).encode()


def saved(save, *arrays, **named):
    stream = io.BytesIO()
    save(stream, *arrays, **named)
    return stream.getvalue()


CLOUDS = {
    "commas": "x,y,z,intensity\n" + "".join(f"{x},{y},{z},7\n" for x, y, z in POINTS),
    "other columns": "time,z,x,y\n" + "".join(f"1e3,{z},{x},{y}\n" for x, y, z in POINTS),
    "semicolons": "".join(f"{x}; {y}; {z}\r\n" for x, y, z in POINTS),
    "commas and spaces": "".join(f"{x}, {y}, {z} # 1,5;2\n" for x, y, z in POINTS),
    "two marks": "".join(f"{x:g},{y:g},{z:g};255,0,0\n" for x, y, z in POINTS),
    "spaces": "# x y z\n\n" + lines_of(POINTS),
    "a name for each column": "//X Y Z R\n" + lines_of([*x, 3] for x in POINTS),
    "ply without faces": ply("ascii", with_faces=False),
    "binary ply without faces": ply("binary_little_endian", with_faces=False),
    "npz": saved(np.savez, points=np.hstack([POINTS, POINTS]), labels=np.arange(3)),
    "npz of one array": saved(np.savez_compressed, other=POINTS.astype("float32")),
    "npy": saved(np.save, POINTS),
    "off without faces": b"OFF\n5 0 0\n" + lines_of(POINTS).encode(),
}
MESHES = {
    "ascii": ply("ascii"),
    "little": ply("binary_little_endian"),
    "big": ply("binary_big_endian", ending="\r\n"),
    "off": off(),
    "off on one line": off("OFF"),
    "off with colours": off("COFF\n"),
}


@pytest.mark.parametrize("name", CLOUDS)
def test_points_are_read(name, tmp_path):
    data = CLOUDS[name] if isinstance(CLOUDS[name], bytes) else CLOUDS[name].encode()
    (tmp_path / "file").write_bytes(data)
    for source in (data, tmp_path / "file", str(tmp_path / "file")):
        points = cloud_of(source, num_points=8)
        assert points.dtype == np.float64
        np.testing.assert_array_equal(points, POINTS)


@pytest.mark.parametrize("name", MESHES)
def test_faces_are_read_as_fans_of_triangles(name):
    vertices, triangles = shape_in(MESHES[name])
    np.testing.assert_array_equal(vertices, POINTS)
    assert triangles.tolist() == TRIANGLES
    np.testing.assert_array_equal(cloud_of(MESHES[name], 3), surface_points(POINTS, np.array(TRIANGLES), 6))


def of_shape(*shape):
    """A .npy file of 24 bytes of numbers whose header states this shape."""
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    return saved(np.lib.format.write_array_header_1_0, header) + bytes(24)


def zipped(data):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("points.npy", data)
    return stream.getvalue()


MESH = ply("binary_little_endian").replace(b"list uchar", b"list char")
ONE_FACE = b"\x01\x04" + struct.pack("<4i", *FACES[0])  # its flag, its length, its vertices


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "expected points, the file has none"),
        (b"x y z\n", "expected points, the file has none"),
        (b"1 2\n", "line 1: expected three numbers or more, got others"),
        (b"1 2 3\n\n1 2\n", "line 3: expected 3 numbers, got others"),
        (b"1,5;2,5;3,5\n", "line 1: expected decimal points, got decimal commas"),
        (b"x\ty\tz\n1\t2\t-3,5\n", "line 2: expected decimal points, got decimal commas"),
        (b"1 2 3\n1 b 3\n", "line 2: expected 3 numbers, got others"),
        (b"1 2 nan\n", "point 0 is (1.0, 2.0, nan)"),
        (b"1 2 3\n1 inf 3\n", "point 1 is (1.0, inf, 3.0)"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "expected a whole file of points"),
        (b"OFF\n3 0 0\n1 2 3\n", "as many vertices and faces as the file says, 3 and 0, in 1 lines"),
        (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 9\n", "expected faces of vertices 0 to 2"),
        (b"OFF\n", "expected a whole file of points"),
        (ply("ascii").split(b"end_header")[0], "expected end_header"),
        (ply("ascii").replace(b"ascii", b"utf"), "of the format ascii, binary_little_endian"),
        (ply("ascii").replace(b"double y", b"double w"), "there is no y"),
        (ply("ascii").replace(b"uchar red", b"bytes red"), "expected a whole file of points"),
        (ply("ascii").replace(b"vertex 5", b"vertex -5"), "expected a number of rows of vertex, got '-5'"),
        (ply("ascii")[:-10], "there are fewer"),
        (ply("binary_big_endian")[:-3], "expected a whole file of points"),
        (ply("binary_big_endian", with_faces=False)[:-3], "expected a whole file of points"),
        (MESH.replace(ONE_FACE, b"\x01\xff" + ONE_FACE[2:]), "a list of -1 values"),
        (ply("ascii").replace(b"1 4 0 1 2 3", b"1 -4 0 1 2 3"), "a list of -4 values"),
        (of_shape(10**13, 3), "expected a whole file of points"),
        (zipped(of_shape(10**13, 3)), "expected a whole file of points"),
        (CLOUDS["npz"][:-30], "expected a whole file of points"),
        (saved(np.savez, a=POINTS, b=POINTS), "expected an array of points (N, 3 or more)"),
        (saved(np.savez, points=POINTS[:, :2]), "got float64 (5, 2)"),
        (saved(np.save, np.array([["a", "b", "c"]])), "expected an array of points"),
        (saved(np.save, np.array([{}] * 3)), "expected a whole file of points"),  # nothing is unpickled
        (saved(np.save, np.zeros((0, 3))), "expected points, there are none"),
    ],
)
def test_what_is_wrong_is_one_line(data, problem):
    with pytest.raises(Refused) as refused:
        cloud_of(data, 4)
    assert problem in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        (np.zeros((3, 2)), r"expected points, an array \(N, 3\)"),
        ([[1, 2, 3], [1]], "expected points, an array"),
        (np.zeros((0, 3)), "there are none"),
        (np.array([[0, 0, np.nan]]), "point 0 is"),
        (5, "expected points"),
        ("nowhere.ply", "cannot be read: No such file"),
        ("/dev/null", "cannot be read"),
    ],
)
def test_what_is_no_cloud_is_refused(example, problem):
    with pytest.raises(Refused, match=problem):
        cloud_of(example, 4)


def test_points_of_a_mesh_lie_on_its_surface_evenly():
    points = surface_points(POINTS, np.array(TRIANGLES), 4_000)
    on_square = np.abs(points[:, 2]) < 1e-12
    area = np.sqrt(1 + 0.25 / 4) if False else np.linalg.norm(np.cross([1, 0, 0], [0.5, 0.5, 2])) / 2
    assert abs(on_square.mean() - 1 / (1 + area)) < 0.03  # the square's area is 1
    left = points[on_square, 0] < 0.5
    assert abs(left.mean() - 0.5) < 0.04
    flat = surface_points(POINTS * [1, 0, 0], np.array(TRIANGLES), 100)  # no area at all
    assert np.isfinite(flat).all() and np.ptp(flat[:, 0]) > 0.5


def test_points_are_chosen_in_one_order_and_repeated_in_turn():
    points = np.arange(30.0).reshape(10, 3)
    order = order_of(10, 4)
    assert sorted(order) == list(range(10)) != order.tolist()
    np.testing.assert_array_equal(sampled(points, 4), points[order[:4]])
    np.testing.assert_array_equal(sampled(points, 10), points)
    np.testing.assert_array_equal(sampled(points, 25)[:10], points[order])
    np.testing.assert_array_equal(sampled(points, 25)[:5], sampled(points, 25)[20:])
    far = np.array([[4e7, 5e6, 100.0], [4e7 + 0.25, 5e6, 100.0]])
    np.testing.assert_array_equal(moved(far), [[0, 0, 0], [0.25, 0, 0]])
