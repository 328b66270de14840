"""What benchmarks share: workers that take turns, the device, and the record of results.

Each peer is a process of its own, and the processes take turns: whatever else the machine does falls on all
alike. `parse` adds `--device`: "cpu" hides all GPUs, "gpu" runs the peers in each of `PRECISIONS`, which are
the columns of the table then. Where `benchmarks.all` runs a benchmark, `record` keeps its results.
"""

import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import unittest.mock

import numpy as np

from keras_tfm.launch import visible_gpus

PRECISIONS = ("float32", "tf32", "bfloat16")  # on a GPU; on a CPU float32 alone
DEVICE = "KERAS_TFM_BENCHMARK_DEVICE"  # environment variables: "cpu" or "gpu"
PRECISION = "KERAS_TFM_BENCHMARK_PRECISION"  # what a worker computes in, where it is on a GPU
MISSING = "missing"  # a worker's answer where a package is not installed, followed by its name
RECORD = "KERAS_TFM_BENCHMARK_RECORD"  # the file of `record`


def parse(parser, has_gpu_part=True):
    """The options of a benchmark: `parser`'s and `--device`, which is put into effect.

    To be called before TensorFlow or torch is imported. It exits with a line and code 2 where a GPU is asked
    for, and none is visible or the benchmark has no part that runs on one. A worker has the device of the
    process that started it.
    """
    parser.add_argument(
        "--device", choices=["cpu", "gpu"], default="cpu", help="where the peers compute; cpu hides all GPUs"
    )
    options = parser.parse_args()
    if getattr(options, "worker", None):
        sys.excepthook = tell_what_is_missing
        return options
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    elif not has_gpu_part:
        parser.exit(2, f"{parser.prog}: error: --device gpu: this benchmark computes on CPUs alone\n")
    elif not visible_gpus():
        parser.exit(2, f"{parser.prog}: error: --device gpu: no GPU is visible\n")
    os.environ[DEVICE] = options.device
    return options


def tell_what_is_missing(kind, error, trace):
    """Let a worker whose package is not installed answer so; any other error is printed as Python does."""
    if isinstance(error, ModuleNotFoundError):
        print(MISSING, error.name, flush=True)
    else:
        sys.__excepthook__(kind, error, trace)


def prepare_keras(precision=None):
    """Let Keras compute in `precision`, or in the worker's; to be called before the model is made."""
    precision = precision or os.environ.get(PRECISION)
    if precision is None:
        return
    import keras
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    if precision == "bfloat16":
        keras.config.set_dtype_policy("mixed_bfloat16")


def prepare_torch(in_bfloat16=False):
    """Let torch use every core, or the GPU in the worker's precision; returns the device for its tensors.

    `in_bfloat16` is for a CPU: torch then casts what it multiplies.
    """
    import torch

    torch.set_num_threads(os.cpu_count())
    if in_bfloat16:
        torch.autocast("cpu", torch.bfloat16).__enter__()  # until the worker ends
    precision = os.environ.get(PRECISION)
    if precision is None:
        return "cpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    if precision == "bfloat16":
        torch.autocast("cuda", torch.bfloat16).__enter__()  # until the worker ends
    return "cuda"


class Worker:
    """A process `python -m MODULE --worker NAME ARGUMENTS` that serves `serve` below."""

    def __init__(self, module, name, *arguments, precision=None):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "--worker", name, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ({} if precision is None else {PRECISION: precision}),
        )

    def ask(self, command):
        """Send a line, return the words of the answer.

        Raises ModuleNotFoundError if a package that the worker needs is not installed.
        """
        with contextlib.suppress(BrokenPipeError):  # it has ended: what it has written says why
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"{self.name} died")
        if answer[0] == MISSING:
            raise ModuleNotFoundError(f"{answer[1]} is not installed", name=answer[1])
        return answer

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def serve(step):
    """Answer each line N on standard input with "seconds tokens" of N calls of `step() -> tokens`."""
    for line in sys.stdin:
        if line.strip() == "memory":
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)
            continue
        began = time.perf_counter()
        tokens = sum(step() for _ in range(int(line)))
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        print(time.perf_counter() - began, tokens, flush=True)


def import_torchvision():
    """Import torchvision, as transformers and timm do, where torch has no CUDA.

    Its compiled operators only fit one that has; none of them is used.
    """
    with unittest.mock.patch("torch.library.register_fake", lambda *_, **__: lambda function: function):
        import torchvision  # noqa: F401


def sgemm_rate(size=2048, times=4):
    """The machine's float32 matrix product rate in FLOP/s, as NumPy's library reaches it now."""
    a = np.random.default_rng(0).random((size, size), np.float32)
    began = time.perf_counter()
    for _ in range(times):
        a @ a
    return times * 2 * size**3 / (time.perf_counter() - began)


