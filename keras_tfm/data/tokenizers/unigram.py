"""Training of SentencePiece's unigram models (Kudo, 2018)."""

import collections
import io
import tempfile
from collections.abc import Iterable, Iterator

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from keras_tfm.configs import Refusal
from keras_tfm.serving.examples import refuse_single

# More text changes a vocabulary of thousands little, and training takes its memory.
MAX_TRAINING_LINES = 500_000
MOST_PIECES = 1 << 20  # of a vocabulary; the largest published ones have 900,000


def train_unigram(lines: list[str], vocabulary_size: int) -> bytes:
    """Train a SentencePiece unigram model of at most `vocabulary_size` pieces; return it serialised.

    Special tokens have the ids of `Tokenizer`. A character that is not a piece is spelled by its bytes.
    """
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        # SentencePiece logs a line at every load of a model without a normalisation rule; this one, from its
        # own space sign to a space, never applies, for tokenize() hides that sign.
        rules.write(f"{ord('▁'):x}\t{ord(' '):x}\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=chunks(lines),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            byte_fallback=True,
            normalization_rule_tsv=rules.name,
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            pad_id=0,
            bos_id=1,
            eos_id=2,
            unk_id=3,
            num_threads=4,  # fixed, since the sums over threads, and with them the model, depend on it
            minloglevel=2,
        )
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    proto.normalizer_spec.ClearField("normalization_rule_tsv")  # the temporary file's path
    return proto.SerializeToString(deterministic=True)


def chunks(lines: list[str], size: int = 1000) -> Iterator[str]:
    """Cut lines into training sentences, since SentencePiece skips sentences of more than 4192 bytes."""
    return (" " + line[start : start + size] for line in lines for start in range(0, len(line), size))


def require_size(vocabulary_size: int, least: int):
    """Raise ValueError for a vocabulary of fewer than `least`, and of more than `MOST_PIECES`, for which
    trainers allocate memory at once.
    """
    if vocabulary_size < least:
        raise Refusal("vocabulary_size", f"at least {least}", vocabulary_size)
    if vocabulary_size > MOST_PIECES:
        raise Refusal("vocabulary_size", f"at most {MOST_PIECES:,}", f"{vocabulary_size:,}")


def sample_of(lines: Iterable[str]) -> list[str]:
    """The lines to train on, at most `MAX_TRAINING_LINES`; ValueError if there is no text."""
    refuse_single(lines, "lines")
    lines = [line for line in lines if line]
    if not lines:
        raise ValueError("lines: expected text to train a tokenizer on, got none")
    if len(lines) > MAX_TRAINING_LINES:
        chosen = np.random.default_rng(0).choice(len(lines), MAX_TRAINING_LINES, replace=False)
        lines = [lines[position] for position in np.sort(chosen)]
    return lines


def common_characters(lines: list[str], limit: int, coverage: float = 1.0, barred: str = "") -> list[str]:
    """Replace rare characters by spaces.

    At most `limit` characters stay, the most frequent, or as many as make up `coverage` of the text;
    characters in `barred` never stay.
    """
    counts: collections.Counter[str] = collections.Counter()
    for line in lines:
        counts.update(line)
    covered = np.cumsum([count for _, count in counts.most_common()])
    limit = min(limit, 1 + int(np.searchsorted(covered, coverage * covered[-1])))
    rare = {character for character, _ in counts.most_common()[limit:]} | set(barred)
    blank = str.maketrans(dict.fromkeys(rare, " "))
    return [line.translate(blank) for line in lines]
