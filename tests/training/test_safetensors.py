"""Files of weights: cut, damaged and hostile ones are refused, each with the fault by name."""

import json
import os
import struct

import numpy as np
import pytest

from keras_tfm.training.safetensors import CheckpointError, let_go, read_json, read_shapes, read_tensors
from keras_tfm.training.weights import write_tensors

VALUES = np.arange(6, dtype="float32").reshape(2, 3)


def entry(begin, end, shape=(2, 3), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def write(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_what_safetensors_writes_is_read(tmp_path):
    tensors = {
        name: np.arange(6).reshape(2, 3).astype(name)
        for name in ("float64", "float32", "float16", "int64", "int32", "int16", "int8")
    }
    tensors |= {f"u{name}": x.astype(f"u{name}") for name, x in tensors.items() if name.startswith("int")}
    tensors |= {"bool": VALUES > 2, "scalar": np.float32(3), "empty": np.zeros((0, 7), "float32")}
    write_tensors(tensors, tmp_path / "file", {"key": "text"})
    read, metadata = read_tensors(tmp_path / "file")
    assert metadata == {"key": "text"}
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(read[name], tensor, strict=True)


def test_bfloat16_is_read_as_the_float32_that_it_is(tmp_path):
    words = np.array([0x3F80, 0xC000, 0x0001, 0x7F7F], "<u2")  # 1, -2, the least and the largest
    file = write(tmp_path / "file", {"x": entry(0, 8, (4,), "BF16")}, words.tobytes())
    x = read_tensors(file)[0]["x"]
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, [1, -2, 2.0**-133, (2 - 2.0**-7) * 2.0**127])


def test_shapes_are_those_of_the_tensors(tmp_path):
    tensors = {"a": np.zeros((2, 3), "float32"), "b": np.zeros((), "int8"), "c": np.zeros((0, 4), "float16")}
    write_tensors(tensors, tmp_path / "file")
    assert read_shapes(tmp_path / "file") == {"a": ("F32", (2, 3)), "b": ("I8", ()), "c": ("F16", (0, 4))}


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="needs Linux's /proc")
def test_pages_that_are_let_go_are_read_again(tmp_path):
    values = np.arange(1 << 21, dtype="float32")
    write_tensors({"a": values, "b": values}, path := tmp_path / "file")
    tensors, _ = read_tensors(path)

    def resident():
        """The KiB of the file in this process's memory."""
        with open("/proc/self/smaps", encoding="utf-8") as lines:
            text = lines.read().partition(str(path))[2]
        return int(text.partition("Rss:")[2].split()[0])

    assert tensors["a"].sum() == tensors["b"].sum() and resident() >= 16_000
    let_go([*tensors.values(), np.ones(3)])
    assert resident() == 0
    np.testing.assert_array_equal(tensors["b"], values)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "file"
    write_tensors({"x": VALUES}, path)
    whole = path.read_bytes()
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError):
            read_tensors(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError, match="expected 24 bytes of tensors, got 25"):
        read_tensors(path)


def test_a_header_changed_anywhere_is_refused_or_means_no_more_bytes(tmp_path):
    path = tmp_path / "file"
    write_tensors({"x": VALUES, "y": VALUES}, path)
    whole = path.read_bytes()
    for place in range(len(whole) - 2 * VALUES.nbytes):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                tensors, _ = read_tensors(path)
            except CheckpointError as error:
                assert error.path == path and error.expected and error.got
            else:
                assert sum(tensor.nbytes for tensor in tensors.values()) == 2 * VALUES.nbytes


DATA = VALUES.tobytes()
TWICE = b'{"x": %s, "x": %s}' % ((json.dumps(entry(0, 24)).encode(),) * 2)


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        ({"x": entry(0, 24), "y": entry(0, 24)}, DATA, "y: expected 24 bytes from 24, got the bytes from 0"),
        ({"x": entry(0, 24), "y": entry(12, 36)}, DATA + DATA[:12], "y: expected 24 bytes from 24"),
        ({"x": entry(0, 24), "y": entry(28, 52)}, DATA + DATA + b"hole", "y: expected 24 bytes from 24"),
        ({"x": entry(0, 24)}, DATA + b"more", "expected 24 bytes of tensors, got 28"),
        ({"x": entry(0, 48)}, DATA, "x: expected 24 bytes from 0, got the bytes from 0 to 48"),
        ({"x": entry(24, 0)}, DATA, "x: expected 24 bytes from 0"),
        ({"x": entry(-24, 0)}, DATA, "x: expected a shape and two offsets"),
        ({"x": entry(0, 24, (2, -3))}, DATA, "x: expected a shape and two offsets"),
        ({"x": entry(0, 24, (2, 3.0))}, DATA, "x: expected a shape and two offsets"),
        ({"x": entry(0, 24, (2, True, 3))}, DATA, "x: expected a shape and two offsets"),
        ({"x": entry(0, 24, (1,) * 33)}, DATA, "x: expected a shape and two offsets"),
        ({"x": entry(0, 0, (0, 2**62))}, b"", "x: expected a shape that NumPy knows"),
        ({"x": entry(0, 2**70)}, DATA, "x: expected a shape and two offsets"),
        ({"x": entry(0, 24, (2**40, 2**40))}, DATA, "x: expected 4835703278458516698824704 bytes from 0"),
        ({"x": entry(0, 24, dtype="F8_E5M2")}, DATA, "x: expected a dtype of F64"),
        ({"x": entry(0, 24, dtype=["F32"])}, DATA, "x: expected a dtype of F64"),
        ({"x": {**entry(0, 24), "strides": [1]}}, DATA, "x: expected dtype, shape and data_offsets"),
        ({"x": None}, DATA, "x: expected dtype, shape and data_offsets"),
        ({"x": entry(0, 24), "__metadata__": {"n": 3}}, DATA, "__metadata__: expected texts by name"),
        (TWICE, DATA, "x: expected one entry of this name, got several"),
        ([], b"", "expected a JSON object"),
        (b"{", b"", "expected JSON"),
        (b"\xff", b"", "expected JSON"),
        (b"[" * 100_000, b"", "expected JSON"),
        (b'{"x":' * 100_000, b"", "expected JSON"),
        (b"9" * 10_000, b"", "expected JSON"),
    ],
)  # fmt: skip
def test_faults_by_name(header, data, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        read_tensors(write(tmp_path / "file", header, data))


def test_header_bombs(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(struct.pack("<Q", 2**63) + b"{}")
    with pytest.raises(CheckpointError, match="header of 9223372036854775808 bytes, got 10 bytes"):
        read_tensors(path)
    with open(path, "wb") as file:  # sparse: the disk holds nothing of it
        file.write(struct.pack("<Q", 30_000_000))
        file.truncate(30_000_008)
    with pytest.raises(CheckpointError, match="header of at most 25000000 bytes, got 30000000"):
        read_tensors(path)
    with pytest.raises(CheckpointError, match="at most 25000000 bytes of JSON"):
        read_json(path)


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        ("pipe", "a regular file"),
        (".", "a regular file"),
        ("none", "no such file"),
    ):
        with pytest.raises(CheckpointError, match=message):
            read_tensors(tmp_path / name)
        with pytest.raises(CheckpointError, match=message):
            read_json(tmp_path / name)
