"""A function of numbers as a graph without variables, in operations that other formats have.

Converters translate operation by operation. What they have no word for, or would run slowly, is replaced on
the way by operations that compute the same: `RULES`, by the kind of TensorFlow's operation.
"""

import re

import tensorflow as tf

from keras_tfm.private.tensorflow import constant_graph

LOOPS = {"While", "StatelessWhile", "If", "StatelessIf"}  # whose parts are graphs of their own
LARGE = 1_024  # constants of this many values count as weights
# The name of a product whose rows are reshaped before and after it.
FLAT_PRODUCT = re.compile(r"(?:^|/)(?:Tensordot|flat_product)(?:_\d+)?/MatMul$")


class FrozenFunction:
    """`function`, {input: tensor} to {output: tensor}, with its weights as constants.

    `inputs` are {name: tf.TensorSpec}; sizes that are None there may be fixed later, by `function`, lengths
    to `max_length` at most, or to `shapes`, {name of a case: {input: shape}}. `outputs` are the names of what
    it gives, sorted. Raises ValueError for a function with a loop.
    """

    def __init__(self, function, inputs, max_length=None, shapes=None):
        names, self.max_length, self.shapes = list(inputs), max_length, shapes

        def call(*tensors):
            return function(dict(zip(names, tensors, strict=True)))

        signature = [tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in inputs.items()]
        traced = tf.function(call, input_signature=signature, autograph=False).get_concrete_function()
        self.inputs = dict(zip(names, signature, strict=True))
        self.outputs = sorted(traced.structured_outputs)
        self._graph = constant_graph(traced)
        if loops := {op.type for op in self._graph.graph.get_operations()} & LOOPS:
            raise ValueError(
                f"The model has a loop or a branch ({', '.join(sorted(loops))}): export a SavedModel."
            )
        constants = [op.outputs[0] for op in self._graph.graph.get_operations() if op.type == "Const"]
        large = [x for x in constants if (x.shape.num_elements() or 0) >= LARGE]
        self._weights = {f"weights_{number}": x for number, x in enumerate(large)}

    def __call__(self, inputs):
        """The function by TensorFlow: {name: array} to {name: array}."""
        results = self._graph(*(tf.constant(inputs[name]) for name in self.inputs))
        return {name: x.numpy() for name, x in zip(self.outputs, results, strict=True)}

    def weights(self):
        """The large constants, {name: array}."""
        return {name: tf.get_static_value(x) for name, x in self._weights.items()}

    def function(self, shapes=None, weights_apart=False):
        """A tf.function of the rewritten graph, which gives {output: tensor}.

        `shapes`, {input: shape}, fix sizes; `weights_apart` makes `weights` further inputs, for converters
        that copy what a graph holds many times.
        """
        signature = [
            tf.TensorSpec(shapes[name] if shapes else spec.shape, spec.dtype, name)
            for name, spec in self.inputs.items()
        ]
        apart = self._weights if weights_apart else {}
        signature += [tf.TensorSpec(x.shape, x.dtype, name) for name, x in apart.items()]

        def call(*tensors):
            given = [*self._graph.inputs, *apart.values()]
            known = {placeholder.ref(): x for placeholder, x in zip(given, tensors, strict=True)}
            _copy(self._graph.outputs, known)
            return {name: known[x.ref()] for name, x in zip(self.outputs, self._graph.outputs, strict=True)}

        return tf.function(call, input_signature=signature, autograph=False)


def _copy(tensors, known):
    """Compute `tensors` of another graph in this one; `known` maps the `ref` of its tensors to those here."""
    target = tf.compat.v1.get_default_graph()
    waiting = [tensor.op for tensor in tensors]
    while waiting:  # a graph is deeper than Python's stack
        op = waiting[-1]
        if all(x.ref() in known for x in op.outputs):
            waiting.pop()
            continue
        rule = RULES.get(op.type, lambda op: None)(op)
        needed = op.inputs if rule is None else rule[0]
        missing = [x.op for x in needed if x.ref() not in known]
        if missing:
            waiting += missing
            continue
        values = [known[x.ref()] for x in needed]
        if rule is None:
            kept = {name: x for name, x in op.node_def.attr.items() if not name.startswith("_")}
            kinds = [x.dtype for x in op.outputs]
            results = target.create_op(op.type, values, kinds, name=op.name, attrs=kept).outputs
        else:
            results = rule[1](*values)
        known.update((x.ref(), result) for x, result in zip(op.outputs, results, strict=True))
        waiting.pop()


# For an operation, a rule gives the tensors that it needs and a function of them to all its results; or None
# if it does not apply.


def _identities(op):
    """Drop the node: it only carries a custom gradient."""
    return list(op.inputs), lambda *values: values


def _error_function(op):
    """erfc(-x / sqrt 2) of GELU as 1 + erf(x / sqrt 2), which runtimes recognise; any other as 1 - erf."""
    scaled = op.inputs[0].op
    if scaled.type == "Mul" and scaled.inputs[0].op.type == "Neg":
        factor = _number(scaled.inputs[1])
        if factor is not None:
            return [scaled.inputs[0].op.inputs[0]], lambda x: [tf.math.erf(x / (1 / factor)) + 1]
    return [op.inputs[0]], lambda x: [1 - tf.math.erf(x)]


