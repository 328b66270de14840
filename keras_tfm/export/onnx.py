"""ONNX, for onnxruntime: one file with any number of rows of any length."""

import collections
import contextlib
import logging

import numpy as np

from keras_tfm.jit import processor_features

RUNTIME = "onnxruntime"
OPSET = 18  # the highest that tf2onnx writes


def write(function, folder, quantization, name="model"):
    """Write NAME.onnx; "int8" keeps the weights of products in 8 bits, and rounds what they are multiplied
    by to 8 bits as it comes.
    """
    import tf2onnx

    path = folder / f"{name}.onnx"
    traced = function.function(weights_apart=True)  # tf2onnx copies its graph for each of its optimisers
    with _quiet():
        model, _ = tf2onnx.convert.from_function(traced, traced.input_signature, opset=OPSET)
    _refuse_foreign(model)
    _put_in(function.weights(), model.graph)
    for rewrite in (_divide_before_erf, _part_products, _add_bias_first, _sum_before_norm):
        rewrite(model.graph)
    if quantization is not None:
        _transpose_weights(model.graph)
    path.write_bytes(model.SerializeToString())
    if quantization is not None:
        _quantize(path)
    return None, None


def _refuse_foreign(model):
    """Raise ValueError for operations that ONNX has not: tf2onnx leaves TensorFlow's as they are."""
    import onnx

    kinds = {node.op_type for node in model.graph.node if not node.domain}
    unknown = sorted(kind for kind in kinds if not onnx.defs.has(kind, OPSET))
    if unknown:
        raise ValueError(f"onnx has no operation {', '.join(unknown)}, which this model needs")


def _put_in(weights, graph):
    """Make those inputs of the graph that are `weights`, {name: array}, its constants."""
    import onnx

    kept = [node for node in graph.input if node.name not in weights]
    graph.initializer.extend(
        onnx.numpy_helper.from_array(weights[node.name], node.name)
        for node in graph.input
        if node.name in weights
    )
    del graph.input[:]
    graph.input.extend(kept)


def _divide_before_erf(graph):
    """x / sqrt 2 in GELU, by which onnxruntime recognises it: tf2onnx has made it a product."""
    import onnx

    makers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        product = makers.get(node.input[0]) if node.op_type == "Erf" else None
        if product is None or product.op_type != "Mul":
            continue
        factors = [name for name in product.input if name in constants]
        value = onnx.numpy_helper.to_array(constants[factors[0]]) if factors else np.zeros(0)
        if value.size != 1:
            continue
        divisor = onnx.numpy_helper.from_array((1 / value).astype(value.dtype), f"{product.name}/divisor")
        graph.initializer.append(divisor)
        x = next(name for name in product.input if name not in factors)
        product.CopyFrom(onnx.helper.make_node("Div", [x, divisor.name], product.output, product.name))


