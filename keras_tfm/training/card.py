"""The model card, README.md in a task's folder: what was trained, on which data, how, and with which results.

Mitchell et al. 2019, "Model Cards for Model Reporting". Licence, intended uses and limits are left to be
filled in, since no file has them. The first lines are metadata for Hugging Face's hub. A card whose owner has
removed the line that marks it as generated is never overwritten.
"""

import json
import pathlib
import shlex
from collections.abc import Mapping
from typing import Any

from keras_tfm.training.folder import CARD, CARD_MARK, Path, is_own_card, new_file

# The hub's names of tasks (https://huggingface.co/tasks), as far as it has one.
HUB_TASKS = {
    "translate": "translation",
    "summarize": "summarization",
    "generate": "text-generation",
    "masked-lm": "fill-mask",
    "classify": "text-classification",
    "tag": "token-classification",
    "answer": "question-answering",
    "choose": "multiple-choice",
    "sentence-vectors": "sentence-similarity",
    "classify-images": "image-classification",
    "pretrain-images": "image-feature-extraction",
    "image-vectors": "image-feature-extraction",
    "generate-images": "unconditional-image-generation",
    "restore-images": "image-to-image",
    "image-codes": "image-to-image",
    "detect": "object-detection",
    "segment": "image-segmentation",
    "match-images": "zero-shot-image-classification",
    "forecast": "time-series-forecasting",
}
TO_FILL_IN = {
    "Intended uses and limits": "What it is meant for, and what it should not be used for.",
    "Licence": "Of the weights and of the data that they were trained on.",
}


def card(task: str, model: str, record: Mapping[str, Any], library: str = "keras") -> str:
    """The Markdown text of a model card, from the content of a training.json.

    `task` is the task's name, `model` a line about its model. Entries that `record` lacks are left out.
    """
    metadata = {"library_name": library, "pipeline_tag": HUB_TASKS.get(task), "tags": ["keras_tfm", task]}
    front = [f"{name}: {json.dumps(value)}" for name, value in metadata.items() if value is not None]
    parts = [
        "---",
        *front,
        "---",
        "",
        CARD_MARK,
        "",
        "# Model card",
        "",
        f"A model for the task `{task}`: {model}.",
        "",
    ]
    for title, lines in _sections(record).items():
        if lines:
            parts += [f"## {title}", "", *lines, ""]
    for title, text in TO_FILL_IN.items():
        parts += [f"## {title}", "", f"To be filled in. {text}", ""]
    return "\n".join(parts)


def write_card(folder: Path, text: str) -> None:
    """Write README.md to `folder`, completely or not at all, unless somebody has made the card their own."""
    path = pathlib.Path(folder, CARD)
    if path.exists() and not is_own_card(path):
        return
    with new_file(path) as work:
        work.write_text(text, "utf-8", "backslashreplace")


def _sections(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """{title: lines} of the sections; a section without lines is left out."""
    return {
        "Data": _data(_of(record, "data"), _of(record, "command")),
        "Measures": _measures(_of(record, "results")),
        "Training": _training(_of(record, "command"), _of(record, "options"), record.get("task")),
        "Versions": _table(("package", "version"), _of(record, "versions")),
    }


def _of(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An entry of the record; {} if it is missing or not an object, since users may edit the file."""
    value = record.get(name)
    return value if isinstance(value, Mapping) else {}


def _data(data: Mapping[str, Any], command: Mapping[str, Any]) -> list[str]:
    names = {"train": "training", "validation": "validation, which chooses the best epoch"}
    lines = [f"- {names[key]}: {data[key]}" for key in names if data.get(key)]
    for key, what in (("data", "files"), ("valid", "files for validation")):
        if files := command.get(key):
            lines.append(f"- {what}: {', '.join(f'`{pathlib.PurePath(str(file)).name}`' for file in files)}")
    if data.get("fingerprint"):
        lines.append(f"- fingerprint: `{data['fingerprint']}`")
    return lines


def _measures(results: Mapping[str, Any]) -> list[str]:
    if not results:
        return ["The training has not ended."]
    facts = {key: results[key] for key in ("best_epoch", "epochs", "seconds") if key in results}
    measures = {name: f"{x:.4g}" for name, x in results.items() if name not in facts and _is_number(x)}
    lines = []
    if "best_epoch" in facts and "epochs" in facts:
        lines = [
            f"At the best epoch, {facts['best_epoch']} of {facts['epochs']}; `val_` marks validation data.",
            "",
        ]
    lines += _table(("measure", "value"), measures)
    return [*lines, "", f"The training took {facts['seconds']} seconds."] if "seconds" in facts else lines


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _training(command: Mapping[str, Any], options: Mapping[str, Any], task: Any) -> list[str]:
    lines = []
    if command.get("data"):
        files = [pathlib.PurePath(str(file)).name for file in command["data"]]
        words = [
            "keras-tfm",
            "train",
            str(task),
            "--data",
            *files,
            "--options",
            "training.json",
            "--out",
            "RUN",
        ]
        lines = ["```", shlex.join(words), "```", ""]
    if command.get("start"):
        lines += [f"It started from `{pathlib.PurePath(str(command['start'])).name}`.", ""]
    return lines + _table(
        ("option", "value"), {name: _named(x) for name, x in options.items() if x is not None}
    )


def _named(value: Any) -> Any:
    """An option's value; of a path only the name, as for all files in the card."""
    return pathlib.PurePath(value).name if isinstance(value, str) and "/" in value else value


def _table(head: tuple[str, str], rows: Mapping[str, Any]) -> list[str]:
    """A table of two columns; no lines if there are no rows."""
    if not rows:
        return []
    cells = [(f"`{name}`", str(value).replace("|", "\\|").replace("\n", " ")) for name, value in rows.items()]
    return [f"| {' | '.join(row)} |" for row in (head, ("---", "---"), *cells)]
