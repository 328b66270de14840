"""Workers, a process each, that take turns: whatever else the machine does falls on all alike."""

import resource
import statistics
import subprocess
import sys
import time
import unittest.mock

import numpy as np


class Worker:
    """A process `python -m MODULE NAME ARGUMENTS` that serves `serve` below."""

    def __init__(self, module, name, *arguments):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, "--worker", name, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, command):
        """Send a line, return the words of the answer."""
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name} died")
        return answer.split()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def serve(step):
    """Answer each line N on standard input with "seconds tokens" of N calls of `step() -> tokens`."""
    for line in sys.stdin:
        if line.strip() == "memory":
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)
            continue
        began = time.perf_counter()
        tokens = sum(step() for _ in range(int(line)))
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


def race(workers, rounds, steps, warmup):
    """{name: tokens per second of each round}, and the sgemm rate of each round."""
    for worker in workers:
        worker.ask(str(warmup))
    rates, sgemm = {worker.name: [] for worker in workers}, []
    for _ in range(rounds):
        sgemm.append(sgemm_rate())
        time.sleep(0.5)  # until the threads of NumPy's library, too, have gone to sleep
        for worker in workers:
            seconds, tokens = map(float, worker.ask(str(steps)))
            rates[worker.name].append(tokens / seconds)
    return rates, sgemm


def report(workers, rates, sgemm, flops_per_token=None, unit="tokens"):
    """Print a row a worker: `unit`s a second, the first worker's ratio to it (median, min, max), memory."""
    first = rates[workers[0].name]
    print(f"{'':22}{unit + '/s':>10}{'ratio':>8}{'min':>7}{'max':>7}{'of sgemm':>10}{'peak MiB':>10}")
    for worker in workers:
        own = rates[worker.name]
        ratio = [a / b for a, b in zip(first, own, strict=True)]
        share = ""
        if flops_per_token:
            share = (
                f"{statistics.median(r * flops_per_token / g for r, g in zip(own, sgemm, strict=True)):.0%}"
            )
        rate = statistics.median(own)
        rate = f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"
        print(
            f"{worker.name:22}{rate:>10}{statistics.median(ratio):8.2f}{min(ratio):7.2f}"
            f"{max(ratio):7.2f}{share:>10}{float(worker.ask('memory')[0]):10,.0f}"
        )


def compare(title, module, peers, rounds, steps, warmup, arguments=(), flops_per_token=None, unit="tokens"):
    """Race `peers`, a worker process of `module` each with `arguments`, and print the table.

    Returns {name: median `unit`s per second}.
    """
    workers = [Worker(module, name, *arguments) for name in peers]
    print(f"\n{title}, {rounds} rounds of {steps} steps, ratio = {peers[0]} / row", flush=True)
    rates, sgemm = race(workers, rounds, steps, warmup)
    report(workers, rates, sgemm, flops_per_token, unit)
    for worker in workers:
        worker.close()
    return {name: statistics.median(own) for name, own in rates.items()}
