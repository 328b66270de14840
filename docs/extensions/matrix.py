"""The tables of docs/guides/matrix.md, made of what tests recorded.

`python docs/extensions/matrix.py` writes them anew. A cell is "yes", the number of a
reason, or empty where no test ran.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "matrix.md"
RECORDED = ROOT / "tests" / "recorded"
TABLE = re.compile(r"<!-- table: (?P<name>\w+) -->\n(?P<rows>.*?)<!-- end -->", re.DOTALL)
MARKED = "<!-- table: {} -->\n{}<!-- end -->"
FORMATS = ("saved_model", "onnx", "openvino", "litert", "ctranslate2")
TRAININGS = {
    "mixed_bfloat16": "mixed_bfloat16",
    "mixed_float16": "mixed_float16",
    "mirrored:2": "two replicas",
}


def title(name):
    """The task of a recorded RUN, and what it is a case of."""
    task = json.loads((RECORDED / "kept" / name / "config.json").read_text("utf-8"))["task"]
    return f"`{task}`" if task == name else f"`{task}`: {name}"


def cell(answer, reasons):
    """What the table says of a recorded answer; a refusal is numbered among the `reasons`, which grow."""
    if answer is None:
        return ""
    if answer == "yes" or not isinstance(answer, str):
        return "yes"
    # What is said of one task, a list of operations or a number is one reason with others of its kind.
    reason = re.sub(r"[Tt]he task '[\w-]+'", "The task", answer)
    reason = re.sub(r"'[a-z-]+' does not", "this task does not", reason).rstrip(".")
    return f"no ({reasons.setdefault(reason, len(reasons) + 1)})"


def tables():
    """{name of a table: its Markdown}: formats, trainings, and the reasons of both."""
    answers = json.loads((RECORDED / "answers.json").read_text("utf-8"))
    trained = json.loads((RECORDED / "trainings.json").read_text("utf-8"))
    reasons, made = {}, {}
    for name, cells, columns in (
        ("formats", answers, {format: format for format in FORMATS}),
        ("trainings", trained, TRAININGS),
    ):
        rows = [["task", *columns.values()], ["---"] * (len(columns) + 1)]
        for task in sorted(cells, key=title):
            rows.append([title(task), *(cell(cells[task].get(column), reasons) for column in columns)])
        made[name] = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    made["reasons"] = "".join(f"{number}. {reason}.\n" for reason, number in reasons.items())
    return made


if __name__ == "__main__":
    new, text = tables(), PAGE.read_text("utf-8")
    PAGE.write_text(TABLE.sub(lambda old: MARKED.format(old["name"], new[old["name"]]), text), "utf-8")
