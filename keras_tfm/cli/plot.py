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

    rows = {}
    for folder in arguments.runs:
        path = os.path.join(folder, "metrics.csv")
        rows[os.path.basename(os.path.abspath(folder))] = table = read_rows(path)
        if not table:
            raise ValueError(f"{path}: expected one row per epoch, got none")
    path = arguments.out or os.path.join(arguments.runs[0], "metrics.png")
    try:
        plots.save(plots.draw_training(rows), path)
    except ImportError as error:
        raise ValueError(str(error)) from None
    say(f"the picture is {path}")
