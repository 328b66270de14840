"""`tf.distribute` strategies by name."""

import itertools
import os
from typing import Any

import tensorflow as tf

from keras_tfm.configs import parse_json
from keras_tfm.private.tensorflow import first_collective_key, set_first_collective_key

ASK_EVERY = 10  # steps between questions that several workers answer together
NAMES = "none, mirrored, mirrored:N, multi-worker, tpu, tpu:ADDRESS"


def strategy(name: str = "none") -> tf.distribute.Strategy:
    """The strategy called `name`: none, mirrored, mirrored:N, multi-worker, tpu or tpu:ADDRESS.

    `mirrored` takes every GPU; `mirrored:N` N of them or, where there is none, N parts of the CPU,
    which must be asked for before TensorFlow has run anything. `multi-worker` reads the cluster from
    the environment's TF_CONFIG. Models are made and compiled within `strategy.scope()`; their batch
    size stays the global one. Raises ValueError for other names, devices that are not there, and a
    malformed TF_CONFIG. On TPUs it follows TensorFlow's documentation, and has not been tried.
    """
    kind, _, argument = name.partition(":")
    if kind == "none" and not argument:
        return tf.distribute.get_strategy()
    if kind == "mirrored":
        return tf.distribute.MirroredStrategy(_devices(argument) if argument else None)
    if kind == "multi-worker" and not argument:
        check_cluster(os.environ.get("TF_CONFIG"))
        return tf.distribute.MultiWorkerMirroredStrategy()
    if kind == "tpu":
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(argument or "")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    raise ValueError(f"There is no strategy {name!r}; there are {NAMES}.")


_num_keyed = itertools.count(1)


def use_own_collective_keys(strategy: tf.distribute.Strategy) -> None:
    """Give a `MirroredStrategy` keys of its own for what its replicas exchange.

    TensorFlow numbers them anew for each strategy and keeps their shapes for the whole process, so a second
    strategy with other shapes would fail, "Shape mismatch in the collective instance", and all after it.
    """
    extended = strategy.extended
    if type(strategy) is tf.distribute.MirroredStrategy and not first_collective_key(extended):
        set_first_collective_key(extended, 1_000 * next(_num_keyed))


def num_workers(strategy: tf.distribute.Strategy) -> int:
    """How many processes train together under `strategy`."""
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict() if _is_multi_worker(strategy) else {}
    return sum(len(cluster.get(kind, ())) for kind in ("chief", "worker")) or 1


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """The number of this process among those that train together, the chief's being 0."""
    if not _is_multi_worker(strategy):
        return 0
    resolver = strategy.cluster_resolver
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_id + (has_chief and resolver.task_type != "chief")


def sum_over_workers(strategy: tf.distribute.Strategy, value: float) -> float:
    """The sum of what all workers give, a number each; all must ask, so it also waits for them."""
    if num_workers(strategy) == 1:
        return float(value)
    share = tf.constant(value / len(strategy.extended.worker_devices), tf.float64)
    return float(
        strategy.reduce("SUM", strategy.experimental_distribute_values_from_function(lambda _: share), None)
    )


def _is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def _devices(argument: str) -> list[str]:
    if not argument.isdecimal() or int(argument) < 1:
        raise ValueError(f"mirrored:N needs a number of devices, 1 or more; it is {argument!r}.")
    count = int(argument)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if count > len(gpus):
            raise ValueError(f"mirrored:{count} needs {count} GPUs; this machine has {len(gpus)}.")
        return [f"GPU:{i}" for i in range(count)]
    (cpu,) = tf.config.list_physical_devices("CPU")
    if len(tf.config.get_logical_device_configuration(cpu) or [None]) < count:
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
        except RuntimeError:
            raise ValueError(
                f"mirrored:{count} must be made before TensorFlow has run: it parts the CPU into {count}."
            ) from None
    return [f"CPU:{i}" for i in range(count)]


def check_cluster(text: str | None) -> None:
    """Raise ValueError, naming the key, unless `text` is a TF_CONFIG of workers that includes this one."""
    if not text:
        raise ValueError("multi-worker needs the environment variable TF_CONFIG; it is not set.")
    try:
        config = parse_json(text)
    except ValueError as error:
        raise ValueError(f"TF_CONFIG is not JSON: {error}") from None

    def expect(valid: Any, key: str, what: str, value: Any) -> None:
        if not valid:
            raise ValueError(f"TF_CONFIG: {key} must be {what}; it is {value!r}.")

    expect(isinstance(config, dict), "the whole", "an object", config)
    cluster = config.get("cluster")
    expect(isinstance(cluster, dict) and cluster, "cluster", 'an object {"worker": [addresses]}', cluster)
    for kind, addresses in cluster.items():
        valid = isinstance(addresses, list) and all(
            isinstance(address, str) and address.rpartition(":")[2].isdecimal() for address in addresses
        )
        expect(valid and addresses, f"cluster.{kind}", 'a list of addresses "host:port"', addresses)
    task = config.get("task")
    expect(isinstance(task, dict), "task", 'an object {"type": "worker", "index": 0}', task)
    kind, index = task.get("type"), task.get("index")
    expect(kind in cluster, "task.type", f"one of {', '.join(cluster)}", kind)
    expect(
        isinstance(index, int) and 0 <= index < len(cluster[kind]),
        "task.index",
        f"from 0 to {len(cluster[kind]) - 1}",
        index,
    )
