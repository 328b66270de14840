"""What `keras-tfm info FAMILY:SIZE` says of the published sizes, counted once: sizes.json.

    python -m keras_tfm.cli.sizes           # counts new and changed sizes, and writes the file
    python -m keras_tfm.cli.sizes BERT ViT  # counts these families anew

The file lets `info` answer without TensorFlow. A family that it lacks is counted each time.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import multiprocessing
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from keras_tfm.visualize.parts import Part, Size

FILE = pathlib.Path(__file__).with_suffix(".json")


@functools.cache
def table() -> dict[str, dict[str, dict[str, Any]]]:
    """{family: {size: what is known of it}}, as the file has it."""
    return json.loads(FILE.read_text("utf-8"))


def size_in(entry: dict[str, Any]) -> Size:
    """What `size_of` counted for an entry of the table, at its default length."""
    parts = {name: Part(*counts) for name, counts in entry["parts"].items()}
    return Size(parts, entry["length"], entry["activations"], entry["largest"])


def published() -> Iterator[tuple[str, str, Any]]:
    """Yield (family, size, its class) of all published sizes; this imports all families."""
    from keras_tfm.models.families import families

    for name, family in sorted(families().items()):
        for size in getattr(family, "sizes", None) or {}:
            yield name, size, family


def digest_of(config: Any) -> str:
    """What an entry keeps of the configuration that it was counted for."""
    text = json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def entries_of(name: str, chosen: Sequence[str]) -> dict[str, dict[str, Any]]:
    """{size: its entry} of the `chosen` sizes of a family, counted."""
    from keras_tfm.models.families import families
    from keras_tfm.private.keras import shapes_alone
    from keras_tfm.visualize.size import size_of

    entries = {}
    for size in chosen:
        with shapes_alone():
            model = families()[name].from_size(size)
        counted = size_of(model)
        entries[size] = {
            "config": digest_of(model.config),
            "max_length": getattr(model.config, "max_length", None),
            "parts": {part: [each.parameters, each.multiply_adds] for part, each in counted.parts.items()},
            "length": counted.length,
            "activations": counted.activations,
            "largest": counted.largest,
        }
    return entries


def write(chosen: Sequence[str] = ()) -> None:
    """Bring the file up to date, or count the `chosen` families anew.

    Each family is counted in a process of its own, whose memory ends with it, and written once it is counted.
    """
    known = dict(table())
    sizes: dict[str, list[str]] = {}
    missing: dict[str, list[str]] = {}
    for name, size, family in published():
        sizes.setdefault(name, []).append(size)
        entry = known.get(name, {}).get(size)
        is_right = entry is not None and entry["config"] == digest_of(family.sizes[size])
        if (name in chosen) if chosen else not is_right:
            missing.setdefault(name, []).append(size)
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for name, counted in zip(missing, pool.map(entries_of, missing, missing.values()), strict=True):
            print(name, *counted, flush=True)
            counted = known.get(name, {}) | counted
            known[name] = {size: counted[size] for size in sizes[name]}
            _save(known)


def _save(content: dict[str, dict[str, Any]]) -> None:
    families = []
    for name in sorted(content):
        lines = [f"{json.dumps(size)}: {json.dumps(entry)}" for size, entry in content[name].items()]
        families.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    FILE.write_text("{\n" + ",\n".join(families) + "\n}\n", "utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])
