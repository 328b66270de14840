"""The runner of all tests: what it takes for tests, and that no test at all is no success."""

from tests.run import NO_TESTS, TESTS, asked_among, files_in, summarise

THIS = "tests/test_run.py"


def test_values_of_options_are_no_tests(monkeypatch):
    monkeypatch.chdir(TESTS.parent)
    one = f"{THIS}::test_values_of_options_are_no_tests"
    asked, others = asked_among(["-k", "docs", "-m", "not slow", THIS, one, "-x", "missing.py"])
    assert (asked, others) == ([THIS, one], ["-k", "docs", "-m", "not slow", "-x", "missing.py"])
    assert files_in(asked) == [THIS, one]
    assert THIS in files_in(["tests"]) and "tests/run.py" not in files_in(["tests"])


def test_no_test_is_no_success(capsys):
    assert summarise([], {}, 0.0) == NO_TESTS
    assert "no test was run" in capsys.readouterr().out
    assert summarise([{"code": 0, "outcomes": {"skipped": 1}}], {}, 0.0) == 0
    assert summarise([{"code": 1, "outcomes": {"passed": 1, "failed": 1}}], {}, 0.0) == 1