class _Links:
    """What makes and what reads each value of a graph, as it is now."""

    def __init__(self, graph):
        self.makers = {name: node for node in graph.node for name in node.output}
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.readers = collections.Counter(name for node in graph.node for name in node.input)
        self.readers.update(output.name for output in graph.output)

    def made_by(self, kind, name):
        """The node of that kind that makes the value, if one other node alone reads it, else None."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type == kind and self.readers[name] == 1 else None

    def value(self, name):
        """The array of a constant, or of a split or reshaped one; else None."""
        import onnx

        if name in self.constants:
            return onnx.numpy_helper.to_array(self.constants[name])
        node = self.makers.get(name)
        if node is None or node.op_type not in ("Reshape", "Split") or len(node.input) != 2:
            return None
        x, sizes = map(self.value, node.input)
        if x is None or sizes is None:
            return None
        if node.op_type == "Reshape":
            return x.reshape(sizes) if sizes.all() else None  # 0 is the size that was
        return np.split(x, np.cumsum(sizes)[:-1], _axis(node))[list(node.output).index(name)]


def _axis(node):
    return _attribute(node, "axis", 0)


def _attribute(node, name, default):
    import onnx

    found = {attribute.name: attribute for attribute in node.attribute}
    return onnx.helper.get_attribute_value(found[name]) if name in found else default


def _replace(graph, replaced):
    """Put nodes in the place of others: {the first output of a node: a list of nodes}."""
    nodes = [new for node in graph.node for new in replaced.get(node.output[0], [node])]
    copies = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _part_products(graph):
    """Replace a product whose result is split, such as queries, keys and values, by one product for each
    part: onnxruntime would copy the parts.
    """
    import onnx

    links, unused = _Links(graph), set()
    replaced: dict[str, list] = {}
    for split in graph.node:
        product = links.made_by("MatMul", split.input[0]) if split.op_type == "Split" else None
        if product is None or len(split.input) != 2 or _axis(split) in (0, 1):  # rows or a sequence
            continue
        weights, sizes = links.value(product.input[1]), links.value(split.input[1])
        if weights is None or sizes is None or weights.ndim != 2 or sizes.sum() != weights.shape[1]:
            continue
        parts = []
        for name, part in zip(split.output, np.split(weights, np.cumsum(sizes)[:-1], 1), strict=True):
            kernel = onnx.numpy_helper.from_array(np.ascontiguousarray(part), f"{name}/weights")
            graph.initializer.append(kernel)
            inputs = [product.input[0], kernel.name]
            parts.append(onnx.helper.make_node("MatMul", inputs, [name], f"{name}/MatMul"))
        replaced |= {split.output[0]: parts, product.output[0]: []}
        unused.add(product.input[1])
    _replace(graph, replaced)
    _remove_constants(graph, unused)


def _transpose_weights(graph):
    """Replace a transposed matrix of weights, such as a vocabulary's, by weights of their own: the product
    with a transposed matrix would stay in 32 bits.
    """
    import onnx

    links = _Links(graph)
    replaced: dict[str, list] = {}
    for node in graph.node:
        weights = links.value(node.input[0]) if node.op_type == "Transpose" else None
        if weights is None or weights.ndim != 2 or _attribute(node, "perm", [1, 0]) != [1, 0]:
            continue
        graph.initializer.append(
            onnx.numpy_helper.from_array(np.ascontiguousarray(weights.T), node.output[0])
        )
        replaced[node.output[0]] = []
    _replace(graph, replaced)


def _remove_constants(graph, names):
    """Remove those constants of `names` that no node reads."""
    read = {name for node in graph.node for name in node.input}
    for place, tensor in reversed(list(enumerate(graph.initializer))):
        if tensor.name in names and tensor.name not in read:
            del graph.initializer[place]


def _add_bias_first(graph):
    """The bias (1, 1, H, K) of a product that is reshaped to (B, T, H, K), added before: onnxruntime adds it
    within the product then.
    """
    import onnx

    links = _Links(graph)
    replaced: dict[str, list] = {}
    for add in graph.node:
        for place, name in enumerate(add.input if add.op_type == "Add" else []):
            bias, reshape = links.value(name), links.made_by("Reshape", add.input[1 - place])
            product = None if reshape is None else links.made_by("MatMul", reshape.input[0])
            if bias is None or product is None or product.input[1] not in links.constants:
                continue
            width = links.constants[product.input[1]].dims[-1]
            if bias.ndim < 2 or bias.size != width or bias.shape[-1] * bias.shape[-2] != width:
                continue
            row = onnx.numpy_helper.from_array(bias.reshape(-1), f"{add.output[0]}/bias")
            graph.initializer.append(row)
            biased, made = f"{add.output[0]}/biased", onnx.helper.make_node
            replaced[reshape.output[0]] = [
                made("Add", [reshape.input[0], row.name], [biased], f"{biased}/Add"),
                made("Reshape", [biased, reshape.input[1]], add.output, f"{biased}/Reshape"),
            ]
            replaced[add.output[0]] = []
            break
    _replace(graph, replaced)


def _sum_before_norm(graph):
    """The sum before a normalisation as Sum: onnxruntime fuses Add with the normalisation, in a kernel that
    takes several times as long as the two apart.
    """
    links = _Links(graph)
    for node in graph.node:
        add = links.makers.get(node.input[0]) if node.op_type == "ReduceMean" else None
        if add is None or add.op_type != "Add":
            continue
        if all(name in links.makers for name in add.input):
            add.op_type = "Sum"


def _quantize(path):
    from onnxruntime.quantization import QuantType, quantize_dynamic

    # AVX2 alone adds pairs of products of 8 bits in 16, where they saturate; products of 7 bits fit.
    features = processor_features()
    with _quiet():
        quantize_dynamic(
            path,
            path,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range="avx2" in features and not features & {"avx512_vnni", "avx_vnni"},
        )


@contextlib.contextmanager
def _quiet():
    """A scope without the log of these packages: what they cannot do raises an error."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
