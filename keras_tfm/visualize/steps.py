"""A text that a model wrote, token by token: how probable each was, and what could have come in its place."""

from typing import Any

import numpy as np

from keras_tfm.tasks.reading import Reading

ALTERNATIVES = 5  # per token: the likeliest


def steps_of(task: Any, reading: Reading) -> list[dict[str, Any]]:
    """For each token that a writing `task` wrote: the row of its `query`, which is the place before it, the
    `token`, its `probability` there and the likeliest `alternatives`; the last step is what would come next.

    Probabilities are the model's softmax in one pass over all tokens, before any processor or temperature.
    """
    if not hasattr(task, "generate"):
        return []
    token_ids, first = _written_ids(reading)
    names = _tokenizer_of(task).tokens
    logits = np.asarray(task.model(reading.inputs, training=False), "float64")[0, first:]  # (T, V)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(-1, keepdims=True)
    likeliest = np.argsort(-probabilities, axis=-1, kind="stable")[:, :ALTERNATIVES]
    wrote = [*token_ids[first + 1 :], likeliest[-1, 0]]
    return [
        {
            "query": first + place,
            "token": _name(names, token_id),
            "probability": _rounded(row[token_id]),
            "alternatives": [
                [_name(names, other), _rounded(row[other])] for other in _with(likeliest[place], token_id)
            ],
        }
        for place, (token_id, row) in enumerate(zip(wrote, probabilities, strict=True))
    ]


def answer_of(task: Any, example: Any, reading: Reading) -> str:
    """What the task answers to the example, as text; "" where that is no text, number or list of them."""
    if hasattr(task, "generate"):
        token_ids, first = _written_ids(reading)
        text = _tokenizer_of(task).detokenize(np.asarray([token_ids[first + 1 :]], "int32"))
        return np.asarray(text)[0].decode("utf-8", "replace")
    if reading.answer is not None:
        return reading.answer
    (answer,) = task.predict(np.asarray(example)[None] if hasattr(example, "ndim") else [example])
    if isinstance(answer, dict):  # a segmenter's: the names of what it saw, the largest first
        shares = answer.get("shares", {})
        return ", ".join(sorted(shares, key=shares.get, reverse=True))
    if isinstance(answer, np.ndarray):
        return ""
    if isinstance(answer, float):
        return f"{answer:.4g}"
    return ", ".join(map(str, answer)) if isinstance(answer, list | tuple) else str(answer)


def _written_ids(reading: Reading) -> tuple[np.ndarray, int]:
    """The ids (T,) that a decoder read, and the place from which it wrote on."""
    name = "decoder_token_ids" if "decoder_token_ids" in reading.inputs else "token_ids"
    first = 0 if name == "decoder_token_ids" else len(reading.tokens) - 1
    return np.asarray(reading.inputs[name])[0], first


def _tokenizer_of(task: Any) -> Any:
    return getattr(task, "target_tokenizer", task.tokenizer)


def _with(likeliest: np.ndarray, token_id: int) -> list[int]:
    """The likeliest ids; in the last one's place what was written, where that is not among them."""
    ids = likeliest.tolist()
    return ids if token_id in ids else [*ids[:-1], int(token_id)]


def _name(names: list[str], token_id: int) -> str:
    return names[token_id] if token_id < len(names) else f"<{token_id}>"


def _rounded(probability: float) -> float:
    return float(f"{probability:.4g}")
