"""Every benchmark, one after another, each with few rounds, and one table of what they found.

    python -m benchmarks.all                           or `make bench`
    python -m benchmarks.all --only "vit" "bert tokenizer"

Each run of `RUNS` is a process of its own: one that fails, or takes longer than `--limit` minutes, is named
in the table, and the others go on. The folder, build/benchmarks, keeps what each run printed, NAME.log, and
found, NAME.json. A run whose results are kept is not repeated, unless `--again` is given: so an interrupted
`make bench` goes on. The table, TABLE.md, names the processor and the versions of the peers.

What needs a text, labels or a trained model takes Python's own manual: its lines, the first letters of their
topics as labels, and tiny models that were trained on them for a minute. Pictures are made too.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import pydoc_data.topics
import re
import shlex
import signal
import subprocess
import sys
import time

from benchmarks.rounds import RECORD, in_words, parse

# {name: the options of a short run}; the first word of a name is the file. What is in braces is made first.
RUNS = {
    "factorization": "--rounds 3",
    "search": "--count 20000",
    "checkpoint": "--rounds 3",
    "decode": "--rounds 5",
    "overhead": "--rounds 6",
    "bert": "--rounds 4 --steps 1",
    "bert tokenizer": "--part tokenizer --rounds 4 --steps 1",
    "bert loading": "--part loading --rounds 4",
    "recurrent": "--rounds 5 --steps 2",
    "recurrent dot": "--attention dot --cell gru --rounds 5 --steps 2",
    "translate": "--rounds 4 --steps 2",
    "first_day": "classify --data {table} --choose {table} --test {table} --seeds 0",
    "classify": "--data {table} --rounds 3 --steps 10 --warmup 60",
    "generate": "--rounds 3 --cases 1x1 8x1",
    "generate flat": "--flat",
    "quantize": "{generator} {text} --rounds 3",
    "start": "{classifier} --rounds 3",
    "serve": "{classifier} {table} --rounds 3",
    "video": "--rounds 3 --steps 2",
    "vit": "--parts training inference --rounds 3 --steps 1",
    "vit input": "--models vit --parts input --rounds 3 --steps 1",
    "detr": "--rounds 3 --steps 1",
    "diffusion": "--rounds 3 --steps 2",
    "detect": "{pictures} {pictures} --minutes 2 --side 64",
    "gpu": "",
    "memory": "--length 4096 --steps 2",
    "exactness": "adam translation accumulation",
}
PEERS = (
    "tensorflow", "keras", "keras-hub", "torch", "transformers", "timm", "diffusers", "implicit", "numba",
    "faiss-cpu", "onnxruntime", "ai-edge-litert", "openvino", "numpy",
)  # fmt: skip
LINES = 20_000  # of the manual
PICTURES = 200


def make_text(path):
    """The manual's lines."""
    lines = [line for topic in pydoc_data.topics.topics.values() for line in topic.splitlines()]
    path.write_text("\n".join(line for line in lines if line.strip()) + "\n", "utf-8")


def make_table(path):
    """A line of the manual and the first letter of its topic, with a tab between, in each row."""
    rows = [
        f"{' '.join(line.split())}\t{name[0].lower()}"
        for name, topic in pydoc_data.topics.topics.items()
        for line in topic.splitlines()
        if len(line.split()) > 3
    ]
    path.write_text("\n".join(["text\tlabel", *rows[:LINES]]) + "\n", "utf-8")


def make_pictures(path):
    """Grey pictures with one to four light and dark squares, and a line of JSON for each."""
    import numpy as np
    import PIL.Image

    rng = np.random.default_rng(0)
    path.parent.mkdir(exist_ok=True)
    lines = []
    for number in range(PICTURES):
        pixels, boxes, labels = rng.integers(96, 160, (64, 64, 3), "uint8"), [], []
        for side in rng.integers(8, 24, rng.integers(1, 5)):
            left, top = rng.integers(0, 64 - side, 2)
            is_light = bool(rng.integers(2))
            pixels[top : top + side, left : left + side] = 230 if is_light else 20
            boxes.append([int(left), int(top), int(left + side), int(top + side)])
            labels.append("light" if is_light else "dark")
        PIL.Image.fromarray(pixels).save(path.with_name(f"{number}.png"))
        lines.append(json.dumps({"image": f"{number}.png", "boxes": boxes, "labels": labels}))
    path.write_text("\n".join(lines) + "\n", "utf-8")


def train(task, path, file):
    """A tiny model that was trained for a minute."""
    command = [sys.executable, "-m", "keras_tfm", "train", task, "--data", file, "--out", path]
    subprocess.run([*map(str, command), "--minutes", "1", "--overwrite", "--quiet"], check=True)


