"""What the defaults of a task reach beside the best by hand, on data of one's own.

    python -m benchmarks.first_day classify --data train300.tsv --data train3000.tsv \\
        --choose dev.tsv --test test.tsv --by-hand="--learning-rate 3e-4" --by-hand="--size tiny"

Each `--data` is a size of the training data. The defaults are trained with every seed, each recipe of
`--by-hand` with the first one. The recipe that `evaluate` finds best on `--choose` is trained with the
other seeds too; only it and the defaults are scored on `--test`. What simple rules score stands in
training.json of each RUN. All of it is typed as a user would, by `keras-tfm train` and `keras-tfm
evaluate`; RUNs in `--out` are not made again. `--always="--minutes 5"` is for all trainings. Seconds are
CPU seconds, the start of the command included.
"""

import argparse
import hashlib
import json
import pathlib
import resource
import shlex
import statistics
import subprocess
import sys

from benchmarks.rounds import parse, record

# What `evaluate` prints of a task and a newcomer would read first.
METRICS = {
    "classify": "accuracy",
    "tag": "f1",
    "translate": "bleu",
    "classify-images": "accuracy",
    "detect": "ap50",
    "segment": "miou",
}
MOST_BY_HAND = 12  # as many as somebody would try in a day


def children_seconds():
    """Seconds of CPU of all commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def keras_tfm(verb, *words):
    """What a command printed; RuntimeError, with the end of its log, where it failed."""
    command = [sys.executable, "-m", "keras_tfm", verb, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def train(task, data, recipe, seed, run):
    """Train into the folder `run` unless it is there whole; returns the seconds of CPU that it took."""
    took = run / "cpu_seconds.json"
    if not took.exists():
        before = children_seconds()
        words = ["--data", *data, "--seed", seed, "--out", run, "--overwrite", *shlex.split(recipe)]
        keras_tfm("train", task, *words)
        took.write_text(json.dumps(children_seconds() - before), "utf-8")
    return json.loads(took.read_text("utf-8"))


def name_of(files):
    """The name of the first file, and a digest of its path."""
    path = pathlib.Path(files[0])
    return f"{path.name} {hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]}"


def score(run, files, metric):
    """The metric of a RUN on examples, which is kept beside it."""
    kept = run / f"{name_of(files)}.{metric}.json"
    if not kept.exists():
        measures = json.loads(keras_tfm("evaluate", run, "--data", *files).splitlines()[0])
        if metric not in measures:
            raise RuntimeError(f"--metric: expected one of {', '.join(measures)}; got {metric}")
        kept.write_text(json.dumps(measures[metric]), "utf-8")
    return json.loads(kept.read_text("utf-8"))


def in_words(scores):
    spread = f" ({min(scores):.4g} to {max(scores):.4g})" if len(scores) > 1 else ""
    return f"{statistics.mean(scores):.4g}{spread}"


def row(options, data):
    """The cells of one size of the data."""

    def trained(recipe, seeds):
        """The RUNs of a recipe, and the mean of their seconds."""
        words = f"{recipe} {options.always}".strip()
        names = [f"{name_of(data)} {words} {seed}" for seed in seeds]
        folder = options.out / options.task
        runs = [folder / "".join(c if c.isalnum() else "_" for c in name) for name in names]
        seconds = [train(options.task, data, words, *pair) for pair in zip(seeds, runs, strict=True)]
        return runs, statistics.mean(seconds)

    defaults, seconds = trained("", options.seeds)
    kept = json.loads((defaults[0] / "training.json").read_text("utf-8"))
    rules = {name: value for name, value in kept.get("baselines", {}).items() if name != "metric"}
    chosen = {"": score(defaults[0], options.choose, options.metric)}
    for recipe in options.by_hand:
        (made,), _ = trained(recipe, options.seeds[:1])
        chosen[recipe] = score(made, options.choose, options.metric)
        print(f"    {chosen[recipe]:.4g} {recipe}", flush=True)
    best = max(chosen, key=chosen.__getitem__)
    runs, best_seconds = trained(best, options.seeds)
    tested = [[score(made, options.test, options.metric) for made in part] for part in (defaults, runs)]
    size = kept["data"]["train"]
    for name, value in rules.items():
        record(size, name, value, kept["baselines"]["metric"])
    for name, scores in zip(("the defaults", f"by hand: {best}"), tested, strict=True):
        record(size, name, statistics.mean(scores), options.metric)
    return (
        size,
        ", ".join(f"{name} {value:.4g}" for name, value in rules.items()) or "none",
        in_words(tested[0]),
        f"{seconds:.0f}",
        in_words(tested[1]),
        f"`{best}`" if best else "the defaults",
        f"{best_seconds:.0f}",
        kept.get("remark", {}).get("key", ""),
    )


def main():
    parser = argparse.ArgumentParser("benchmarks.first_day", description=__doc__.partition("\n")[0])
    parser.add_argument("task", choices=METRICS)
    parser.add_argument("--data", nargs="+", action="append", required=True, help="to train on; once a size")
    parser.add_argument("--choose", nargs="+", required=True, help="data that choose among the recipes")
    parser.add_argument("--test", nargs="+", required=True, help="data that the chosen ones are scored on")
    parser.add_argument("--by-hand", action="append", default=[], metavar="OPTIONS", help="12 at most")
    parser.add_argument("--always", default="", metavar="OPTIONS", help="for every training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--metric", help="of `evaluate` (default: the task's)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/first_day"))
    options = parse(parser)
    options.metric = options.metric or METRICS[options.task]
    if len(options.by_hand) > MOST_BY_HAND:
        parser.error(f"--by-hand: expected {MOST_BY_HAND} recipes at most; got {len(options.by_hand)}")
    print("| to train on | rules, on validation | defaults | s | best by hand | recipe | s | remark |")
    print("|---|---|---|---|---|---|---|---|")
    for data in options.data:
        print(f"| {' | '.join(row(options, data))} |", flush=True)


if __name__ == "__main__":
    main()
