"""Ratings of which nothing can be learnt, and recommenders that cannot be asked; rows as in bad_inputs.py."""

from tests.edges.bad_inputs import ASK, NUMBER, Bad, option, run_entry

RECOMMEND = "train recommend --data {folder}/ratings.csv --out {out}"
OF_RUN = {"of": "recommend"}


def table(name, text, message):
    """A table that holds no ratings from 1 to 5."""
    return Bad(
        f"ratings: {name}",
        f"{RECOMMEND} --lowest 1 --highest 5",
        f"ratings.csv{message}",
        {"ratings.csv": text},
    )


BAD = [
    table("none", "", ": expected ratings, the file is empty"),
    table("a header alone", "user,item,rating\n", ": expected ratings, the file is empty"),
    table("NaN", "a,b,nan\n", ", line 1: expected a number as the rating, got 'nan'"),
    table("a word", "a,b,1\na,c,good\n", ", line 2: expected a number as the rating, got 'good'"),
    table("underscores", "a,b,1\na,c,1_0\n", ", line 2: expected a number as the rating, got '1_0'"),
    table("too low", "a,b,1\na,c,0\n", ", line 2: expected a rating of at least 1, got '0'"),
    table("too high", "a,b,5.5\n", ", line 1: expected a rating of at most 5, got '5.5'"),
    table(
        "a pair twice", "a,b,1\na,b,1\n", ", line 2: expected a pair once, 'a' rated 'b' before, in line 1"
    ),
    table("a nameless user", "  ,b,1\n", ", line 1: expected a text, the user is empty"),
    table("two columns", "a,b\n", ", line 1: expected 3 columns, user and item and rating, got 2"),
    Bad("ratings: no file", RECOMMEND, "ratings.csv: cannot be read: No such file"),
    Bad("columns of ratings", RECOMMEND + " --columns 0,1", "--columns: expected three, A,B,C; got 0,1"),
    option("--dim 0", "must be at least 1", RECOMMEND),
    option("--regularization 0", "must be above 0", RECOMMEND),
    option("--lowest nan", NUMBER, RECOMMEND),
    option("--items 0", "must be at least 1", ASK),
    Bad("an option of networks", f"{RECOMMEND} --warm-up 2", "unrecognized arguments: --warm-up 2"),
    Bad(
        "bounds the wrong way round",
        f"{RECOMMEND} --lowest 5 --highest 1",
        "--highest must be above --lowest, 5; it is 1",
        {"ratings.csv": "a,b,3\nb,a,3\n"},
    ),
    run_entry("recommend", "config.lowest", "x", "`lowest` must be a number; it is 'x'"),
    run_entry("recommend", "config.lowest", 9, "`highest` must be above `lowest`, 9; it is 5"),
    run_entry("recommend", "model.dim", 10**9, "`user_factors` must have the shape (2, 1000000000)"),
    run_entry("recommend", "model.wings", 2, "FactorOptions has no wings"),
    Bad("quantize: factors", "quantize {run} --out {out}", "kept in 8 bits", **OF_RUN),
    Bad(
        "predict: beams of items",
        "predict {run} --data {folder} --beam 2",
        "does not generate text",
        **OF_RUN,
    ),
    Bad(
        "evaluate: ratings too high",
        "evaluate {run} --data {folder}/ratings.csv",
        "ratings.csv, line 1: expected a rating of at most 5, got '6'",
        {"ratings.csv": "a,b,6\n"},
        "recommend",
    ),
    Bad(
        "predict: a user never seen",
        "predict {run} --whole --data {folder}/user.txt",
        "the text gets no answer: the training had no ratings by 'nobody'",
        {"user.txt": "nobody\n"},
        "recommend",
    ),
    Bad(
        "predict: items of labels",
        "predict {run} --data {folder}/user.txt --items 3",
        "--items: the task 'classify' has no such option",
        {"user.txt": "nobody\n"},
        "classify",
    ),
]
