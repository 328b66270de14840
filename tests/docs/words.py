"""A report, not a limit: sentences that stop a stranger, counted by folder and by pattern.

    python -m tests.docs.words [--list] [FOLDER or FILE ...]

No test fails by it. Many a place is plain English ("those who", "tell apart"): read each, and say who does
what in words of the field, with the noun repeated where "those of" or "the former" stands for one.
"""

import argparse
import collections
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("README.md", "CONTRIBUTING.md", "docs", "keras_tfm", "examples", "benchmarks", "tests")
BEGIN = r'(?:^|[.;:!?]\s+|"""|#\s+)'  # of a sentence or a clause
PATTERNS = {
    "of which": BEGIN + r"[Oo]f which\b",
    "Of ...,": r'(?:^\s*|[.!?]\s+|"""|# )Of [a-z`]',
    "those of": r"\b[Tt](?:hose|hat)\s+(?:of|in|with|from|to|which|whose|by|for|on)\b|\b[Tt]hose\s+that\b",
    "the former": r"\b[Tt]he (?:former|latter)\b",
    "tell": r"\b(?:tell|tells|told|telling)\b",
}


def files(paths):
    """The Markdown and Python files in `paths`, without pages that the code makes."""
    for path in map(ROOT.joinpath, paths):
        below = path.rglob("*") if path.is_dir() else [path]
        below = [x for x in below if x.suffix in (".md", ".py") and not {"api", "_build"} & {*x.parts}]
        yield from sorted(below)


def main():
    """Print the counts or, with `--list`, each place too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", default=FOLDERS, help="relative to the repository's root")
    parser.add_argument("--list", action="store_true", help="print each place")
    args, counts = parser.parse_args(), collections.Counter()
    for path in files(args.paths):
        text, name = path.read_text("utf-8"), path.relative_to(ROOT)
        for pattern, expression in PATTERNS.items():
            for match in re.finditer(expression, text, re.MULTILINE):
                counts["/".join(name.parts[:-1][:2]) or str(name), pattern] += 1
                if args.list:
                    line = text.count("\n", 0, match.end()) + 1
                    print(f"{name}:{line}: {pattern}: {text.splitlines()[line - 1].strip()}")
    for (folder, pattern), count in sorted(counts.items()):
        print(f"{count:5}  {pattern:10}  {folder}")


if __name__ == "__main__":
    main()
