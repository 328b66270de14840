"""The workers of one training run, as processes of this machine: what `keras-tfm launch` does.

It imports neither TensorFlow nor Keras, so it starts at once and has no threads before its workers run.
"""

import contextlib
import ctypes
import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1  # linux/prctl.h
STDERR = 2
COUNT = "KERAS_TFM_WORKERS"  # the variable by which a worker knows of `launch`, and how many there are


def launch(command, workers, grace=120.0):
    """Run `command`, a list, in each of `workers` processes that share a TF_CONFIG; returns the exit code.

    The chief, worker 0, writes to this process's output. The output of the others goes to standard error line
    by line, with their number in front. The exit code comes from the first worker that did not end with 0, or
    is 128 + n if signal n ended it. When a worker fails the others get SIGTERM, at which a training saves;
    the first SIGINT, SIGTERM or SIGHUP sends it to all, and further ones are passed on. Workers that have not
    ended `grace` seconds later are killed. On Linux the workers end with this process, however it ends.

    Raises:
        ValueError: if the workers cannot be started; see `worker_environments`.
    """
    environments = worker_environments(workers)
    events: queue.SimpleQueue = queue.SimpleQueue()  # (worker, its code), or (None, a signal)
    running: dict = {}
    with _signals_to(events):
        try:
            # Start all processes before any thread, because forking with threads is not safe.
            for index, environment in enumerate(environments):
                running[index] = _start(command, index, environment)
            writers = [
                _in_thread(_write_lines, process.stdout, f"[worker {index}] ".encode())
                for index, process in running.items()
                if process.stdout
            ]
            for index, process in running.items():
                _in_thread(lambda i=index, process=process: events.put((i, process.wait())))
            code = _supervise(running, events, grace)
            for writer in writers:
                writer.join(timeout=5)
            return code
        finally:
            _kill(running)


def worker_environments(workers):
    """The environment of each worker: its TF_CONFIG, and an equal share of the GPUs if there are any.

    Raises ValueError for less than one worker, for more workers than GPUs, and if TF_CONFIG is set already.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1; it is {workers}.")
    if os.environ.get("TF_CONFIG"):
        raise ValueError("TF_CONFIG is set, so this process is a worker itself: unset it to launch workers.")
    gpus = visible_gpus()
    if gpus and len(gpus) < workers:
        raise ValueError(
            f"{workers} workers need a GPU each, or none; there are {len(gpus)}. "
            "Set CUDA_VISIBLE_DEVICES=-1 to use none."
        )
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(workers)]}
    share = len(gpus) // workers
    environments = []
    for index in range(workers):
        config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config), COUNT: str(workers)}
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[index * share : (index + 1) * share])
        environments.append(environment)
    return environments


def visible_gpus():
    """The names of this machine's GPUs, as in CUDA_VISIBLE_DEVICES."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        if not shutil.which("nvidia-smi"):
            return []
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, check=False)
        return answer.stdout.split() if answer.returncode == 0 else []
    gpus = []
    for name in map(str.strip, names.split(",")):
        if name in ("", "-1"):  # CUDA ignores what follows an invalid one
            break
        gpus.append(name)
    return gpus


def free_ports(count):
    """Different ports that nobody listens on, outside the range that systems use for outgoing connections."""
    ports = []
    with contextlib.ExitStack() as held:
        for port in random.SystemRandom().sample(range(20_000, 32_768), 1_000):
            with contextlib.suppress(OSError):
                held.enter_context(socket.socket()).bind(("", port))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise ValueError(f"There are no {count} free ports on this machine.")


def _start(command, index, environment):
    is_chief = index == 0
    # A process group of its own: a signal from the terminal then reaches a worker once, passed on by us.
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=None if is_chief else subprocess.PIPE,
        stderr=None if is_chief else subprocess.STDOUT,
        process_group=0,
        preexec_fn=_end_with_parent(),
    )


def _end_with_parent():
    """A function for a new process to call, so that it ends when this one does; None on systems without
    that.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask():
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the call
            os._exit(1)

    return ask


def _supervise(running, events, grace):
    """Wait for all workers and return the exit code."""
    code, stopping, deadline, asked = 0, False, None, None
    while running:
        try:
            worker, number = events.get(timeout=deadline and max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            names = ", ".join(map(str, running))
            _say(f"worker {names}: killed, {grace:g} s after it was asked to end")
            _kill(running)
            deadline = None
            continue
        if worker is None:
            _send(running, number if asked else signal.SIGTERM)
            asked = asked or number
        else:
            del running[worker]
            if number == 0 or code:
                continue
            code = number if number > 0 else 128 - number
            if asked and code == 128 + signal.SIGTERM:
                code = 128 + asked
            if stopping:
                continue
            how = f"exit code {number}" if number > 0 else signal.Signals(-number).name
            _say(f"worker {worker} ended with {how}" + "; the others are stopped" * bool(running))
            _send(running, signal.SIGTERM)
        if not stopping:
            stopping, deadline = True, time.monotonic() + grace
    return code


def _send(running, number):
    for process in running.values():
        process.send_signal(number)


def _kill(running):
    """Kill the workers and the processes that they started."""
    for process in running.values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _signals_to(events):
    """Put (None, number) into `events` for every signal that would end this process."""
    caught = [
        number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN
    ]  # nohup sets SIGHUP to be ignored
    before = {number: signal.signal(number, lambda n, _: events.put((None, n))) for number in caught}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def _write_lines(stream, prefix):
    r"""Copy the lines of `stream` to standard error; of a line overwritten with \r, what a terminal would
    show.
    """
    for line in stream:
        text = line.rstrip(b"\r\n").rpartition(b"\r")[2]
        if text.strip() or line == b"\n":
            os.write(STDERR, prefix + text + b"\n")


def _say(text):
    os.write(STDERR, f"keras-tfm: {text}\n".encode())
