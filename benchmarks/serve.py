"""The exports of a trained classifier of texts: latency, throughput and accuracy of each format.

    python -m benchmarks.serve RUN FILE

RUN is what `keras-tfm train classify` wrote, FILE a table of texts and labels. Every format, in 32 and in
8 bits, is exported and answers the first texts of FILE in a process of its own, in calls of 1, 8 and 32; the
processes take turns. Printed are, for each size of a call, the median of its milliseconds (wall and CPU),
texts a second, and how many times the SavedModel's throughput that is: the median, least and most of the
rounds, by wall and by CPU time. Neighbours on the machine disturb CPU time less; with `--threads 1` it is
fair, since threads that wait may spin.
"""

import argparse
import itertools
import os
import pathlib
import statistics
import sys
import tempfile
import time

from benchmarks.rounds import Worker, parse, record

FORMATS = ("saved_model", "onnx", "onnx-int8", "litert", "litert-int8", "openvino", "openvino-int8")
SIZES = (1, 8, 32)
TEXTS = 64  # of each round


def answer(name, folder, path, threads):
    """Answer "size" with the wall and CPU seconds of all calls, "accuracy" with the share of right labels."""
    from keras_tfm.serving import load

    served = load(pathlib.Path(folder, name), int(threads))
    lines = pathlib.Path(path).read_text("utf-8").splitlines()
    texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
    timed = list(itertools.islice(itertools.cycle(texts), TEXTS))

    def seconds(size):
        began = time.perf_counter(), time.process_time()
        for start in range(0, TEXTS, size):
            served(timed[start : start + size])
        return time.perf_counter() - began[0], time.process_time() - began[1]

    for size in SIZES:
        seconds(size)
    for line in sys.stdin:
        if line.strip() == "accuracy":
            answers = [served(list(texts[start : start + 32])) for start in range(0, len(texts), 32)]
            found = [str(label) for answer in answers for label in answer["label"]]
            print(sum(map(str.__eq__, found, labels)) / len(labels), flush=True)
        else:
            print(*seconds(int(line)), flush=True)


def measure(workers, rounds):
    """{(name, size): [(wall, CPU seconds) of each round]}."""
    times = {(worker.name, size): [] for worker in workers for size in SIZES}
    for _ in range(rounds):
        for size in SIZES:
            for worker in workers:
                times[worker.name, size].append(tuple(map(float, worker.ask(str(size)))))
    return times


def report(times, names, accuracies, folder):
    """Print a table for each size of a call."""
    for size in SIZES:
        head = f"{'ms':>18}{'CPU ms':>8}{'texts/s':>9}   times the SavedModel's (by CPU time)"
        print(f"\ncalls of {size}: {head}")
        for name in names:
            walls, cpus = zip(*times[name, size], strict=True)
            base = times[names[0], size]
            calls, words = TEXTS / size, []
            for kind, own in enumerate((walls, cpus)):
                ratio = [x[kind] / y for x, y in zip(base, own, strict=True)]
                words.append(f"{statistics.median(ratio):5.2f} [{min(ratio):.2f}, {max(ratio):.2f}]")
            wall, cpu = statistics.median(walls), statistics.median(cpus)
            record(f"calls of {size}, CPU time", name, 1e3 * cpu / calls, "ms", ratio, "saved_model / this")
            print(
                f"  {name:15}{1e3 * wall / calls:13.1f}{1e3 * cpu / calls:8.1f}{TEXTS / wall:9,.0f}   "
                f"{words[0]}  ({words[1].strip()})"
            )
    print(f"\n{'':17}{'accuracy':>10}{'MiB':>8}")
    for name in names:
        files = [path for path in pathlib.Path(folder, name).rglob("*") if path.is_file()]
        record("accuracy", name, accuracies[name], "")
        print(f"  {name:15}{accuracies[name]:10.4f}{sum(path.stat().st_size for path in files) / 2**20:8.1f}")


def export(run, folder, names):
    """Write each format of the task in `run` that `folder` lacks, and return the task."""
    from keras_tfm import tasks

    task = tasks.load(run)
    for name in names:
        if not pathlib.Path(folder, name).exists():
            kind, _, quantization = name.partition("-")
            task.export(pathlib.Path(folder, name), format=kind, quantization=quantization or None)
    return task


def main():
    if sys.argv[1:2] == ["--worker"]:
        answer(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser("benchmarks.serve", description=__doc__.partition("\n")[0])
    parser.add_argument("run", metavar="RUN")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--formats", nargs="+", default=FORMATS, choices=FORMATS)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--exports", metavar="FOLDER", help="keep the exports here, or take them from here")
    options = parse(parser, has_gpu_part=False)
    os.environ["TF_NUM_INTRAOP_THREADS"] = os.environ["TF_NUM_INTEROP_THREADS"] = str(options.threads)
    names = list(dict.fromkeys(["saved_model", *options.formats]))
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(options.exports or scratch)
        texts, labels = export(options.run, folder, names).read_examples([options.file])
        path = pathlib.Path(scratch, "texts.tsv")
        rows = (f"{' '.join(text.split())}\t{label}\n" for text, label in zip(texts, labels, strict=True))
        path.write_text("".join(rows), "utf-8")
        workers = [Worker("benchmarks.serve", name, folder, path, options.threads) for name in names]
        times = measure(workers, options.rounds)
        accuracies = {worker.name: float(worker.ask("accuracy")[0]) for worker in workers}
        for worker in workers:
            worker.close()
        print(f"{len(texts)} texts, {options.rounds} rounds of {TEXTS}, {options.threads} threads")
        report(times, names, accuracies, folder)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    sys.exit(main())
