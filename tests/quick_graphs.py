"""TensorFlow's making of graphs, and Keras's of layers, without work that leaves no trace in them: most of
the tests' time is that. Iterators of tf.data are not rewritten to be faster: they live for a few batches.

The graphs and layers stay what they are: `test_quick_graphs.py` compares them with TensorFlow's and Keras's
own. `make test-slow` does without.
"""

import contextlib
import functools
import inspect
import math
import types
import typing
import weakref

UNFIT = ("list(int)", "func", "list(func)")  # kinds of attributes that are read in Python
MOST = 2**24  # from which on integers are read in Python: C++ would round them as float32
FEW = 8  # a constant of more numbers is made anew each time
SMALL = 1024  # and so is what a variable of more numbers begins with

PLAIN = frozenset({bool, int, float, str, bytes, type(None)})  # types of what is never tracked

OWN = {}  # TensorFlow's and Keras's own functions by module and name


def make_graphs_quickly():
    """Change the functions by which an operation, a variable and a layer are made."""
    from keras.src.backend.tensorflow import random
    from keras.src.initializers import constant_initializers
    from keras.src.layers import layer
    from keras.src.ops import operation
    from tensorflow.python.data.ops import iterator_ops
    from tensorflow.python.framework import auto_control_deps_utils, op_def_library, ops
    from tensorflow.python.ops import gen_resource_variable_ops
    from tensorflow.python.util import tf_stack

    if not OWN:
        nowhere = tf_stack.extract_stack()
        _change(tf_stack, "extract_stack", lambda _: lambda stacklevel=1: nowhere)
        _change(op_def_library, "_apply_op_helper", _in_cpp)
        _change(op_def_library, "_SatisfiesTypeConstraint", _without_names)
        _change(auto_control_deps_utils, "get_read_write_resource_inputs", _of_resources_alone)
        _change(ops, "_create_graph_constant", _remembered)
        _change(gen_resource_variable_ops, "var_handle_op", _nameless)
        _change(typing, "_get_protocol_attrs", functools.cache)  # as Python does from 3.12 on
        _change(iterator_ops.OwnedIterator, "__init__", _as_they_are)
        _change(layer.Layer, "__setattr__", _of_plain_values)
        _change(random, "draw_seed", _as_one_constant)
        for constant in (constant_initializers.Zeros, constant_initializers.Ones):
            _change(constant, "__call__", _remembered_beginning)
        for module in (layer, operation):
            _change(module, "inspect", lambda _: _remembering_signatures())


def _change(module, name, changed):
    OWN[module, name] = getattr(module, name)
    setattr(module, name, changed(OWN[module, name]))


@contextlib.contextmanager
def made_by_tensorflow_alone():
    """In this context nothing is changed."""
    changed = {(module, name): getattr(module, name) for module, name in OWN}
    try:
        for (module, name), function in OWN.items():
            setattr(module, name, function)
        yield
    finally:
        for (module, name), function in changed.items():
            setattr(module, name, function)


def _in_cpp(in_python):
    """C++ reads the arguments where all inputs are of a graph, which is not entered again."""
    from tensorflow.python.framework import op_callbacks, op_def_library, ops

    @functools.cache
    def arguments(op_type_name):
        """The names of inputs and of integers of an operation that may be read in C++, or else None."""
        definition = op_def_library.op_def_registry.get(op_type_name)
        if definition is None or any(argument.is_ref for argument in definition.input_arg):
            return None
        if any(attribute.type in UNFIT for attribute in definition.attr):
            return None
        integers = [attribute.name for attribute in definition.attr if attribute.type == "int"]
        return [argument.name for argument in definition.input_arg], integers

    def are_fit(op_type_name, keywords):
        if (names := arguments(op_type_name)) is None:
            return False
        inputs, integers = names
        numbers = [keywords.get(name, 0) for name in integers]
        return all(type(keywords.get(name)) is ops.SymbolicTensor for name in inputs) and all(
            type(number) is int and abs(number) < MOST for number in numbers
        )

    def apply(op_type_name, name=None, **keywords):
        if not are_fit(op_type_name, keywords) or op_callbacks.should_invoke_op_callbacks():
            return in_python(op_type_name, name, **keywords)
        definition, graph, producer = op_def_library._GetOpDef(op_type_name, keywords)
        if graph is not ops.get_default_graph():
            return in_python(op_type_name, name, **keywords)
        try:
            attributes, inputs, types, structure = op_def_library.op_def_library_pybind.process_inputs(
                op_type_name, producer, dict(keywords)
            )
        except (TypeError, ValueError):
            return in_python(op_type_name, name, **keywords)  # which refuses it in other words
        with ops.name_scope(name or op_type_name) as scope:
            made = graph._create_op_internal(op_type_name, inputs, None, types, scope, attributes, definition)
        return structure, definition.is_stateful, made, made.outputs

    return apply


