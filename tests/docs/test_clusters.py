"""What docs/guides/clusters.md asks readers to run, taken from the page: TF_CONFIGs, scripts, a manifest."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

from keras_tfm.cli import parser
from keras_tfm.cli.command import Command
from keras_tfm.cli.generated import given
from keras_tfm.launch import free_ports
from keras_tfm.training.strategy import check_cluster

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "clusters.md"
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of the wheel")


def blocks(language):
    """The code blocks of a language, in their order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def told(script, folder, **environment):
    """What `keras-tfm` is told by a script: [(its TF_CONFIG, its arguments)], and the script's exit code."""
    commands = {
        "keras-tfm": f'#!/bin/sh\nprintf "%s\\n" "$TF_CONFIG" "$*" >>{folder}/told\nexit ${{CODE:-0}}\n',
        "scontrol": f'#!/bin/sh\n[ $1 = show ] && printf "node1\\nnode2\\n" || echo $@ >>{folder}/requeued\n',
        "srun": '#!/bin/sh\nshift\nfor i in 0 1; do SLURM_PROCID=$i "$@" || code=$?; done\nexit ${code:-0}\n',
    }
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in commands.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env={"PATH": path, **environment}, check=False)
    lines = (folder / "told").read_text().splitlines()
    return list(zip(lines[::2], lines[1::2], strict=True)), done.returncode


def check(calls, num_workers):
    """Each call is a valid command of a worker; together they are one cluster, each of them once."""
    configs = [json.loads(config) for config, _ in calls]
    for config, arguments in calls:
        check_cluster(config)
        assert given(parser().parse_args(arguments.split()), Command)["strategy"] == "multi-worker"
    assert {len(config["cluster"]["worker"]) for config in configs} == {num_workers}
    assert len({json.dumps(config["cluster"]) for config in configs}) == 1
    assert [config["task"]["index"] for config in configs] == list(range(num_workers))


def test_two_machines_by_hand(tmp_path):
    calls = []
    for number, script in enumerate(blocks("sh")[:2]):
        (tmp_path / str(number)).mkdir()
        calls += told(script, tmp_path / str(number))[0]
    check(calls, 2)


@pytest.mark.parametrize("code", [0, 1, 143])
def test_slurm(code, tmp_path):
    (script,) = blocks("bash")
    script = script.replace("/shared", str(tmp_path))
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_ID": "7", "CODE": str(code)}
    calls, ended = told(script, tmp_path, **slurm)
    check(calls, 2)
    assert json.loads(calls[0][0])["cluster"]["worker"] == ["node1:2222", "node2:2222"]
    assert ended == code and (tmp_path / "requeued").exists() == (code == 143)
    assert not any("--resume" in arguments for _, arguments in calls)
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "config.json").touch()
    assert all("--resume" in arguments for _, arguments in told(script, tmp_path, **slurm)[0][2:])


def test_kubernetes(tmp_path):
    (manifest,) = blocks("yaml")
    service, job = yaml.safe_load_all(manifest)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name = job["metadata"]["name"]
    assert service["metadata"]["name"] == pod["subdomain"] == name and service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}  # a label that every Job puts on its pods
    assert [volume["name"] for volume in pod["volumes"]] == [v["name"] for v in container["volumeMounts"]]
    assert container["command"] == ["bash", "-c"]
    (script,) = container["args"]
    (environment,) = container["env"]
    count = int(environment["value"])
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == count
    for index in range(count):
        numbers = {environment["name"]: environment["value"], "JOB_COMPLETION_INDEX": str(index)}
        calls, code = told(script.replace("/shared", str(tmp_path)), tmp_path, **numbers)
        assert code == 0
    check(calls, count)
    port = container["ports"][0]["containerPort"]
    addresses = json.loads(calls[0][0])["cluster"]["worker"]
    assert addresses == [f"{name}-{i}.{name}:{port}" for i in range(count)]


CLIENT = """
import sys
import tensorflow as tf
import tensorflow_text

dataset = tf.data.Dataset.from_tensor_slices(["a b", "c d e", "f"] * 10)
dataset = dataset.map(tensorflow_text.WhitespaceTokenizer().tokenize).map(tf.size)
{distribute}
print(sorted(int(size) for size in dataset) == [1] * 10 + [2] * 10 + [3] * 10)
"""


@pytest.mark.slow
def test_tf_data_service(tmp_path):
    *_, service, distribute = blocks("python")
    commands = blocks("sh")[2]
    for old, new in zip(("5050", "5051", "5052"), map(str, free_ports(3)), strict=True):
        commands, distribute = commands.replace(old, new), distribute.replace(old, new)
    (tmp_path / "service.py").write_text(service)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    servers = [
        subprocess.Popen(
            [sys.executable, *line.removeprefix("python ").removesuffix(" &").split()],
            cwd=tmp_path,
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        for line in commands.splitlines()
    ]
    try:
        client = [sys.executable, "-c", CLIENT.format(distribute=distribute)]
        answer = subprocess.run(
            client, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert answer.stdout == "True\n", answer.stderr[-2000:]
    finally:
        for server in servers:
            server.kill()
            server.wait()
