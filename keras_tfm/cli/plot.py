"""`keras-tfm plot`: draw the curves of a training."""

import argparse
import os
from typing import Any

from keras_tfm.cli.console import say


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


def run_plot(arguments: argparse.Namespace) -> None:
    """plot: write a picture."""
    from keras_tfm.training.logs import read_rows
    from keras_tfm.visualize import plots

    names = [os.path.basename(os.path.abspath(folder)) for folder in arguments.runs]
    if len(set(names)) < len(names):  # folders of one name in several places
        names = arguments.runs
    rows = {}
    for name, folder in zip(names, arguments.runs, strict=True):
        path = os.path.join(folder, "metrics.csv")
        rows[name] = read_rows(path)
        if not rows[name]:
            raise ValueError(f"{path}: expected one row per epoch, got none")
    path = arguments.out or os.path.join(arguments.runs[0], "metrics.png")
    plots.save(plots.draw_training(rows), path)
    say(f"the picture is {path}")