def _without_names(satisfies):
    """A type that is allowed is not followed by the names of all that are."""

    def check(dtype, attr_def, param_name):
        number = getattr(dtype, "as_datatype_enum", dtype)
        if attr_def.HasField("allowed_values") and number not in attr_def.allowed_values.list.type:
            satisfies(dtype, attr_def, param_name)

    return check


def _of_resources_alone(resources):
    """An operation without resources among its inputs is not asked which of them it only reads."""
    from tensorflow.python.framework import dtypes
    from tensorflow.python.util.object_identity import ObjectIdentitySet

    def inputs(operation):
        if any(x.dtype == dtypes.resource for x in operation.inputs):
            return resources(operation)
        return ObjectIdentitySet(), ObjectIdentitySet()

    return inputs


def _remembered(create):
    """Half of all operations are constants, most of them a few integers, and often the same."""
    from tensorflow.core.framework import attr_value_pb2
    from tensorflow.python.framework import op_callbacks, ops, tensor_util

    @functools.cache
    def attributes(value, dtype):
        value = list(value) if isinstance(value, tuple) else value
        tensor = tensor_util.make_tensor_proto(value, dtype=dtype)
        return {
            "value": attr_value_pb2.AttrValue(tensor=tensor),
            "dtype": attr_value_pb2.AttrValue(type=tensor.dtype),
        }

    def constant(value, dtype, shape, name, verify_shape, allow_broadcast):
        numbers = value if type(value) in (list, tuple) else [value]
        is_simple = len(numbers) <= FEW and all(type(number) is int for number in numbers)
        if not is_simple or shape is not None or op_callbacks.should_invoke_op_callbacks():
            return create(value, dtype, shape, name, verify_shape, allow_broadcast)
        known = attributes(value if numbers is not value else tuple(value), dtype)
        graph = ops.get_default_graph()
        made = graph._create_op_internal("Const", [], [known["dtype"].type], attrs=known, name=name)
        return made.outputs[0]

    return constant


def _nameless(handle):
    """A variable outside graphs has no name in its operation, whose kernel then serves all of its shape."""
    from tensorflow.python.eager import context

    def variable(*, debug_name, **keywords):
        return handle(**keywords, debug_name="" if context.executing_eagerly() else debug_name)

    return variable


def _as_they_are(begin):
    """An iterator runs its dataset's operations as they were written."""
    import tensorflow as tf

    def run(self, dataset=None, **keywords):
        if dataset is not None:
            options = tf.data.Options()
            options.experimental_optimization.apply_default_optimizations = False
            options.autotune.enabled = False
            dataset = dataset.with_options(options)
        begin(self, dataset, **keywords)

    return run


def _of_plain_values(set_attribute):
    """What is neither a variable nor a layer nor a container of some is set without a look at either."""

    def set_plainly(self, name, value):
        if type(value) in PLAIN and not hasattr(type(self), name) and "_tracker" in self.__dict__:
            object.__setattr__(self, name, value)
        else:
            set_attribute(self, name, value)

    return set_plainly


def _as_one_constant(draw):
    """A seed that is a number is a tensor at once, as Keras makes it by three operations."""
    import tensorflow as tf

    def seed_of(seed):
        if type(seed) is int and tf.executing_eagerly():
            return tf.constant([seed % (tf.int32.max - 1), 0], "int32")
        return draw(seed)

    return seed_of


def _remembered_beginning(make):
    """Zeros and ones of a shape are one tensor: a variable that changes makes a copy."""
    import tensorflow as tf
    from keras.src.backend.common import standardize_dtype

    remembered = functools.cache(lambda shape, dtype: make(None, shape, dtype))

    def begin(self, shape, dtype=None):
        is_small = all(type(size) is int for size in shape) and math.prod(shape) <= SMALL
        if not is_small or not tf.executing_eagerly():
            return make(self, shape, dtype)
        return remembered(tuple(shape), standardize_dtype(dtype))

    return begin


def _remembering_signatures():
    """Python's module `inspect`, but that each function's signature is read once."""

    def remembered(read):
        known = weakref.WeakKeyDictionary()

        def of(function):
            is_method = isinstance(function, types.MethodType)
            key = function.__func__ if is_method else function
            if not isinstance(key, types.FunctionType):
                return read(function)
            found = known.setdefault(key, {})
            if is_method not in found:
                found[is_method] = read(function)
            return found[is_method]

        return of

    module = types.ModuleType("inspect")
    vars(module).update(vars(inspect))
    module.signature, module.getfullargspec = map(remembered, (inspect.signature, inspect.getfullargspec))
    return module