MADE = {  # {name: (its file or folder, what makes it of the names before it)}
    "text": ("manual.txt", lambda path, made: make_text(path)),
    "table": ("manual.tsv", lambda path, made: make_table(path)),
    "pictures": ("pictures/boxes.jsonl", lambda path, made: make_pictures(path)),
    "generator": ("generator", lambda path, made: train("generate", path, made("text"))),
    "classifier": ("classifier", lambda path, made: train("classify", path, made("table"))),
}


def made(folder, name):
    """The path of what `MADE` names, which is made at its first use."""
    file, make = MADE[name]
    path, done = folder / file, folder / f"{file}.made"
    if not done.exists():
        make(path, lambda other: made(folder, other))
        done.touch()
    return path


def words(folder, options):
    """The words of a run's `options`, with paths for what stands in braces."""
    return [str(made(folder, word[1:-1])) if word.startswith("{") else word for word in shlex.split(options)]


def run(name, folder, limit, device, rounds=None):
    """Run a benchmark, if given with `rounds` in place of the ones in `RUNS`, and keep what it printed and
    found; returns why it failed, or None.
    """
    log, found = (folder / f"{name.replace(' ', '-')}{suffix}" for suffix in (".log", ".part"))
    found.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        given = RUNS[name] if rounds is None else re.sub(r"--rounds \d+", f"--rounds {rounds}", RUNS[name])
        arguments = words(folder, given)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"what it needs could not be made: {error}"
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{name.split()[0]}", *arguments, "--device", device],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | {RECORD: str(found)},
            start_new_session=True,  # its workers, too, end with it
        )
        try:
            code = process.wait(60 * limit)
        except subprocess.TimeoutExpired:
            return f"stopped after {limit:g} minutes"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code:
        lines = log.read_text("utf-8", "replace").split("\n")
        return f"exit code {code}: " + next((line.strip() for line in reversed(lines) if line.strip()), "")
    lines = found.read_text("utf-8").splitlines() if found.exists() else []
    results = {"seconds": time.monotonic() - began, "results": [json.loads(line) for line in lines]}
    found.unlink(missing_ok=True)
    path_of(name, folder).write_text(json.dumps(results), "utf-8")
    return None


def path_of(name, folder):
    """Where the results of a run are kept."""
    return folder / f"{name.replace(' ', '-')}.json"


def processor():
    """The name of this machine's processor, and how many of its cores this process may use."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        name = next(models, name)
    allowed = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count()))(0)
    return f"{name}, cores: {len(allowed)}"


def versions():
    """The installed peers, "name version"."""
    found = []
    for name in PEERS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def table(folder, failed, device):
    """The results of the runs kept in `folder`, and the names that `failed`, as a page of Markdown."""
    lines = ["# Benchmarks", "", f"{processor()}; --device {device}; {versions()}.", ""]
    lines += ["| run | case | of | value | ratio (least to most) | what by what |", f"|{'---|' * 6}"]
    for name in RUNS:
        if name in failed:
            lines.append(f"| {name} | failed | | {failed[name].replace('|', '/')[:200]} | | |")
            continue
        if not path_of(name, folder).exists():
            continue
        kept = json.loads(path_of(name, folder).read_text("utf-8"))
        for result in kept["results"]:
            ratio = "{:.3g} ({:.3g} to {:.3g})".format(*result["ratio"]) if result["ratio"] else ""
            number = "" if result["value"] is None else f"{in_words(result['value'])} "
            value = number + result["unit"]
            cells = (name, result["case"], result["row"], value, ratio, result["compares"])
            lines.append(f"| {' | '.join(cells)} |")
        lines.append(f"| {name} | the run itself | | {kept['seconds']:.0f} s | | |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser("benchmarks.all", description=__doc__.partition("\n")[0])
    names = ", ".join(RUNS)
    parser.add_argument("--only", nargs="+", default=list(RUNS), choices=RUNS, metavar="NAME", help=names)
    parser.add_argument("--again", action="store_true", help="repeat runs whose results are kept, too")
    parser.add_argument("--rounds", type=int, help="rounds of each run that has some, in place of its own")
    parser.add_argument("--limit", type=float, default=15, help="minutes after which a run is stopped")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("build/benchmarks"))
    options = parse(parser)
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    failed = {}
    for name in options.only:
        if path_of(name, folder).exists() and not options.again:
            continue
        print(f"{name} ... ", end="", flush=True)
        path_of(name, folder).unlink(missing_ok=True)
        reason = run(name, folder, options.limit, options.device, options.rounds)
        print(reason or "done", flush=True)
        if reason:
            failed[name] = reason
        (folder / "TABLE.md").write_text(table(folder, failed, options.device), "utf-8")
    print(f"\n{table(folder, failed, options.device)}\n{folder / 'TABLE.md'}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
