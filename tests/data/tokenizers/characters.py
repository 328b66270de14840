"""Every character that is assigned, read by two tokenizers."""

import sys
import unicodedata


def assert_every_character_is_read_alike(ours, theirs):
    """Between letters, digits and spaces; of those without case, which are nine in ten, every tenth."""
    unassigned = ("Cn", "Cs", "Co")
    assigned = [
        c for i, c in enumerate(map(chr, range(sys.maxunicode)))
        if (kind := unicodedata.category(c)) not in unassigned and (kind != "Lo" or i % 10 == 0)
    ]  # fmt: skip
    texts = [f"a{c}b {c}1{c}  {c}." for c in assigned]
    rows = ours.tokenize(texts).to_list()
    expected = [encoding.ids for encoding in theirs.encode_batch(texts, add_special_tokens=False)]
    assert not [c for c, row, exact in zip(assigned, rows, expected, strict=True) if row != exact]
