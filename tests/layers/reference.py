"""What each layer computes, once more: NumPy in float64, head by head and term by term from the papers.

Functions take a built layer, for its weights alone, and the arguments of its call.
"""

import math

import numpy as np
from scipy.special import erf

from keras_tfm import layers

ACTIVATIONS = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
}


def exact(x):
    return np.asarray(x, "float64")


def dense(layer, x):
    y = exact(x) @ exact(layer.kernel)
    return y if layer.bias is None else y + exact(layer.bias)


def norm(layer, x):
    x = exact(x)
    if isinstance(layer, layers.RMSNormalization):
        return (
            x / np.sqrt((x**2).mean(-1, keepdims=True) + layer.epsilon) * (exact(layer.gamma) + layer.offset)
        )
    centred = x - x.mean(-1, keepdims=True)
    x = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + layer.epsilon)
    return x * exact(layer.gamma) + exact(layer.beta)


def softmax(scores, allowed):
    """Over the allowed keys; 0 elsewhere, and in rows that allow none."""
    exponents = np.exp(scores - scores.max(-1, keepdims=True)) * allowed
    sums = exponents.sum(-1, keepdims=True)
    return exponents / np.where(sums > 0, sums, 1)


def allowed_keys(shape, mask=None, causal=False):
    """(B, H, T, S) booleans of a mask of rank 2, 3 or 4."""
    allowed = np.ones(shape, bool)
    if mask is not None:
        mask = np.asarray(mask, bool)
        allowed &= {2: lambda: mask[:, None, None], 3: lambda: mask[:, None], 4: lambda: mask}[mask.ndim]()
    return allowed & np.tri(*shape[-2:], dtype=bool) if causal else allowed


def split_heads(x, num_heads):
    """(B, T, H K) -> (B, H, T, K)."""
    return np.stack(np.split(x, num_heads, axis=-1), axis=1)


def attention(layer, query, value=None, key=None, mask=None, bias=None, causal=False):
    """`MultiHeadAttention` with any position."""
    heads = layer.projections
    key_units = heads.num_heads * heads.key_width
    if heads.is_self_attention:
        query, key, value = np.split(dense(heads.query_key_value, query), [key_units, 2 * key_units], axis=-1)
    elif key is None:
        query = dense(heads.query, query)
        key, value = np.split(dense(heads.key_value, value), [key_units], axis=-1)
    else:
        query, key, value = dense(heads.query, query), dense(heads.key, key), dense(heads.value, value)
    query, key, value = (split_heads(x, heads.num_heads) for x in (query, key, value))
    position = layer.position
    if isinstance(position, layers.RotaryEmbedding):
        query, key = rotated(query, position.base), rotated(key, position.base)
    scale = 1 / math.sqrt(heads.key_width) if layer.scale is None else layer.scale
    scores = np.einsum("bhtk,bhsk->bhts", query, key) * scale
    if bias is not None:
        scores = scores + bias
    if isinstance(position, layers.RelativePositionBias):
        scores = scores + bucket_bias(position, *scores.shape[-2:])
    if isinstance(position, layers.RelativePositionEmbedding):
        key_vectors = shaw_vectors(position, position.key_table, *scores.shape[-2:])
        scores = scores + np.einsum("bhtk,tsk->bhts", query, key_vectors) * scale
    weights = softmax(scores, allowed_keys(scores.shape, mask, causal))
    heads = weights @ value
    if isinstance(position, layers.RelativePositionEmbedding) and position.with_values:
        heads = heads + np.einsum(
            "bhts,tsk->bhtk", weights, shaw_vectors(position, position.value_table, *scores.shape[-2:])
        )
    return dense(layer.output_projection, np.concatenate(list(np.moveaxis(heads, 1, 0)), axis=-1))


