"""All tests in a few processes at once, each of which gets files that take about as long as the others'.

    python -m tests.run --jobs 2 -m "not slow and not parity" [FOLDER, FILE or TEST ...] [pytest's options]

What TensorFlow and XLA compile is never let go, so one process for all tests would outgrow the memory: the
files are dealt into parts of some minutes, by the CPU seconds in durations.json, and the longest begin. Each
part is a fork of one process that has imported TensorFlow. `--record` writes durations.json anew, `--shuffle`
draws the order of files and tests, `--parity` adds tests/parity in parts of its own, which import torch.
Passing parts print one line and their slow tests, failing ones all of pytest's output. What failed runs
again alone, so that a fault of order is told from a fault of code; the run has failed all the same. At the
end stand the skips by reason, the seconds by folder and by invariant of the contract, and their sum.
"""

import argparse
import collections
import concurrent.futures
import json
import math
import multiprocessing
import os
import pathlib
import random
import sys
import tempfile
import time

import pytest

from tests.environment import set_environment
from tests.fresh_process import SERVERS, servers

TESTS = pathlib.Path(__file__).parent
PARITY = TESTS / "parity"
DURATIONS = TESTS / "durations.json"
# Of CPU time, as durations.json counts it: another part costs a second or two, a longer one may leave a
# core idle at the end, and memory grows by some 30 MB a second.
PART_SECONDS = 60
COMPILED_PART_SECONDS = 15  # with KERAS_TFM_JIT=1: XLA keeps some 10 GB for tasks of 60 seconds
UNKNOWN_SECONDS = 3  # of a file that was never recorded
LISTED_SECONDS = 10  # a test that takes longer is listed
SHOWN_INVARIANTS = 12  # the dearest
MOST_REPEATED = 10  # failed tests that run again alone
# Some hundred processes import the package and the tests: a second each to compile them anew.
# The processes have a core each: TensorFlow's threads for one operation would wait for one another.
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "", "TF_NUM_INTRAOP_THREADS": "1"}
# Options whose values are no tests.
VALUED = ("-k", "-m", "-p", "-o", "-c", "-W", "--deselect", "--ignore", "--rootdir", "--basetemp")
NO_TESTS = 5  # pytest's exit code where the selection leaves none
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.preload"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes at once (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="write durations.json anew")
    parser.add_argument(
        "--shuffle", nargs="?", type=int, const=random.randrange(10**6), metavar="SEED",
        help="files and their tests in an order drawn from SEED (from a new one, which is printed)",
    )  # fmt: skip
    parser.add_argument("--parity", action="store_true", help="tests/parity too, in processes with torch")
    options, arguments = parser.parse_known_args()
    asked, arguments = asked_among(arguments)
    known = json.loads(DURATIONS.read_text("utf-8")) if DURATIONS.exists() else {}
    here = [path for path in sorted(TESTS.iterdir()) if path != PARITY]  # which imports torch
    parts = deal(files_in(asked or here), known, options.jobs, options.shuffle)
    if options.parity:
        parts += deal(files_in([PARITY]), known, options.jobs, options.shuffle)
    parts = [files for files, _ in sorted(parts, key=lambda part: part[1], reverse=True)]
    os.environ |= ENVIRONMENT
    set_environment()
    environment = {}
    if options.shuffle is not None:
        environment["KERAS_TFM_TEST_ORDER"] = str(options.shuffle)
        print(f"order drawn: --shuffle {options.shuffle}", flush=True)

    began, results = time.monotonic(), []
    with servers() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        environment[SERVERS] = folder
        running = [pool.submit(run_part, files, arguments, environment) for files in parts]
        for done in concurrent.futures.as_completed(running):
            results.append(done.result())
            print(f"[{len(results)}/{len(parts)}, {time.monotonic() - began:.0f} s]", results[-1].pop("text"))
            list_slow(results[-1].get("tests", {}))
    repeat_alone([test for result in results for test in result.get("broken", ())], arguments)
    seconds = merge(results, "seconds")
    if options.record:
        DURATIONS.write_text(json.dumps({**known, **seconds}, indent=0, sort_keys=True) + "\n", "utf-8")
    raise SystemExit(summarise(results, seconds, time.monotonic() - began))


def asked_among(arguments):
    """(The folders, files and tests among the `arguments`, all others, those of options included)."""
    asked, others = [], []
    for before, argument in zip(("", *arguments), arguments, strict=False):
        is_there = before not in VALUED and pathlib.Path(argument.partition("::")[0]).exists()
        (asked if is_there else others).append(argument)
    return asked, others


def files_in(asked):
    """The test files that are asked for, by their names from the folder above tests/, and single tests."""
    found = {path for given in map(pathlib.Path, asked) for path in [given, *given.rglob("*.py")]}
    found = {path for path in found if path.is_file() and path.name.startswith("test_")}
    files = {path.resolve().relative_to(TESTS.resolve().parent).as_posix() for path in found}
    return sorted(files | {test for test in map(str, asked) if "::" in test})


