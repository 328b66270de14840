"""Matching: which prediction of a set belongs to which target, by the assignment of least total cost.

Kuhn 1955, "The Hungarian Method for the Assignment Problem", by shortest augmenting paths (Jonker and
Volgenant 1987, "A Shortest Augmenting Path Algorithm for Dense and Sparse Linear Assignment Problems").
Everything is computed in the graph, for all examples of a batch at once.

One target after the other gets a prediction, called a query. The search goes along shortest paths: from a
start to the queries, and from a query that is taken on to others, by way of the target that holds it, until
it finds a free one:

    start --target 2--> query 4 (held by target 0) --target 0--> query 1 (free)

Then target 0 moves to query 1, and target 2 gets query 4.
"""

import math

from keras import ops

from keras_tfm.layers.signatures import Tensor

FREE = -1


def match(costs: Tensor, mask: Tensor) -> Tensor:
    """The target of each query, (B, Q) integers, -1 for none, given the `costs` (B, Q, M) of all pairs.

    Only targets where `mask` (B, M) is True take part. Each query gets at most one target, as many pairs as
    possible are made, and the sum of their costs is the least possible, up to the rounding of float32. A
    cost that is not finite counts as more than any sum of finite ones. No gradient passes through.

    >>> costs = np.array([[[1.0, 2.0], [0.0, 5.0], [9.0, 9.0]]])  # three queries, two targets
    >>> keras_tfm.heads.match(costs, np.ones((1, 2), "bool")).numpy().tolist()
    [[1, 0, -1]]
    """
    _, num_queries, num_targets = ops.shape(costs)
    costs = _finite(ops.cast(ops.stop_gradient(costs), "float32"), mask)
    costs = ops.transpose(costs, (0, 2, 1))  # (B, M, Q)
    most = ops.max(costs, axis=(1, 2), keepdims=True, initial=0.0)
    spare = _at_least_0(
        num_targets - num_queries
    )  # extra queries for surplus targets, dearer than any real one
    start = num_queries + spare
    shape = ops.shape(costs[:, :, 0])
    spare_costs = ops.broadcast_to(most + 1, (*shape, spare))
    costs = ops.concatenate([costs, spare_costs, ops.zeros((*shape, 1))], axis=2)  # (B, M, C), last: start
    columns = ops.arange(start + 1)  # (C,)
    mask = ops.cast(mask, "bool")

    def assign(target, state):
        """`state` (the target that holds each query, and the queries' potentials) with one more target
        matched.
        """
        holders, potentials = state
        is_target = ops.take(mask, [target], axis=1)  # (B, 1)
        holders = ops.where(columns == start, ops.where(is_target, target, FREE), holders)
        end, visited, distances, previous, length = _search(costs, holders, potentials, start)
        visited = ops.logical_and(visited, columns != start)
        potentials += ops.where(visited, distances - length, 0.0)
        return _moved(holders, previous, end, start), potentials

    potentials = ops.zeros((shape[0], start + 1))
    holders = ops.full_like(potentials, FREE, dtype="int32")
    holders, _ = ops.fori_loop(0, num_targets, assign, (holders, potentials))
    return holders[:, :num_queries]


def _search(costs, holders, potentials, start):
    """The nearest free query from `start`, along the shortest path.

    Returns that query (B, 1), the visited queries, the distance of every query from the start and the query
    before it on its shortest path, (B, C) each, and the length of the path found (B, 1).
    """
    columns = ops.arange(start + 1)

    def goes_on(column, *_):
        return ops.any(_at(holders, column) != FREE)

    def visit(column, visited, distances, previous, length):
        target = _at(holders, column)  # (B, 1)
        is_active = target != FREE
        visited = ops.logical_or(visited, ops.logical_and(is_active, columns == column))
        row = ops.take_along_axis(costs, ops.maximum(target, 0)[..., None], axis=1)[:, 0]  # (B, C)
        row -= potentials
        reached = length + row - _at(row, column)
        is_shorter = ops.logical_and(ops.logical_not(visited), reached < distances)
        is_shorter = ops.logical_and(is_shorter, is_active)
        distances = ops.where(is_shorter, reached, distances)
        previous = ops.where(is_shorter, column, previous)
        remaining = ops.where(visited, math.inf, distances)
        nearest = ops.cast(ops.argmin(remaining, axis=1, keepdims=True), "int32")
        length = ops.where(is_active, _at(remaining, nearest), length)
        return ops.where(is_active, nearest, column), visited, distances, previous, length

    column = ops.full_like(holders[:, :1], start)
    state = (
        column,
        ops.zeros_like(holders, "bool"),
        ops.where(columns == start, 0.0, ops.full_like(potentials, math.inf)),
        ops.full_like(holders, start),
        ops.zeros_like(potentials[:, :1]),
    )
    return ops.while_loop(goes_on, visit, state)


def _moved(holders, previous, end, start):
    """`holders` after each query on the path to `end` (B, 1) was given to the holder of the query
    before it.
    """
    columns = ops.arange(start + 1)

    def move(column, holders):
        before = _at(previous, column)
        return before, ops.where(columns == column, _at(holders, before), holders)

    return ops.while_loop(lambda column, _: ops.any(column != start), move, (end, holders))[1]


def _at(x, column):
    """The entries of `x` (B, C) at `column` (B, 1)."""
    return ops.take_along_axis(x, column, axis=1)


def _at_least_0(size):
    return max(size, 0) if isinstance(size, int) else ops.maximum(size, 0)


def _finite(costs, mask):
    """`costs` (B, Q, M) minus the least of them, where a cost that is not finite exceeds the sum of all
    others.
    """
    is_target = ops.logical_and(ops.cast(mask, "bool")[:, None], ops.ones_like(costs, "bool"))
    is_finite = ops.logical_and(ops.isfinite(costs), is_target)
    least = ops.min(ops.where(is_finite, costs, math.inf), axis=(1, 2), keepdims=True, initial=math.inf)
    costs = ops.where(is_finite, costs - least, 0.0)
    most = ops.max(costs, axis=(1, 2), keepdims=True, initial=0.0)
    beyond = (most + 1) * (ops.cast(ops.shape(costs)[2], "float32") + 1)
    return ops.where(ops.logical_or(is_finite, ops.logical_not(is_target)), costs, beyond)