def rotated(x, base):
    """Components k and k + K/2 as the complex number that position t turns by t base^(-2k/K)."""
    length, width = x.shape[-2:]
    numbers = x[..., : width // 2] + 1j * x[..., width // 2 :]
    angles = np.arange(length)[:, None] * base ** (-2 * np.arange(width // 2) / width)
    numbers = numbers * np.exp(1j * angles)
    return np.concatenate([numbers.real, numbers.imag], axis=-1)


def shaw_vectors(position, table, queries, keys):
    """a_ts = table[clip(s - t)]: (T, S, K)."""
    limit, table = position.max_distance, exact(table)
    return np.array(
        [[table[max(-limit, min(limit, s - t)) + limit] for s in range(keys)] for t in range(queries)]
    )


def bucket_bias(position, queries, keys):
    """The bias of each head, by T5's buckets: (H, T, S)."""
    table = exact(position.table)
    return np.array(
        [[table[bucket(position, s - t)] for s in range(keys)] for t in range(queries)]
    ).transpose(2, 0, 1)


def bucket(position, distance):
    count, first = position.num_buckets, 0
    if position.bidirectional:
        count //= 2
        first = count if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    near = count // 2
    if distance < near:
        return first + distance
    far = near + math.floor(
        math.log(distance / near) / math.log(position.max_distance / near) * (count - near)
    )
    return first + min(far, count - 1)


def feedforward(layer, x):
    if layer.gated:
        gate = ACTIVATIONS[layer.activation](dense(layer.gate, x))
        return dense(layer.output_projection, gate * dense(layer.value, x))
    return dense(layer.output_projection, ACTIVATIONS[layer.activation](dense(layer.hidden, x)))


def switch(layer, x, mask=None, factor=None):
    """`SwitchFeedForward` and its balance loss, token by token; a `factor` limits the experts' capacity."""
    kernels, biases = exact(layer.hidden.kernel), exact(layer.hidden.bias)[:, 0]
    outputs, offsets = exact(layer.output_projection.kernel), exact(layer.output_projection.bias)[:, 0]
    y, losses = np.zeros(np.shape(x)), []
    for row in range(len(x)):
        tokens = range(len(x[row])) if mask is None else np.flatnonzero(mask[row])
        free = [len(tokens) if factor is None else math.ceil(factor * len(tokens) / layer.num_experts)]
        free, gates, sent = free * layer.num_experts, [], []
        for t in tokens:
            scores = exact(x[row][t]) @ exact(layer.router)
            gates.append(softmax(scores, True))
            i = int(np.argmax(scores))
            sent.append(np.arange(layer.num_experts) == i)
            if free[i]:
                free[i] -= 1
                hidden = ACTIVATIONS[layer.activation](exact(x[row][t]) @ kernels[i] + biases[i])
                y[row, t] = gates[-1][i] * (hidden @ outputs[i] + offsets[i])
        share = np.mean(sent, 0) @ np.mean(gates, 0) if gates else 0.0
        losses.append(layer.balance * layer.num_experts * share)
    return y, np.mean(losses)


def block(layer, x, context=None, mask=None, context_mask=None, bias=None):
    """`Block`; `bias` is added to the scores of its self-attention."""
    x = exact(x)
    x = residual(
        layer.attention,
        x,
        lambda part, y: attention(part, y, mask=mask, bias=bias, causal=layer.attention.causal),
    )
    if layer.context_attention is not None:
        x = residual(
            layer.context_attention, x, lambda part, y: attention(part, y, context, mask=context_mask)
        )
    return residual(layer.feedforward, x, feedforward)


def residual(layer, x, branch=None):
    """`Residual` around `branch(layer.branch, x)`, by default a feed-forward layer's."""
    before = norm(layer.norm, x) if layer.normalize == "input" else x
    y = (branch or feedforward)(layer.branch, before)
    y = norm(layer.norm, y) if layer.normalize == "output" else y
    y = y if layer.output_norm is None else norm(layer.output_norm, y)
    y = y if layer.layer_scale is None else y * exact(layer.scale)
    return norm(layer.norm, x + y) if layer.normalize == "sum" else x + y


def stack(layer, x, context=None, mask=None, context_mask=None):
    """`TransformerEncoder` or `TransformerDecoder`."""
    for one in layer.blocks:
        x = block(one, x, context, mask, context_mask)
    return x if layer.norm is None else norm(layer.norm, x)


def sines(length, dim, base=10_000.0):
    """PE[t, 2k] = sin(t / base^(2k/D)), PE[t, 2k+1] = cos of the same: (T, D)."""
    table = np.zeros((length, dim))
    for t in range(length):
        for k in range(dim // 2):
            angle = t / base ** (2 * k / dim)
            table[t, 2 * k], table[t, 2 * k + 1] = math.sin(angle), math.cos(angle)
    return table


def sine_positions(layer, x):
    return exact(x) + sines(*x.shape[1:], layer.base)


def learned_positions(layer, x):
    return exact(x) + exact(layer.embedding.embeddings)[: x.shape[1]]


def embedding(layer, token_ids, segment_ids=None):
    """`TokenAndPositionEmbedding`."""
    x = exact(layer.token.embeddings)[token_ids] * (math.sqrt(layer.dim) if layer.scale else 1)
    if layer.segment is not None:
        x = (
            x
            + exact(layer.segment.embeddings)[
                np.zeros_like(token_ids) if segment_ids is None else segment_ids
            ]
        )
    is_sine = isinstance(layer.position, layers.SinePositionEncoding)
    return (sine_positions if is_sine else learned_positions)(layer.position, x)


def side(layer, x, context=None, mask=None, context_mask=None):
    """A model's encoder or decoder: its blocks, and the norm behind them."""
    bias = None if layer.bias is None else bucket_bias(layer.bias, x.shape[1], x.shape[1])[None]
    for one in layer.blocks:
        x = block(one, x, context, mask, context_mask, bias)
    return x if layer.norm is None else norm(layer.norm, x)


def transformer(model, token_ids, padding_mask, decoder_token_ids, decoder_padding_mask):
    encoded = side(model.encoder, embedding(model.embedding, token_ids), mask=padding_mask)
    decoded = side(
        model.decoder,
        embedding(model.output_embedding, decoder_token_ids),
        encoded,
        mask=decoder_padding_mask,
        context_mask=padding_mask,
    )
    return {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}


def t5(model, token_ids, padding_mask, decoder_token_ids, decoder_padding_mask):
    table = exact(model.embedding.token.embeddings)
    encoded = side(model.encoder, table[token_ids], mask=padding_mask)
    decoded = side(model.decoder, table[decoder_token_ids], encoded, decoder_padding_mask, padding_mask)
    return {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}


def bart(model, token_ids, padding_mask, decoder_token_ids, decoder_padding_mask):
    def embed(token_ids, name):
        position, normalization = (model.get_layer(f"{name}_{x}") for x in ("position", "embedding_norm"))
        x = exact(model.embedding.token.embeddings)[token_ids]
        x = x * (math.sqrt(model.config.dim) if model.config.scale_embedding else 1)
        rows = exact(position.embedding.embeddings)[2:]  # the first two are no token's
        return norm(normalization, x + rows[: token_ids.shape[1]])

    encoded = side(model.encoder, embed(token_ids, "encoder"), mask=padding_mask)
    decoded = embed(decoder_token_ids, "decoder")
    decoded = side(model.decoder, decoded, encoded, decoder_padding_mask, padding_mask)
    return {"encoder_sequence_output": encoded, "decoder_sequence_output": decoded}


def head(layer, x):
    """`LanguageModelHead`."""
    x = exact(x) * layer.scale
    if layer.embedding is None:
        return dense(layer.dense, x)
    logits = exact(x) @ exact(layer.embedding.token.embeddings).T
    return logits + exact(layer.bias) if layer.use_bias else logits


def language_model(model, **inputs):
    return head(model.head, transformer(model.backbone, **inputs)["decoder_sequence_output"])


def assert_as_exact(ours, theirs, expected, floor=2e-7):
    """The error of `ours` is at most four times the error of `theirs`, in the same precision."""

    def error(x):
        return np.abs(exact(x) - expected).max()

    assert error(ours) <= 4 * error(theirs) + floor * np.abs(expected).max()
