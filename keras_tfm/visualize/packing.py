"""Attention weights in 4 bits, and what goes with them, as text that a page holds and its script unpacks."""

import base64
import struct
import zlib
from collections.abc import Sequence

import numpy as np

LEVELS = 15  # above 0: what 4 bits count
MOST_CHARACTERS = 14_000_000  # of all weights together


def quantized(weights: np.ndarray, levels: int = LEVELS) -> tuple[np.ndarray, np.ndarray]:
    """Each row's maximum (H, T) and the weights (H, T, S) in whole parts of it, from 0 to `levels`.

    A weight differs from maximum * part / levels by at most maximum / (2 levels); what is below 0 becomes 0.
    """
    weights = np.maximum(np.asarray(weights, "float32"), 0)
    maxima = weights.max(-1, initial=0)
    scale = np.divide(levels, maxima, out=np.zeros_like(maxima), where=maxima > 0)
    return maxima, np.rint(weights * scale[..., None]).astype("uint8")


def packed_weights(weights: np.ndarray, levels: int = LEVELS) -> str:
    """(H, T, S) as text: the rows' maxima as float32, then two weights a byte, the lower bits first."""
    maxima, parts = quantized(weights, levels)
    flat = np.append(parts.reshape(-1), np.zeros(parts.size % 2, "uint8"))
    return _as_text(maxima, flat[::2] | flat[1::2] << 4)


def packed_layers(weights: Sequence[np.ndarray]) -> tuple[dict[str, str], int]:
    """The blocks of all layers' weights by name, and how many levels a weight has above 0: 15, or where the
    page would be too large 7 or 3.
    """
    for levels in (LEVELS, 7, 3):
        blocks = {f"weights-{i}": packed_weights(some, levels) for i, some in enumerate(weights)}
        if sum(map(len, blocks.values())) <= MOST_CHARACTERS:
            break
    return blocks, levels


def packed_vectors(queries: np.ndarray, keys: np.ndarray) -> str:
    """Queries (H, T, K) and keys (H, S, K): the largest entry of each vector as float32, then the entries of
    all as bytes with a sign, in parts of it.
    """
    vectors = np.concatenate([x.reshape(-1, x.shape[-1]) for x in (queries, keys)]).astype("float32")
    largest = np.abs(vectors).max(-1, initial=0)
    scale = np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0)
    return _as_text(largest, np.rint(vectors * scale[:, None]).astype("int8"))


def _as_text(scales: np.ndarray, values: np.ndarray) -> str:
    content = scales.astype("<f4").tobytes() + values.tobytes()
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def png(image: np.ndarray) -> str:
    """An image (H, W, 1 or 3), of bytes or of numbers in [0, 1], as the address of a PNG file: `data:…`."""
    if image.dtype != np.uint8:
        image = np.rint(255 * np.clip(image, 0, 1)).astype("uint8")
    image = np.broadcast_to(image, (*image.shape[:2], 3))
    height, width = image.shape[:2]
    lines = np.concatenate([np.zeros((height, 1), "uint8"), image.reshape(height, -1)], axis=1)
    size = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, three colours
    parts = (b"IHDR", size), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")
