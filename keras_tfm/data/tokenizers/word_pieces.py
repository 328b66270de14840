"""Training of WordPiece vocabularies: merges of the most frequent pairs, by the `tokenizers` library."""

from collections.abc import Callable, Sequence

import tokenizers

MIN_FREQUENCY = 2  # how often a piece occurs in the text at least: the library's default for BERT


def learn_word_pieces(
    texts: Sequence[str],
    vocabulary_size: int,
    special: Sequence[str],
    max_characters: int,
    stands_alone: Callable[[str], bool],
) -> list[str]:
    """Learn a WordPiece vocabulary from the words of `texts`, which single spaces separate.

    The pieces by id are the `special` ones, all characters, then merged pieces, at most `vocabulary_size`.
    Words longer than `max_characters` contribute only their characters. A character that always
    `stands_alone` has no piece for the inside of a word. Raises ValueError if there is no word.
    """
    characters = sorted({character for text in texts for character in text} - {" "})
    if not characters:
        raise ValueError("lines: expected words to train a tokenizer on, got none")
    # Among equally frequent pairs, the one with the lower ids is merged first. By itself the library numbers
    # the characters inside words in the order of a hash table, which differs from process to process, and so
    # does the vocabulary. Characters that are passed in are numbered in their order.
    spelled = [form for x in characters for form in ((x,) if stands_alone(x) else (x, f"##{x}"))]
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.CharDelimiterSplit(" ")
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=MIN_FREQUENCY,
        special_tokens=[*special, *spelled],
        show_progress=False,
    )
    lines = (" ".join(x for x in text.split(" ") if len(x) <= max_characters) for text in texts)
    model.train_from_iterator(lines, trainer)
    ids = model.get_vocab()
    return sorted(ids, key=ids.__getitem__)
