"""Names that options take. They stand here again, so that a wrong one is refused at once: reading them where
they belong imports TensorFlow, which takes seconds. A test holds these equal to those.
"""

SIZES = {
    "transformer": ("tiny", "small", "base", "big"),
    "recurrent": ("tiny", "small", "bahdanau"),
    "gpt2": (
        *("tiny", "gpt1", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"),
        *(f"gpt3-{size}" for size in ("small", "medium", "large", "xl", "2.7b", "6.7b", "13b", "175b")),
    ),
    "bert": (
        *("tiny", "mini", "small", "medium", "base", "large"),
        *(f"L-{layers}_H-{dim}" for layers in (2, 4, 6, 8, 10, 12) for dim in (128, 256, 512, 768)),
    ),
}
FAMILIES = ("transformer", "recurrent", "gpt2")  # that translate
TOKENIZERS = ("sentencepiece", "wordpiece")  # of pairs


def refuse_unknown_size(family, size):
    """Raise ValueError, naming the known ones, for a size that `family` has not."""
    if size is not None and size not in SIZES[family]:
        raise ValueError(f"--size: {family} has no size {size!r}; it has {', '.join(SIZES[family])}")