def _product_with_joined(op):
    """A product with keys or values that are joined of old and new ones."""
    joined, rank = op.inputs[1].op, op.inputs[1].shape.rank
    if op.get_attr("adj_x") or joined.type != "ConcatV2" or len(joined.inputs) != 3:
        return None
    axis = tf.get_static_value(joined.inputs[2])
    if axis is None or axis % rank != rank - 2:
        return None
    return [op.inputs[0], *joined.inputs[:2]], by_parts(op.get_attr("adj_y"))


def by_parts(is_transposed):
    """The product with keys or values that are joined of old and new ones, which need not be copied then:
    of scores the two parts are joined, of averages they are added.
    """

    def scores(query, past, new):
        parts = [tf.matmul(query, key, transpose_b=True) for key in (past, new)]
        return [tf.concat(parts, axis=-1)]

    def averages(weights, past, new):
        length = tf.shape(past)[-2]
        return [tf.matmul(weights[..., :length], past) + tf.matmul(weights[..., length:], new)]

    return scores if is_transposed else averages


def _reshape(op):
    """Reshape, MatMul, Reshape (tf.tensordot, `flat_product`) as one MatMul over the last axis."""
    product = op.inputs[0].op
    if product.type != "MatMul" or not FLAT_PRODUCT.search(product.name):
        return None
    rows = product.inputs[0].op
    if rows.type != "Reshape" or product.get_attr("transpose_a") or product.get_attr("transpose_b"):
        return None
    x = rows.inputs[0]
    if x.op.type == "Transpose":
        order = tf.get_static_value(x.op.inputs[1])
        if order is None or list(order) != sorted(order):
            return None
        x = x.op.inputs[0]
    is_last = (
        x.shape.rank is not None and x.shape[-1] is not None and x.shape[-1] == product.inputs[1].shape[0]
    )
    return ([x, product.inputs[1]], lambda x, y: [tf.matmul(x, y)]) if is_last else None


def _strided_slice(op):
    """x[:, None, None, :] or x[..., None] as new axes alone."""
    count, rank = op.inputs[1].shape[0], op.inputs[0].shape.rank
    masks = {name: op.get_attr(name) for name in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")}
    strides = tf.get_static_value(op.inputs[3])
    if count is None or rank is None or strides is None or op.get_attr("shrink_axis_mask"):
        return None
    num_named = count - sum(masks[name].bit_count() for name in ("new_axis_mask", "ellipsis_mask"))
    is_new: list[bool] = []
    for place in range(count):
        has = {name: mask >> place & 1 for name, mask in masks.items()}
        if has["ellipsis_mask"]:
            is_new += [False] * (rank - num_named)
        elif has["new_axis_mask"]:
            is_new.append(True)
        elif has["begin_mask"] and has["end_mask"] and strides[place] == 1:
            is_new.append(False)
        else:
            return None
    if not any(is_new):
        return None

    def expand(x):
        for axis, new in enumerate(is_new):
            x = tf.expand_dims(x, axis) if new else x
        return [x]

    return [op.inputs[0]], expand


def _product(op):
    """x rsqrt(y) of a normalisation as x / sqrt(y), and GELU as it is written most often: runtimes recognise
    both.
    """
    if (factor := _factor_of_gelu(op)) is not None:
        return [op.inputs[0]], lambda x: [x * 0.5 * (tf.math.erf(x / (1 / factor)) + 1)]
    root = op.inputs[1].op
    if root.type != "Rsqrt":
        return None
    return [op.inputs[0], root.inputs[0]], lambda x, y: [x / tf.sqrt(y)]


def _factor_of_gelu(op):
    """The factor c if the product is x (0.5 + 0.5 erf(c x)), else None."""

    def by_half(x, kind):
        is_half = x.op.type == kind and _number(x.op.inputs[0]) == 0.5
        return x.op.inputs[1] if is_half else None

    product = by_half(op.inputs[1], "AddV2")
    error = None if product is None else by_half(product, "Mul")
    scaled = None if error is None or error.op.type != "Erf" else error.op.inputs[0].op
    if scaled is None or scaled.type != "Mul" or scaled.inputs[0].ref() != op.inputs[0].ref():
        return None
    return _number(scaled.inputs[1])


def _number(x):
    """The value of a constant of one number, else None."""
    value = tf.get_static_value(x)
    return None if value is None or value.size != 1 else float(value)


def _square(op):
    """As a power, which runtimes recognise in a normalisation."""
    return list(op.inputs), lambda x: [tf.pow(x, 2.0)] if x.dtype == tf.float32 else [x * x]


def _mean(op):
    """Over a list of axes, where OpenVINO takes no single one."""
    axes = tf.get_static_value(op.inputs[1])
    if axes is None or axes.shape:
        return None
    keep = op.get_attr("keep_dims")
    return [op.inputs[0]], lambda x: [tf.reduce_mean(x, axis=[int(axes)], keepdims=keep)]


RULES = {
    "IdentityN": _identities,
    "Erfc": _error_function,
    "BatchMatMulV2": _product_with_joined,
    "Reshape": _reshape,
    "StridedSlice": _strided_slice,
    "Mul": _product,
    "Square": _square,
    "Mean": _mean,
}
