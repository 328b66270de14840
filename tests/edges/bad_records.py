"""Bad files of `--options` as data: what the file holds, what the error says; rows as in bad_inputs.py."""

import json

from tests.edges.bad_inputs import DEEP_OBJECTS, TEXTS, Bad


def record(name, content, message, command="train translate --out {folder}/out"):
    """An --options FILE of this content."""
    content = content if isinstance(content, str) else json.dumps(content)
    command += " --options {folder}/training.json"
    return Bad(f"--options: {name}", command, message, {**TEXTS, "training.json": content})


FILE = "training.json: "
BAD = [
    record("no JSON", "{", "expected JSON"),
    record("no object", [1], "a JSON object"),
    record("nested", DEEP_OBJECTS, "deep"),
    record("nothing", {}, 'expected a training.json, with "options" or "command" in it; got neither'),
    record(
        "another task",
        {"task": "tag", "options": {}},
        "expected a training of 'translate', got one of 'tag'",
    ),
    record("a list", {"options": [1]}, f"{FILE}expected an object as 'options'"),
    record("no files", {"options": {"epochs": 1}}, "--data: expected"),
    record(
        "an unknown option",
        {"options": {"wings": 2}, "command": {"data": ["a"]}},
        f"{FILE}Seq2SeqTraining has no wings",
    ),
    record(
        "a wrong option",
        {"options": {"epochs": 0}, "command": {"data": ["a"]}},
        f"{FILE}`epochs` must be at least 1",
    ),
    record("a word", {"command": {"data": "a"}}, f"{FILE}`data` must be a list; it is 'a'"),
    record("an unknown entry", {"command": {"wings": 2}}, f"{FILE}Command has no wings"),
    record(
        "a wrong size",
        {"command": {"data": ["a"], "model": {"size": 2}}},
        f"{FILE}`size` must be a string; it is 2",
    ),
    record(
        "a wrong layout",
        {"command": {"data": ["a"], "layout": {"header": 7}}},
        f"{FILE}`header` must be",
    ),
    record(
        "an unknown size",
        {"command": {"data": ["a"], "model": {"size": "x"}}},
        "Transformer has no size 'x'",
    ),
    record(
        "a wrong field",
        {"command": {"data": ["a"], "fields": {"max_length": 0}}},
        f"{FILE}`max_length` must be at least 1",
    ),
    record(
        "a field of others",
        {"command": {"data": ["a"], "fields": {"around": 0}}},
        f"{FILE}'translate' has no option around",
    ),
    record(
        "wrong changes",
        {"command": {"data": ["a"], "changes": {"dim": "x"}}},
        f"{FILE}`dim` must be a whole number",
    ),
    record(
        "wrong devices",
        {"command": {"data": ["a"], "strategy": "x"}},
        f"{FILE}`strategy` must be none, mirrored",
    ),
    record(
        "a wrong interval",
        {"command": {"data": ["a"], "run": {"save_minutes": 0}}},
        f"{FILE}`save_minutes` must be above 0",
    ),
    record(
        "two folders",
        {"options": {}},
        "--options: --resume takes the options of RUN itself",
        "train translate --out {folder}/out --resume",
    ),
]
