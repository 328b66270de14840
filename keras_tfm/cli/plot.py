"""`keras-tfm plot`: draw the curves of a training."""

import argparse
import contextlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from keras_tfm.cli.console import say
from keras_tfm.cli.outputs import refuse_file, refuse_no_file


def add(group: Any, add_verb: Any) -> None:
    """keras-tfm plot."""
    plot = add_verb(group, "plot", run_plot, "draw the metrics in RUN/metrics.csv, epoch by epoch")
    plot.add_argument(
        "runs", nargs="+", metavar="RUN", help="folders that train wrote, to compare in one picture"
    )
    plot.add_argument(
        "--out",
        metavar="FILE",
        help="the picture to write, .png, .svg or .pdf (default: metrics.png in the first RUN)",
    )
    plot.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


def run_plot(arguments: argparse.Namespace) -> None:
    """plot: write a picture."""
    from keras_tfm.training.metrics_file import read_rows
    from keras_tfm.training.record import read_record
    from keras_tfm.training.safetensors import CheckpointError
    from keras_tfm.visualize import plots

    path = arguments.out or os.path.join(arguments.runs[0], "metrics.png")
    if arguments.out is None:  # a file of a RUN, which `refuse_file` keeps
        refuse_no_file(path)
    else:
        refuse_file(path, overwrite=arguments.overwrite)
    rows, best = {}, {}
    for name, folder in zip(short_names(arguments.runs), arguments.runs, strict=True):
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"{folder}: there is no such folder")
        table = os.path.join(folder, "metrics.csv")
        rows[name] = read_rows(table)
        if not rows[name]:
            raise ValueError(f"{table}: expected one row per epoch, got none")
        with contextlib.suppress(CheckpointError):  # what a damaged record says is left out
            best[name] = read_record(folder).get("results", {}).get("best_epoch")
    plots.save(plots.draw_training(rows, best), path)
    say(f"the picture is {path}")


def short_names(folders: Sequence[str]) -> list[str]:
    """The ends of the paths of `folders`, as long as it takes to distinguish them."""
    parts = [pathlib.Path(os.path.abspath(folder)).parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        names = [os.path.join(*path[-count:]) for path in parts]
        if len(set(names)) == len(set(parts)):
            break
    return names