def deal(files, known, jobs, seed=None):
    """[(files, seconds)]: `files` in parts of about equal `known` seconds, as many for each of `jobs`. Each
    file, longest first, goes to the part that has least. A `seed` draws which files share a part.
    """
    seconds = {file: known.get(file, UNKNOWN_SECONDS) for file in files}
    each = COMPILED_PART_SECONDS if os.environ.get("KERAS_TFM_JIT") == "1" else PART_SECONDS
    count = jobs * max(1, math.ceil(sum(seconds.values()) / each / jobs))
    parts = [([], 0.0) for _ in range(min(count, len(files)))]
    order = sorted(files, key=seconds.__getitem__, reverse=True)
    if seed is not None:
        random.Random(seed).shuffle(order)
    for file in order:
        least = min(range(len(parts)), key=lambda part: parts[part][1])
        parts[least] = [*parts[least][0], file], parts[least][1] + seconds[file]
    return [(sorted(names), total) for names, total in parts]


def run_part(files, arguments, environment):
    """What one pytest process says of `files`: conftest.py's report, the exit code and the text to print."""
    with tempfile.TemporaryDirectory() as folder:
        report, output = pathlib.Path(folder, "report.json"), pathlib.Path(folder, "output")
        environment = {**environment, "KERAS_TFM_TEST_REPORT": str(report)}
        process = PROCESSES.Process(target=run_pytest, args=([*arguments, *files], environment, output))
        process.start()
        process.join()
        result = json.loads(report.read_text("utf-8")) if report.exists() else {}
        lines = output.read_text("utf-8", "replace").rstrip().split("\n")
    is_fine = process.exitcode in (0, NO_TESTS)
    return {
        **result,
        "code": 0 if is_fine else process.exitcode,
        "text": lines[-1] if is_fine else "\n".join(lines),
    }


def run_pytest(arguments, environment, output):
    """Run pytest in this process, what it prints in the file `output`, and end with its code."""
    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= environment
    sys.exit(int(pytest.main(arguments)))


def repeat_alone(tests, arguments):
    """Run each of the failed `tests` again in a process of its own, and print what came."""
    for test in tests[:MOST_REPEATED]:
        result = run_part([test], arguments, {})
        words = "fails" if result["code"] else "PASSES: an earlier test changed what it stands on"
        print(f"alone it {words}: {test}", flush=True)
    if len(tests) > MOST_REPEATED:
        print(f"{len(tests) - MOST_REPEATED} more failed tests were not run again", flush=True)


def merge(results, name):
    """The counts called `name` of all parts together."""
    return dict(sum((collections.Counter(result.get(name, {})) for result in results), collections.Counter()))


def list_slow(tests):
    """Print which of the `tests`, {name: seconds}, took long."""
    for name, taken in sorted(tests.items(), key=lambda item: -item[1]):
        if taken > LISTED_SECONDS:
            print(f"CPU {taken:6.1f} s  {name}")
    sys.stdout.flush()


def invariants_of(results):
    """{invariant: seconds of all cases}, from names like tests/a.py::test_contract[invariant-case]."""
    seconds = collections.Counter()
    for name, taken in merge(results, "tests").items():
        _, contract, pair = name.partition("::test_contract[")
        if contract:
            seconds[pair.partition("-")[0]] += taken
    return seconds


def summarise(results, seconds, wall):
    """Print what all parts together came to; the exit code."""
    for reason, count in sorted(merge(results, "skips").items(), key=lambda item: -item[1]):
        print(f"skipped {count:5}  {reason}")
    folders = collections.Counter()
    for file, taken in seconds.items():
        folders[str(pathlib.PurePosixPath(file).parent)] += taken
    for folder, taken in folders.most_common():
        print(f"CPU {taken:6.0f} s  {folder}")
    for invariant, taken in invariants_of(results).most_common(SHOWN_INVARIANTS):
        print(f"CPU {taken:6.0f} s  {invariant}, all cases")
    outcomes = merge(results, "outcomes")
    broken = sum(result["code"] != 0 for result in results)
    failed = outcomes.get("failed", 0) + outcomes.get("error", 0)
    counts = f"{outcomes.get('passed', 0)} passed, {failed} failed, {outcomes.get('skipped', 0)} skipped"
    print(f"{sum(seconds.values()):.0f} s of CPU in {wall:.0f} s; {broken} of {len(results)} parts failed")
    print(counts)
    if not broken and not any(outcomes.values()):
        print("no test was run: nothing there has these names")
        return NO_TESTS
    return int(broken > 0)


if __name__ == "__main__":
    main()
