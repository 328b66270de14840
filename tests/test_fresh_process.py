"""`run_fresh` blocks what it says it blocks, and nothing else."""

from tests.fresh_process import run_fresh


def test_a_blocked_package_cannot_be_imported():
    result = run_fresh("import keras_tfm.version")
    assert result.returncode == 1
    assert "ModuleNotFoundError" in result.stderr and "keras_tfm" in result.stderr


def test_other_packages_and_arguments_arrive():
    code = "import json\nprint(json.dumps(sys.argv[1:]))"
    result = run_fresh(code, "à", 2, blocked=("pickle", "keras_tfm"))
    assert (result.returncode, result.stdout) == (0, '["\\u00e0", "2"]\n')
