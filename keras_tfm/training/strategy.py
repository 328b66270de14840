"""`tf.distribute` strategies by name."""

import itertools
import os
from typing import Any

import tensorflow as tf

from keras_tfm.configs import parse_json
from keras_tfm.private.tensorflow import first_collective_key, set_first_collective_key

ASK_EVERY = 10  # steps between joint decisions of several workers
NAMES = "none, mirrored, mirrored:N, multi-worker, tpu, tpu:ADDRESS"


def strategy(name: str = "none") -> tf.distribute.Strategy:
    """The `tf.distribute` strategy called `name`. Models are made and compiled within `strategy.scope()`.

    name              meaning
    none              no distribution: the first device
    mirrored          all GPUs of this machine
    mirrored:N        N GPUs or, without GPUs, N parts of the CPU, made before TensorFlow has run
    multi-worker      several processes, described by the environment variable TF_CONFIG
    tpu, tpu:ADDRESS  TPUs, after TensorFlow's documentation; not tried

    Batch sizes stay the global ones.

    Raises:
        ValueError: for other names, missing devices, and a malformed TF_CONFIG.

    >>> with keras_tfm.training.strategy("none").scope():
    ...     model = keras_tfm.Model(x := keras.Input((2,)), keras.layers.Dense(1)(x))
    >>> model.output_shape
    (None, 1)
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
    """Give a `MirroredStrategy` its own keys for communication between its replicas.

    TensorFlow numbers the keys of each strategy from the start, but keeps their shapes for the whole process.
    A second strategy with other shapes would fail with "Shape mismatch in the collective instance".
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
    """The index of this process among the processes that train together; the chief has 0."""
    if not _is_multi_worker(strategy):
        return 0
    resolver = strategy.cluster_resolver
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_id + (has_chief and resolver.task_type != "chief")


def sum_over_workers(strategy: tf.distribute.Strategy, value: float) -> float:
    """The sum of one number from each worker. All workers must call it, so it also waits for all of them."""
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
        raise ValueError(f"mirrored:N needs a number of devices, at least 1; it is {argument!r}.")
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
                f"mirrored:{count} must be made before TensorFlow has run, because it splits the CPU."
            ) from None
    return [f"CPU:{i}" for i in range(count)]


def check_cluster(text: str | None) -> None:
    """Raise ValueError, naming the key, unless `text` is a TF_CONFIG of workers that includes this
    process.
    """
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
