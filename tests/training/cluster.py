"""Real processes that train together on this machine."""

import json
import os
import socket
import subprocess
import sys


def start(module, *arguments, workers=1, **environment):
    """Processes of `python -m module ARGUMENTS`: one, or as many as work together through TF_CONFIG."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", **environment}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    if workers == 1:
        configs = [{}]
    else:
        with _free_ports(workers) as ports:
            cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        tasks = [{"type": "worker", "index": index} for index in range(workers)]
        configs = [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks]
    return [
        subprocess.Popen(command, env=environment | config, stderr=subprocess.PIPE, text=True)
        for config in configs
    ]


def wait(processes, timeout=1800):
    """[(exit code, standard error)] of the processes; they are killed where one takes too long."""
    ends = []
    try:
        for process in processes:
            _, errors = process.communicate(timeout=timeout)
            ends.append((process.returncode, errors))
    finally:
        for process in processes:
            kill(process)
    return ends


def kill(process):
    """Kill a process that may have ended, and take what is left of it."""
    process.kill()
    process.wait()
    process.stderr.close()


class _free_ports:
    """Ports of this machine that nobody listens on, held until the block ends."""

    def __init__(self, count):
        self.sockets = [socket.socket() for _ in range(count)]

    def __enter__(self):
        for item in self.sockets:
            item.bind(("127.0.0.1", 0))
        return [item.getsockname()[1] for item in self.sockets]

    def __exit__(self, *_):
        for item in self.sockets:
            item.close()
