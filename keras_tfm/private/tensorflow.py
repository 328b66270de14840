"""Private names of TensorFlow 2.21."""

import collections
import weakref
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.input_lib import DistributedDataset
from tensorflow.python.distribute.mirrored_strategy import MirroredExtended
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework.ops import gradient_registry
from tensorflow.python.ops import custom_gradient
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
from tensorflow.python.saved_model.save_context import save_context

ATTRIBUTES: dict = {
    DistributedDataset: ("_cloned_datasets",),
    MirroredExtended: (
        "_collective_key_base",
        "_collective_ops",
        "_cross_device_ops",
        "_make_collective_ops_with_fallbacks",
    ),
    type(gradient_registry): ("_registry",),
}
READ: dict = {
    custom_gradient._graph_mode_decorator: "d5a977ad34b2231c",
    MirroredExtended._make_collective_ops_with_fallbacks: "df90b44f836881a0",
    concrete_function._inference_name: "4317c36316ed2f42",
    concrete_function._forward_name: "abc4b26797d4808e",
    concrete_function._backward_name: "63baa4bf6ecec2d1",
}


def first_collective_key(extended):
    """The first of the keys by which the replicas of a strategy exchange values; TensorFlow starts
    all at 0.
    """
    return extended._collective_key_base


def set_first_collective_key(extended, number):
    """Make the collective operations of a strategy again, with keys from `number` on."""
    extended._collective_key_base = number
    exchanges_by_them = extended._cross_device_ops is extended._collective_ops
    extended._collective_ops = extended._make_collective_ops_with_fallbacks()
    if exchanges_by_them:
        extended._cross_device_ops = extended._collective_ops


def local_dataset_of(distributed):
    """This worker's share of a distributed dataset, before it is split between replicas; ValueError where a
    process has several.
    """
    if (count := len(distributed._cloned_datasets)) != 1:
        raise ValueError(
            f"Checkpoint keeps one host's position in the data; this process feeds {count} hosts, as a slice "
            "of a TPU pod has: train on devices of a single host."
        )
    return distributed._cloned_datasets[0]


def constant_graph(function):
    """A concrete function whose variables are constants, with its loops as they are."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    return convert_variables_to_constants_v2(function, lower_control_flow=False)


def tracing_to_save():
    """A context in which functions are traced as `tf.saved_model.save` will: it does not trace them again."""
    return save_context(tf.saved_model.SaveOptions())


def number_functions_by_name():
    """From now on, number functions of graphs that share a name.

    TensorFlow adds to a function's name how many tensors and operations the process has made before. XLA's
    files of compiled code are found by a hash that the name goes into, so none would be found by a process
    that did anything else before, such as to read a checkpoint.
    """
    counts: collections.Counter = collections.Counter()

    def numbered(prefix):
        def name_of(name):
            counts[prefix, name] += 1
            return f"{prefix}{name}_number_{counts[prefix, name]}"

        return name_of

    concrete_function._inference_name = numbered("__inference_")
    concrete_function._forward_name = numbered("__forward_")
    concrete_function._backward_name = numbered("__backward_")


def is_in_xla():
    """Whether XLA will compile the graph that is being built."""
    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def keep_gradient_with(output):
    """Keep the gradient of a function of `tf.custom_gradient` with the operation of its `output` in a graph.

    TensorFlow keeps it in a table of the process, and so the graph, its tensors and the variables that they
    read. The table gets a function that finds it at the operation, and loses the function with the operation.
    """
    if not tf.is_symbolic_tensor(output):
        return
    table, operation = gradient_registry._registry, output.op
    name = operation.get_attr("_gradient_op_type").decode()
    operation.gradient_of_function = table[name]["type"]
    holder: Any = weakref.ref(operation, lambda _: table.pop(name, None))
    table[name]["type"] = lambda _, *upstream: holder().gradient_of_function(_, *upstream)
