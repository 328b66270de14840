"""What `train TASK --help` shows, kept in screens.json, since importing tasks takes seconds.

`python -m keras_tfm.cli.screens` writes the file anew; a test compares it with what the tasks declare.
"""

import argparse
import json
import pathlib
from typing import Any

from keras_tfm.asking import ASKED

FILE = pathlib.Path(__file__).with_name("screens.json")
SWITCH = "--flag, --no-flag"  # stands for argparse's action, which JSON cannot hold


class Recorder:
    """Takes groups of options as a parser does, and keeps what a help shows of them."""

    def __init__(self) -> None:
        self.groups: list[dict[str, Any]] = []

    def add_argument_group(self, title: str, description: str | None = None) -> "Recorder":
        self.groups.append({"title": title, "description": description, "options": []})
        return self

    def add_argument(self, flag: str, **how: Any) -> None:
        if how.get("action") is argparse.BooleanOptionalAction:
            how["action"] = SWITCH
        kept = {name: value for name, value in how.items() if name not in ("dest", "type", "default")}
        self.groups[-1]["options"].append((flag, kept))


def screens() -> dict[str, Any]:
    """The content of the file: how each option is shown, and the groups of each task that learns."""
    from keras_tfm.cli.train import add_task_options
    from keras_tfm.tasks.task import task_called

    options: dict[str, Any] = {}
    tasks = {}
    for name in (name for name, asked in ASKED.items() if asked.help):
        recorder = Recorder()
        add_task_options(recorder, task_called(name))
        for group in recorder.groups:
            group["options"] = [_key(options, *option) for option in group["options"]]
        tasks[name] = recorder.groups
    return json.loads(json.dumps({"options": options, "tasks": tasks}))


def _key(options: dict[str, Any], flag: str, how: dict[str, Any]) -> str:
    """The key of an option among the `options`: its flag, with a number where tasks show it differently."""
    key, number = flag, 1
    while options.setdefault(key, how) != how:
        number += 1
        key = f"{flag} {number}"
    return key


def show(name: str, verb: Any) -> None:
    """Add to a parser what the help of `train NAME` shows; it reads no values of options."""
    content = json.loads(FILE.read_text("utf-8"))
    for group in content["tasks"][name]:
        shown = verb.add_argument_group(group["title"], group["description"])
        for key in group["options"]:
            how = content["options"][key]
            action = {"action": argparse.BooleanOptionalAction} if how.get("action") == SWITCH else {}
            shown.add_argument(key.partition(" ")[0], default=argparse.SUPPRESS, **how | action)


def write() -> None:
    """Write the file, an option or a group a line."""
    content = screens()
    options = [f"{json.dumps(key)}: {json.dumps(how)}" for key, how in content["options"].items()]
    groups = {name: ",\n".join(map(json.dumps, groups)) for name, groups in content["tasks"].items()}
    tasks = [f"{json.dumps(name)}: [\n{text}]" for name, text in groups.items()]
    lines = '{"options": {', ",\n".join(options), "},", '"tasks": {', ",\n".join(tasks), "}}\n"
    FILE.write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    write()
