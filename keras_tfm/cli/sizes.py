"""What `keras-tfm info FAMILY:SIZE` says of the published sizes, counted once: sizes.json.

    python -m keras_tfm.cli.sizes           # counts new and changed sizes, and writes the file
    python -m keras_tfm.cli.sizes BERT ViT  # counts these families anew

The file lets `info` answer without TensorFlow. A family that it lacks is counted each time.
"""

import dataclasses
import functools
import hashlib
import json
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


def entry_of(family: Any, size: str) -> dict[str, Any]:
    """The entry of one size, counted."""
    from keras_tfm.private.keras import shapes_alone
    from keras_tfm.visualize.size import size_of

    with shapes_alone():
        model = family.from_size(size)
    counted = size_of(model)
    return {
        "config": digest_of(model.config),
        "max_length": getattr(model.config, "max_length", None),
        "parts": {name: [part.parameters, part.multiply_adds] for name, part in counted.parts.items()},
        "length": counted.length,
        "activations": counted.activations,
        "largest": counted.largest,
    }


def write(chosen: Sequence[str] = ()) -> None:
    """Bring the file up to date, or count the `chosen` families anew; a family is written once it is
    counted.
    """
    made: dict[str, dict[str, Any]] = {}
    for name, size, family in published():
        known = json.loads(FILE.read_text("utf-8"))
        old = known.get(name, {}).get(size)
        is_right = old is not None and old["config"] == digest_of(family.sizes[size])
        if (name not in chosen) if chosen else is_right:
            continue
        made.setdefault(name, known.get(name, {}))[size] = entry_of(family, size)
        print(f"{name}:{size}", flush=True)
        if made[name].keys() >= family.sizes.keys():
            _save(known | {name: {size: made[name][size] for size in family.sizes}})


def _save(content: dict[str, dict[str, Any]]) -> None:
    families = []
    for name in sorted(content):
        lines = [f"{json.dumps(size)}: {json.dumps(entry)}" for size, entry in content[name].items()]
        families.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    FILE.write_text("{\n" + ",\n".join(families) + "\n}\n", "utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])
