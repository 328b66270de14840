"""Where a row ends: small automata that read the generated tokens.

`stop.start(num_rows)` gives each row's state. `stop.advance(state, token_ids)` gives the next states (R,)
and whether each row ends with its token (R,). `stop.end_ids` are tokens that always end a row, and
`stop.num_ends` is how many tokens may end a row at one step, as far as is known.
"""

import collections
from collections.abc import Iterable, Sequence

import numpy as np
from keras import ops


class EndTokens:
    """Ends a row with any of `end_ids`; without ids it never ends.

    >>> stop = keras_tfm.generation.EndTokens(2)
    >>> state, is_last = stop.advance(stop.start(num_rows=3), np.array([5, 2, 7]))
    >>> is_last.numpy().tolist()
    [False, True, False]
    """

    def __init__(self, *end_ids: int) -> None:
        self.end_ids = end_ids
        self.num_ends = len(end_ids)

    def start(self, num_rows):
        return ops.zeros((num_rows,), "int32")

    def advance(self, state, token_ids):
        is_end = ops.zeros_like(token_ids, "bool")
        for end_id in self.end_ids:
            is_end = is_end | (token_ids == end_id)
        return state, is_end


class StopSequences:
    """Ends a row when one of `sequences` occurs in it, or with any of `end_ids`.

    `symbols[token]` are the symbols that a token stands for (bytes, or a sequence of ids), and the sequences
    consist of such symbols: a stop string is found however it is split into tokens, even if it ends inside
    one. A token beyond the last of `symbols` stands for none. The states form the automaton of Aho and
    Corasick 1975; a table (states, V + 1) gives the next state for each token.

    >>> stop = keras_tfm.generation.StopSequences([b"ab"], symbols=[b"a", b"b", b"xa"])
    >>> state, _ = stop.advance(stop.start(num_rows=2), np.array([2, 1]))
    >>> stop.advance(state, np.array([1, 1]))[1].numpy().tolist()  # "xa" + "b", and "b" + "b"
    [True, False]
    """

    def __init__(
        self,
        sequences: Iterable[bytes | Sequence[int]],
        symbols: Sequence[bytes | Sequence[int]],
        end_ids: Iterable[int] = (),
    ) -> None:
        sequences = [tuple(sequence) for sequence in sequences]
        if not sequences or not all(sequences):
            raise ValueError(f"`sequences` must be one or more, none of them empty; they are {sequences}.")
        self.end_ids = tuple(end_ids)
        self.num_ends = 1 + len(self.end_ids)
        self.table = _token_transitions(_automaton(sequences), [*symbols, ()])

    def start(self, num_rows):
        return ops.zeros((num_rows,), "int32")

    def advance(self, state, token_ids):
        size = self.table.shape[1]
        index = state * size + ops.minimum(ops.cast(token_ids, "int32"), size - 1)
        state = ops.take(ops.reshape(ops.convert_to_tensor(self.table), -1), index)
        return state, (state == len(self.table) - 1) | EndTokens(*self.end_ids).advance(state, token_ids)[1]


def _automaton(sequences):
    """{symbol: next state} for each state; a state is a prefix of `sequences`.

    State 0 is the empty prefix. The last state stands for a complete sequence and is never left. Symbols
    that a state does not list lead to state 0.
    """
    trie: list[dict] = [{}]
    is_whole = [False]
    for sequence in sequences:
        state = 0
        for symbol in sequence:
            if symbol not in trie[state]:
                trie[state][symbol] = len(trie)
                trie.append({})
                is_whole.append(False)
            state = trie[state][symbol]
        is_whole[state] = True
    moves = [dict(trie[0])]
    moves += [{} for _ in trie[1:]]
    queue = collections.deque((child, 0) for child in trie[0].values())
    while queue:  # breadth first: what a state does not list is taken from its longest proper suffix
        state, suffix = queue.popleft()
        is_whole[state] |= is_whole[suffix]
        moves[state] = {**moves[suffix], **trie[state]}
        queue.extend((child, moves[suffix].get(symbol, 0)) for symbol, child in trie[state].items())
    final = len(trie)
    moves = [
        {symbol: final if is_whole[target] else target for symbol, target in move.items()} for move in moves
    ]
    return [*moves, {}]


def _token_transitions(moves, symbols):
    """The next state for each state and token: (states, V), int32."""
    final = len(moves) - 1
    alphabet = {symbol: i for i, symbol in enumerate(sorted({s for move in moves for s in move}))}
    step = np.zeros((len(moves), len(alphabet) + 1), np.int32)  # the last column: any other symbol
    for state, move in enumerate(moves):
        for symbol, target in move.items():
            step[state, alphabet[symbol]] = target
    step[final] = final
    table = np.broadcast_to(np.arange(len(moves), dtype=np.int32)[:, None], (len(moves), len(symbols))).copy()
    lengths = np.array([len(symbol) for symbol in symbols])
    for i in range(lengths.max(initial=0)):
        tokens = np.flatnonzero(lengths > i)
        read = np.array([alphabet.get(symbols[token][i], len(alphabet)) for token in tokens])
        table[:, tokens] = step[table[:, tokens], read]
    return table
