"""When a row ends: a small automaton that reads its tokens.

`stop.start(num_rows)` gives each row's state, `stop.advance(state, token_ids)` the next ones (R,) and
whether the row ends with this token (R,); `stop.num_ends` of a step's tokens may do so, as a rule, and
`stop.end_ids` always do.
"""

import collections

import numpy as np
from keras import ops


class EndTokens:
    """Ends a row with any of `end_ids`; never, where there are none."""

    def __init__(self, *end_ids):
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
    """Ends a row as soon as one of `sequences` stands in it, or with any of `end_ids`.

    `symbols[token]` is what a token spells (bytes, or a sequence of ids), and the sequences are of
    these symbols: a stop string is found however tokens spell it, even where it ends inside one. The
    states are those of Aho and Corasick 1975, and one table (states, V) says where each token leads.
    """

    def __init__(self, sequences, symbols, end_ids=()):
        sequences = [tuple(sequence) for sequence in sequences]
        if not sequences or not all(sequences):
            raise ValueError("`sequences` must hold at least one, none of them empty.")
        self.end_ids = tuple(end_ids)
        self.num_ends = 1 + len(self.end_ids)
        self.table = _token_transitions(_automaton(sequences), symbols)

    def start(self, num_rows):
        return ops.zeros((num_rows,), "int32")

    def advance(self, state, token_ids):
        size = self.table.shape[1]
        state = ops.take(ops.reshape(ops.convert_to_tensor(self.table), -1), state * size + token_ids)
        return state, (state == len(self.table) - 1) | EndTokens(*self.end_ids).advance(state, token_ids)[1]


def _automaton(sequences):
    """{symbol: next state} of each state, all of whose sequences are prefixes of `sequences`.

    State 0 is the empty prefix; the last state, from which nothing leads away, is a whole sequence
    found. What a state does not list leads to 0.
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
    while queue:  # breadth first: a state moves as its longest proper suffix does, where it knows no better
        state, suffix = queue.popleft()
        is_whole[state] |= is_whole[suffix]
        moves[state] = {**moves[suffix], **trie[state]}
        queue.extend((child, moves[suffix].get(symbol, 0)) for symbol, child in trie[state].items())
    found = len(trie)
    moves = [
        {symbol: found if is_whole[target] else target for symbol, target in move.items()} for move in moves
    ]
    return [*moves, {}]


def _token_transitions(moves, symbols):
    """The state after each token, from each state: (states, V), int32."""
    found = len(moves) - 1
    alphabet = {symbol: i for i, symbol in enumerate(sorted({s for move in moves for s in move}))}
    step = np.zeros((len(moves), len(alphabet) + 1), np.int32)  # the last column: any other symbol
    for state, move in enumerate(moves):
        for symbol, target in move.items():
            step[state, alphabet[symbol]] = target
    step[found] = found
    table = np.broadcast_to(np.arange(len(moves), dtype=np.int32)[:, None], (len(moves), len(symbols))).copy()
    lengths = np.array([len(symbol) for symbol in symbols])
    for i in range(lengths.max(initial=0)):
        tokens = np.flatnonzero(lengths > i)
        read = np.array([alphabet.get(symbols[token][i], len(alphabet)) for token in tokens])
        table[:, tokens] = step[table[:, tokens], read]
    return table
