"""What the command takes to start, beside importing TensorFlow and Keras: seconds of CPU.

    python -m benchmarks.start RUN

RUN is what `keras-tfm train classify` wrote. Each command is a process of its own, and they take turns;
it prints the seconds of CPU of the process, and the seconds by the clock. "without what is kept" makes the
model, "again" answers by the graph that an earlier `predict` has kept. The ONNX folder is exported from RUN
(extra `onnx`).
"""

import argparse
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.rounds import parse, record

COMMAND = ("-m", "keras_tfm")
IMPORTS = """
from keras_tfm.cli.console import quiet_tensorflow, uncollected, without, UNUSED
quiet_tensorflow()
with uncollected(), without(*UNUSED):
    import keras
"""
BASE = "importing both, as the command does"
LINE = b"a line of text\n"


def cases(run, exported):
    """{name: (arguments of Python, standard input)}."""
    return {
        BASE: (("-c", IMPORTS), b""),
        "importing both": (("-c", "import tensorflow, keras"), b""),
        "import keras_tfm": (("-c", "import keras_tfm"), b""),
        "--help": ((*COMMAND, "--help"), b""),
        "train classify --help": ((*COMMAND, "train", "classify", "--help"), b""),
        "info bert:tiny": ((*COMMAND, "info", "bert:tiny"), b""),
        "predict ONNX, a line": ((*COMMAND, "predict", exported), LINE),
        "predict RUN, a line, without what is kept": ((*COMMAND, "predict", run, "--no-cache"), LINE),
        "predict RUN, a line, again": ((*COMMAND, "predict", run), LINE),
    }


def seconds_of(arguments, text):
    """(Seconds of CPU, seconds by the clock) of a process of Python."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], input=text, capture_output=True, check=True)
    clock, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def main():
    parser = argparse.ArgumentParser("benchmarks.start", description=__doc__.partition("\n")[0])
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("--rounds", type=int, default=5)
    options = parse(parser, has_gpu_part=False)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["XDG_CACHE_HOME"] = scratch
        exported = pathlib.Path(scratch, "onnx")
        export = [*COMMAND, "export", options.run, "--out", exported, "--format", "onnx", "--quiet"]
        subprocess.run([sys.executable, *map(str, export)], check=True)
        asked = cases(options.run, str(exported))
        for arguments, text in asked.values():  # files are read once, and the graph is kept
            seconds_of(arguments, text)
        found = [{name: seconds_of(*case) for name, case in asked.items()} for _ in range(options.rounds)]
    for name in asked:
        processor, clock = (statistics.median(each[name][i] for each in found) for i in (0, 1))
        ratios = [each[name][0] / each[BASE][0] for each in found]
        record("starting", name, processor, "s of CPU", ratios, f"this / {BASE}")
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name:44}{processor:7.2f} s of CPU{clock:7.2f} s   {spread}")


if __name__ == "__main__":
    main()
