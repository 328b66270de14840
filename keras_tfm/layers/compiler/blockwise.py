"""Attention whose memory is linear in the length, gradients included: it holds one block of scores at a
time.

               keys, in blocks
              +-----+-----+-----+     A row of blocks is one online softmax (Milakov and Gimelshein
    queries,  |  1  |     |     |     2018): it keeps the maximum ("peak"), the sum of the exponentials
          in  +-----+-----+-----+     and the mean of the values so far, and scales sum and mean
      blocks  |  2  |  3  |     |     down when the maximum grows. A causal row ends at its diagonal.
              +-----+-----+-----+     The gradient goes down the columns, and recomputes the weights
              |  4  |  5  |  6  |     of each block from the maxima and sums of its rows.
              +-----+-----+-----+

Rabe and Staats 2021, "Self-attention Does Not Need O(n^2) Memory"; Dao et al. 2022, "FlashAttention",
algorithms 1 and 4. Deviates from FlashAttention, which keeps log(sum) + peak as one number: where a bias
pushes a whole row to the lowest score, that sum of a huge and a small number would lose the small one.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_tfm.layers.compiler.bits import fold_in, keeps
from keras_tfm.layers.compiler.gradients import custom_gradient
from keras_tfm.layers.masks import LOWEST, combine_masks, in_float32
from keras_tfm.layers.signatures import Tensor


def blockwise_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    block_size: int = 512,
) -> Tensor:
    """`dot_product_attention` that never holds more than one block of its (T, S) weights.

    Shapes, `mask`, `bias` and `scale` are as in `attention_weights`; a mask or bias of full size takes the
    memory that it has. `causal` hides later keys and skips blocks that are hidden as a whole.

    Args:
        dropout: the rate at which weights are dropped.
        seed: two integers (2,), required for dropout.
        block_size: the largest number of queries or keys in a block. Blocks are as equal as the lengths
            allow.

    >>> x = np.ones((1, 2, 10, 4), "float32")
    >>> keras_tfm.layers.blockwise_attention(x, x, x, causal=True, block_size=4).shape
    TensorShape([1, 2, 10, 4])
    """
    if block_size < 1:
        raise ValueError(f"`block_size` must be at least 1; it is {block_size}.")
    if dropout and seed is None:
        raise ValueError(f"A `dropout` of {dropout} needs a `seed`, two integers; it is None.")
    rank = len(query.shape)
    mask = combine_masks(mask, rank=rank)
    bias = None if bias is None else ops.convert_to_tensor(bias)
    bias = None if bias is None else bias[(None,) * (rank - len(bias.shape))]
    if rank == 3:
        query, key, value = query[:, None], key[:, None], value[:, None]
        mask, bias = (None if x is None else x[:, None] for x in (mask, bias))
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    rows, columns = (Cut.of(ops.shape(x)[2], block_size) for x in (query, key))
    shape = (*ops.shape(query)[:2], rows.length, columns.length)
    mask, bias = (None if x is None else _broadcast_unknown(x, shape) for x in (mask, bias))
    blocks = _Blocks(rows, columns, mask, causal, dropout, seed)
    output = custom_gradient(blocks.attend)(query, key, value, *(() if bias is None else (bias,)))
    return output if rank == 4 else output[:, 0]


class Cut(NamedTuple):
    """How an axis of `length` is cut: into `count` blocks of `size`, the last one padded."""

    length: Any
    count: Any
    size: Any

    @classmethod
    def of(cls, length, block_size):
        """The most even cut into as few blocks of at most `block_size` as possible."""
        at_least = max if isinstance(length, int) else ops.maximum
        count = at_least((length + block_size - 1) // block_size, 1)
        return cls(length, count, at_least((length + count - 1) // count, 1))

    @property
    def is_even(self):
        """Whether it is known that the last block needs no padding."""
        return isinstance(self.length, int) and self.length == self.count * self.size

    def __call__(self, x, axis=-2):
        """(..., length, ...) -> (count, ..., size, ...). An axis of length 1, which broadcasts, is one
        block.
        """
        shape, axis = list(ops.shape(x)), axis % len(x.shape)
        count, size = (1, 1) if x.shape[axis] == 1 else (self.count, self.size)
        if x.shape[axis] != 1 and not self.is_even:
            padding = [[0, 0] for _ in shape]
            padding[axis][1] = count * size - self.length
            x = ops.pad(x, padding)
        return ops.moveaxis(ops.reshape(x, (*shape[:axis], count, size, *shape[axis + 1 :])), axis, 0)

    def join(self, x, axis=-2):
        """The inverse of the cut."""
        axis %= len(x.shape) - 1
        x = ops.moveaxis(x, 0, axis)
        shape = ops.shape(x)
        x = ops.reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))
        return x[(slice(None),) * axis + (slice(self.length),)]

    def positions(self, index):
        """The positions of a block's elements: (size,)."""
        return index * self.size + ops.arange(self.size, dtype="int32")


