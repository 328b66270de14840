"""How long an index of images takes to find the nearest vectors: all of them compared, and by a graph.

    python -m benchmarks.search                       # 100,000 vectors of 512 numbers
    python -m benchmarks.search --count 1000000

The vectors are drawn near a space of 48 dimensions, so that they have neighbours, as vectors of real images
have; they are added 1,024 at a time, as `keras-tfm search index` does. The graph needs Faiss, the extra
`search`. Measured with one thread (OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1), other work beside it: all
compared in 20 ms of CPU; a graph made in 113 s of CPU; by it 2.3 ms, and 100 % of the nearest ten.
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np

from benchmarks.rounds import parse, record

AT_ONCE, DIMENSIONS, TOP = 1_024, 48, 10


def drawn(rng, basis, count):
    """Vectors (count, E) of length 1 near the space of `basis` (DIMENSIONS, E)."""
    width = basis.shape[1]
    x = rng.normal(size=(count, DIMENSIONS)) @ basis + 0.3 * rng.normal(size=(count, width))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype("float32")


def timed(function, *arguments):
    """(What it returns, (seconds by the clock, seconds of CPU))."""
    begin = time.perf_counter(), time.process_time()
    found = function(*arguments)
    return found, np.subtract((time.perf_counter(), time.process_time()), begin)


def milliseconds(seconds):
    """The medians of what `timed` measured."""
    clock, processor = 1e3 * np.median(seconds, axis=0)
    return f"{clock:.1f} ms, {processor:.1f} ms of CPU"


def main():
    """Print the median milliseconds of a query, and how many of the nearest ten a graph finds."""
    parser = argparse.ArgumentParser("benchmarks.search", description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--queries", type=int, default=50)
    arguments = parse(parser, has_gpu_part=False)
    from keras_tfm.tasks.images.image_index import Image, ImageIndex, IndexConfig

    rng = np.random.default_rng(0)
    basis = rng.normal(size=(DIMENSIONS, arguments.width)) / np.sqrt(DIMENSIONS)
    with tempfile.TemporaryDirectory() as folder:
        index = ImageIndex.create(pathlib.Path(folder, "index"), IndexConfig("none", "none", arguments.width))
        for first in range(0, arguments.count, AT_ONCE):
            rows = range(first, min(first + AT_ONCE, arguments.count))
            index.add([Image(f"/{row}.png", 1, 1) for row in rows], drawn(rng, basis, len(rows)))
        asked = drawn(rng, basis, arguments.queries)
        index.search(asked[0], TOP, True)  # reads the files
        exact, seconds = zip(*(timed(index.search, vector, TOP, True) for vector in asked), strict=True)
        record("a query", "all compared", 1e3 * np.median(seconds, axis=0)[1], "ms of CPU")
        print(f"{len(index):,} vectors of {arguments.width}, all compared: {milliseconds(seconds)}")
        _, seconds = timed(index.connect)
        record("a graph", "made", seconds[1], "s of CPU")
        print(f"a graph of them is made in {seconds[0]:.0f} s, {seconds[1]:.0f} s of CPU")
        found, seconds = zip(*(timed(index.search, vector, TOP) for vector in asked), strict=True)
        recall = np.mean([len(a & b) for a, b in zip(paths(found), paths(exact), strict=True)]) / TOP
        record("a query", "by the graph", 1e3 * np.median(seconds, axis=0)[1], "ms of CPU")
        record("a query", "of the nearest, by the graph", recall, "")
        print(f"by the graph: {milliseconds(seconds)}, {recall:.1%} of the nearest {TOP}")


def paths(answers):
    """The set of paths in each answer of a search."""
    return [{path for path, _ in answer} for answer in answers]


if __name__ == "__main__":
    main()
