"""How far training on several devices and processes is from training on one.

    python -m benchmarks.exactness [CASE ...]

Prints, for every case of tests/training/exactness.py, the largest difference of any weight after two
epochs under each layout, and of whatever `fit`, `evaluate` and `predict` report, relative to 1 or more.
The case "pairs FILE FILE2" trains a translation model on those files.
"""

import argparse
import pathlib
import sys
import tempfile

from benchmarks.rounds import parse, record

LAYOUTS = ("mirrored:2", "mirrored:4", "processes:2")


def main():
    parser = argparse.ArgumentParser("benchmarks.exactness", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="CASE", help="all of them by default")
    options = parse(parser, has_gpu_part=False)
    from tests.training.exactness import differences, run_layout
    from tests.training.exactness_cases import BOUNDS, CASES

    names = tuple(options.names) or tuple(CASES)
    with tempfile.TemporaryDirectory() as folder:
        results = {
            layout: run_layout(layout, pathlib.Path(folder) / f"{i}.npz", names)
            for i, layout in enumerate(("none", *LAYOUTS))
        }
    print(f"{'weights, then reports, against one device':42}" + "".join(f"{x:>20}" for x in LAYOUTS))
    worst = 0.0
    for name in names:
        cells = ""
        for layout in LAYOUTS:
            largest = differences(results[layout][name], results["none"][name])
            weights = largest.pop("weight")
            record(name, layout, weights, "largest difference of a weight")
            cells += f"{weights:>10.1e}{max(largest.values()):>10.1e}"
            policy = CASES[name].policy if name in CASES else "float32"
            worst = max(worst, weights / BOUNDS[policy])
        print(f"{name:42}{cells}")
    return worst > 1


if __name__ == "__main__":
    sys.exit(main())
