"""Files that are no corpus, and files of vectors that hold none."""

from tests.edges.bad_inputs import Bad, option

VECTORS = "vectors --data {folder}/text.txt --out {folder}/out.txt"
NEAREST = "neighbours {folder}/v.txt a"


def text_of(name, text, message, command=VECTORS):
    """A text of which no vectors can be learnt."""
    return Bad(f"vectors: {name}", command, message, {"text.txt": text})


def vectors_of(name, text, message):
    """A file that holds no vectors."""
    return Bad(f"neighbours: {name}", NEAREST, f"v.txt{message}", {"v.txt": text})


BAD = [
    text_of("an empty text", "", "text.txt: expected text, the file is empty"),
    text_of("blank lines", " \n\n", "text.txt: expected text, the file is empty"),
    text_of("one word", "a " * 3 + "\n", "--min-count must leave words; it is 5, and 'a' occurs most often"),
    text_of(
        "a word a line", "a\n" * 9, "expected words next to each other, got 1 word of 5 occurrences or more"
    ),
    text_of("no text", b"\xff\n", "text.txt, line 1: expected UTF-8, got byte 0xff at position 0"),
    text_of("punctuation", "! ?\n", "`texts` must hold words; there are none", VECTORS + " --words letters"),
    Bad("vectors: no file", VECTORS, "text.txt: cannot be read: No such file"),
    Bad(
        "vectors: no match",
        VECTORS.replace(".txt --", "*.txt --"),
        "expected files, but nothing matches the pattern",
    ),
    Bad("vectors: a folder", "vectors --data {folder} --out {folder}", "is a folder, not a file"),
    Bad("vectors: a file that is", "vectors --data a --out {folder}/v", "v exists already", {"v": ""}),
    Bad("vectors: nowhere", "vectors --data a --out {folder}/b/v", "v: the folder"),
    Bad("vectors: a method", VECTORS + " --method svd", "invalid choice: 'svd'"),
    option("--dim 0", "must be at least 1", VECTORS),
    option("--window 1001", "must be at most 1,000", VECTORS),
    option("--memory 0", "must be at least 0.01", VECTORS),
    option("--x-max 0", "must be above 0", VECTORS),
    Bad("neighbours: no file", NEAREST, "No such file"),
    vectors_of("empty", "", ": expected lines of a word and its numbers, got none"),
    vectors_of("a wrong count", "3 2\na 1 2\n", ": expected 3 words, as line 1 says, got 1"),
    vectors_of("ragged", "a 1 2\nb 1\n", ", line 2: expected a word and 2 numbers, got 'b' and 1"),
    vectors_of("NaN", "a 1 nan\n", ", line 1: expected finite numbers, got nan"),
    vectors_of("underscores", "a_b 1 2\nc_d 1 1_0\n", ", line 2: expected numbers, got '1_0'"),
    vectors_of("twice", "a 1\na 2\n", ", line 2: expected another word, got 'a' as in line 1"),
    vectors_of("no UTF-8", b"\xff 1 2\n", ", line 1: expected UTF-8, got byte 0xff at position 0"),
    vectors_of("an unknown word", "b 1 2\n", ": there is no vector for 'a'"),
]