class _Blocks:
    """The blocks of one attention: their borders, what they hide, what dropout drops in them.

    t and s are the lengths of a block of queries and of keys, i and j its row and column. All tensors are
    cut with the block's index first: queries (rows, B, H, t, K), a bias (columns, rows, B, H, t, s).
    """

    def __init__(self, rows, columns, mask, causal, dropout, seed):
        self.rows, self.columns = rows, columns
        self.mask = None if mask is None else columns(rows(mask), axis=-1)
        self.causal, self.dropout, self.seed = causal, dropout, seed

    def attend(self, query, key, value, *bias):
        """The attention (B, H, T, Kv) of scaled queries, and the function that gives its gradients."""
        rows, columns = self.rows, self.columns
        parts = (rows(query), columns(key), columns(value), *(columns(rows(x), axis=-1) for x in bias))
        means, peaks, sums = self.forward(*parts)
        output = rows.join(means)

        def gradient(upstream):
            slopes = ops.sum(in_float32(upstream) * in_float32(output), axis=-1, keepdims=True)
            d = self.backward(*parts, upstream=rows(upstream), slopes=rows(slopes), peaks=peaks, sums=sums)
            joined = (
                rows.join(d[0]),
                columns.join(d[1]),
                columns.join(d[2]),
                *(rows.join(columns.join(x, axis=-1)) for x in d[3:]),
            )
            return tuple(ops.cast(d, x.dtype) for d, x in zip(joined, parts, strict=True))

        return output, gradient

    def forward(self, query, key, value, *bias):
        """The means of the values (rows, B, H, t, Kv), and the maxima and sums of the scores (rows, B, H, t,
        1).
        """

        def row(i, means, peaks, sums):
            def block(j, mean, peak, total):
                scores, visible, _ = self.scores(i, j, query, key, *bias)
                new_peak = ops.maximum(peak, ops.max(scores, axis=-1, keepdims=True, initial=LOWEST))
                weights = exponentials(scores - new_peak, visible)
                shrink = ops.exp(peak - new_peak)
                total = total * shrink + ops.sum(weights, axis=-1, keepdims=True)
                weights = ops.cast(self.drop(weights, i, j), value.dtype)
                mean = mean * shrink + in_float32(ops.matmul(weights, _at(value, j)))
                return mean, new_peak, total

            end = self.columns.count
            if self.causal:
                end = ops.minimum(end, ((i + 1) * self.rows.size - 1) // self.columns.size + 1)
            mean, peak, total = _loop(0, end, block, no_mean, no_scores[0] + LOWEST, no_scores[0])
            mean = ops.cast(mean / ops.where(total > 0, total, 1.0), value.dtype)
            return _put(means, mean, i), _put(peaks, peak, i), _put(sums, total, i)

        no_scores = in_float32(ops.zeros_like(query[..., :1]))
        means = ops.zeros((*ops.shape(query)[:-1], value.shape[-1]), value.dtype)
        no_mean = in_float32(means[0])
        return _loop(0, self.rows.count, row, means, no_scores, no_scores)

    def backward(self, query, key, value, *bias, upstream, slopes, peaks, sums):
        """The gradients of all inputs, cut like them. `slopes` are sums of gradient * output for
        each query.
        """

        def column(j, dquery, dkey, dvalue, *dbias):
            def block(i, dquery, dkey, dvalue, *dbias):
                scores, visible, free = self.scores(i, j, query, key, *bias)
                total = _at(sums, i)
                weights = exponentials(scores - _at(peaks, i), visible) / ops.where(total > 0, total, 1.0)
                dropped = ops.cast(self.drop(weights, i, j), value.dtype)
                dvalue = dvalue + in_float32(ops.einsum("bhts,bhtk->bhsk", dropped, _at(upstream, i)))
                dweights = in_float32(ops.einsum("bhtk,bhsk->bhts", _at(upstream, i), _at(value, j)))
                dscores = weights * (self.drop(dweights, i, j) - _at(slopes, i))
                if bias:
                    dscores = ops.where(free, dscores, 0.0)
                    dbias = (_add(dbias[0], dscores, j, i),)
                dscores = ops.cast(dscores, query.dtype)
                dkey = dkey + in_float32(ops.einsum("bhts,bhtk->bhsk", dscores, _at(query, i)))
                dquery = _add(dquery, in_float32(ops.matmul(dscores, _at(key, j))), i)
                return (dquery, dkey, dvalue, *dbias)

            begin = (j * self.columns.size) // self.rows.size if self.causal else 0
            nothing = (in_float32(ops.zeros_like(x[0])) for x in (key, value))
            dquery, of_key, of_value, *dbias = _loop(begin, self.rows.count, block, dquery, *nothing, *dbias)
            return (dquery, _put(dkey, of_key, j), _put(dvalue, of_value, j), *dbias)

        nothing = (in_float32(ops.zeros_like(x)) for x in (query, key, value, *bias))
        return _loop(0, self.columns.count, column, *nothing)

    def scores(self, i, j, query, key, *bias):
        """The scores (B, H, t, s) in float32, LOWEST where hidden; which are visible; where the bias is not
        clipped.
        """
        scores = in_float32(ops.einsum("bhtk,bhsk->bhts", _at(query, i), _at(key, j)))
        free = None
        if bias:
            scores = scores + in_float32(_at(bias[0], j, i))
            free = scores >= LOWEST
            scores = ops.maximum(scores, LOWEST)
        visible = self.visible(i, j)
        return scores if visible is None else ops.where(visible, scores, LOWEST), visible, free

    def visible(self, i, j):
        """Which keys the queries of a block see, broadcasting over (B, H, t, s); None for all of them."""
        positions, keys = self.rows.positions(i)[:, None], self.columns.positions(j)
        conditions = [] if self.mask is None else [_at(self.mask, j, i)]
        if self.causal:
            conditions.append(keys <= positions)
        if not self.columns.is_even:
            conditions.append(keys < self.columns.length)
        visible = None
        for condition in conditions:
            visible = condition if visible is None else ops.logical_and(visible, condition)
        return visible

    def drop(self, weights, i, j):
        """Dropout of a block (B, H, t, s), the same every time it is computed."""
        if not self.dropout:
            return weights
        keep = keeps(ops.shape(weights), self.dropout, fold_in(self.seed, j * self.rows.count + i))
        return ops.where(keep, weights * (1 / (1 - self.dropout)), 0.0)


def exponentials(scores, visible):
    """exp(scores), and 0 where they are not visible."""
    exponentials = ops.exp(scores)
    return exponentials if visible is None else ops.where(visible, exponentials, 0.0)


def _broadcast_unknown(x, shape):
    """`x` with each axis of unknown length expanded to its length in `shape`."""
    sizes = ops.shape(x)
    return ops.broadcast_to(x, [n if m is None else k for m, k, n in zip(x.shape, sizes, shape, strict=True)])


def _loop(begin, end, body, *values):
    """Repeats `body(index, *values) -> values` for every index from `begin` to `end` - 1."""
    begin = ops.convert_to_tensor(begin, "int32")
    return ops.while_loop(lambda i, *_: i < end, lambda i, *x: (i + 1, *body(i, *x)), (begin, *values))[1:]


def _at(x, *index):
    """The block of `x` at an index; an axis that broadcasts has only one block."""
    return x[tuple(0 if n == 1 else i for i, n in zip(index, x.shape, strict=False))]


def _put(x, block, *index):
    """`x` with the block at an index replaced."""
    block = block[(None,) * len(index)]
    return ops.slice_update(x, (*index, *[0] * (len(x.shape) - len(index))), block)


def _add(x, block, *index):
    """`x` with `block` added to the block at an index, summed over the axes along which `x` broadcasts."""
    index = tuple(0 if n == 1 else i for i, n in zip(index, x.shape, strict=False))
    old = x[index]
    axes = [axis for axis, n in enumerate(old.shape) if n == 1]
    return _put(x, old + (ops.sum(block, axis=axes, keepdims=True) if axes else block), *index)