def installed(workers, warmup, case):
    """The `workers` whose packages are installed, after `warmup` steps; the others are printed."""
    present = []
    for worker in workers:
        try:
            worker.ask(str(warmup))
            present.append(worker)
        except ModuleNotFoundError as error:
            print(f"{worker.name} is left out: {error}", flush=True)
            record(case, worker.name, None, f"left out: {error}")
            worker.close()
    return present


def race(workers, rounds, steps):
    """{name: tokens per second of each round}, and the sgemm rate of each round."""
    rates, sgemm = {worker.name: [] for worker in workers}, []
    for _ in range(rounds):
        sgemm.append(sgemm_rate())
        time.sleep(0.5)  # until the threads of NumPy's library, too, have gone to sleep
        for worker in workers:
            seconds, tokens = map(float, worker.ask(str(steps)))
            rates[worker.name].append(tokens / seconds)
    return rates, sgemm


def in_words(value):
    """A number to three digits or, from 100 on, to whole ones."""
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def report(workers, rates, sgemm, flops_per_token=None, unit="tokens"):
    """Print a row a worker: `unit`s a second, the first worker's ratio to it (median, min, max), memory."""
    print(f"{'':22}{unit + '/s':>10}{'ratio':>8}{'min':>7}{'max':>7}{'of sgemm':>10}{'peak MiB':>10}")
    for worker in workers:
        own = rates[worker.name]
        ratio = ratios(rates, workers[0].name, worker.name)
        share = ""
        if flops_per_token:
            share = (
                f"{statistics.median(r * flops_per_token / g for r, g in zip(own, sgemm, strict=True)):.0%}"
            )
        print(
            f"{worker.name:22}{in_words(statistics.median(own)):>10}{statistics.median(ratio):8.2f}"
            f"{min(ratio):7.2f}{max(ratio):7.2f}{share:>10}{float(worker.ask('memory')[0]):10,.0f}"
        )


def report_precisions(names, results, unit="tokens"):
    """Print a row a worker: `unit`s a second and the first worker's ratio to it, in each precision.

    `results` are {precision: {name: rates}}.
    """
    print(f"{'':22}" + "".join(f"{f'{kind}, {unit}/s':>22}{'ratio':>7}" for kind in results))
    for name in names:
        cells = (
            f"{in_words(statistics.median(rates[name])):>22}"
            f"{statistics.median(ratios(rates, names[0], name)):7.2f}"
            for rates in results.values()
        )
        print(f"{name:22}" + "".join(cells))


def ratios(rates, first, name):
    """The rate of `first` divided by the rate of `name`, in each round."""
    return [a / b for a, b in zip(rates[first], rates[name], strict=True)]


def compare(title, module, peers, rounds, steps, warmup, arguments=(), flops_per_token=None, unit="tokens"):
    """Race `peers`, a worker process of `module` each with `arguments`, and print the table.

    Peers that are not installed are left out. Returns {name: median `unit`s per second}, on
    a GPU of the last precision.
    """
    print(f"\n{title}, {rounds} rounds of {steps} steps, ratio = {peers[0]} / row", flush=True)
    is_on_gpu = os.environ.get(DEVICE) == "gpu"
    results = {}
    for precision in PRECISIONS if is_on_gpu else [None]:
        case = title if precision is None else f"{title}, {precision}"
        workers = [Worker(module, name, *arguments, precision=precision) for name in peers]
        workers = installed(workers, warmup, case)
        rates, sgemm = race(workers, rounds, steps)
        if not is_on_gpu:
            report(workers, rates, sgemm, flops_per_token, unit)
        for worker in workers:
            worker.close()
        results[precision] = rates
        for name, own in rates.items():
            ratio = ratios(rates, peers[0], name)
            record(case, name, statistics.median(own), f"{unit}/s", ratio, f"{peers[0]} / this")
    if is_on_gpu:
        report_precisions(list(rates), results, unit)
    return {name: statistics.median(own) for name, own in rates.items()}


def record(case, row, value, unit, ratio=(), compares=""):
    """Keep a result for the table of `benchmarks.all`, if that runs this benchmark.

    Args:
        case, row: what was measured, and of whom.
        value, unit: the number and its unit; None, and why there is none.
        ratio: how it compares with another row of its case, one number per round.
        compares: what by what the ratio divides.
    """
    if path := os.environ.get(RECORD):
        spread = [statistics.median(ratio), min(ratio), max(ratio)] if len(ratio) else None
        line = {"case": case, "row": row, "value": value, "unit": unit, "ratio": spread, "compares": compares}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, default=float) + "\n")
