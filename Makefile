# Every command runs in .venv; `make setup` makes it, and is instant while the files it depends on are unchanged.
#   PYTHON=python3.12   the interpreter that .venv is made from (3.11 to 3.13)
#   ARGS="-k masks"     more arguments for pytest, in test, test-slow, test-wheel, check and parity; for benchmarks: bench
#   JOBS=1              processes of tests at once (2)
#   CONFIGS=20          random models per family in parity (2 in check)
#   TORCH_INDEX=URL     another package index for torch, such as https://download.pytorch.org/whl/cpu (no CUDA)
#   UV_DEFAULT_INDEX=URL  a mirror of PyPI: uv installs all but itself and torch, and reads no pip.conf

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIGS ?= 20
JOBS ?= 2
ARGS ?=
TORCH_INDEX ?=

STAMP := $(VENV)/.setup-stamp
PARITY_STAMP := $(VENV)/.parity-stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Python compiles the modules that are imported; pip would compile all that there are, most of which never are.
INSTALL := $(PIP) install --no-compile -c constraints.txt
# A third of pip's time, and none for what its cache has; pip installs it, and torch, whose builds pip may be told of.
UV_INSTALL := $(BIN)/uv pip install --python $(BIN)/python -c constraints.txt
TESTS := -m tests.run --jobs $(JOBS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-shuffled test-slow check lint docs bench private parity wheel test-wheel constraints clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

setup: $(STAMP) ## make .venv and install the package with its test and development tools

# An interrupted set-up leaves no stamp, and an unusable .venv is made anew.
$(STAMP): setup.py pyproject.toml constraints.txt keras_tfm/version.py
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
	    echo "error: keras-tfm needs Python 3.11, 3.12 or 3.13; $(PYTHON) is $$($(PYTHON) --version 2>&1 || true)" \
	         "(choose another: make setup PYTHON=python3.12)" >&2; exit 2; }; \
	  $(PYTHON) -m venv --clear $(VENV); }
	$(INSTALL) uv
	$(UV_INSTALL) -e ".[test,dev]"
	@touch $@

demo: setup ## train, test and export the embedded example: written-out dates to ISO 8601
	$(BIN)/keras-tfm demo

test: setup ## all tests but the slow ones and parity
	@$(BIN)/python $(TESTS) -m "not slow and not parity" $(ARGS)

test-shuffled: setup ## make test with files and tests in a drawn order; ARGS="--shuffle SEED" repeats one
	@$(BIN)/python $(TESTS) --shuffle -m "not slow and not parity" $(ARGS)

# With XLA and TensorFlow's optimiser of graphs, as users have them: `make test` leaves XLA out but where it is
# what is tested, and the optimiser wholly. (.ci/run leaves it out of parity too.)
test-slow parity: export KERAS_TFM_GRAPPLER ?= 1
# torch's threads spin while they wait for a core on which another process's tests run.
check parity: export OMP_NUM_THREADS ?= 1
# Files in ARGS are run alone: they would come on top of all tasks.
test-slow: setup ## the slow tests, ten times the drawn examples, and tasks and the command line with XLA
	@KERAS_TFM_EXAMPLES=100 $(BIN)/python $(TESTS) -m "(slow or hypothesis) and not parity" $(ARGS)
	@$(if $(filter-out -%,$(firstword $(ARGS))),true,KERAS_TFM_JIT=1 $(BIN)/python $(TESTS) -m "not parity" tests/tasks tests/test_cli*.py $(ARGS))

check: CONFIGS := 2
check: setup $(PARITY_STAMP) ## make test and the quick tests of parity, side by side: what .ci/run runs beside lint
	@KERAS_TFM_PARITY_CONFIGS=$(CONFIGS) $(BIN)/python $(TESTS) --parity -m "not slow" $(ARGS)

# What mypy found is kept by the contents of files in .venv, where another clone with this .venv finds it: 20 seconds.
lint: setup ## ruff (rules and format), mypy, and a list of long files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --cache-dir $(VENV)/mypy_cache
	@find keras_tfm -name '*.py' -exec wc -l {} + | awk '$$1 > 400 && $$2 != "total" { print $$2 ": " $$1 " lines: does a concept want a home of its own?" }'

docs: setup ## the book, the guides and the API reference: docs/_build/html, built without a network
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	$(BIN)/python docs/check.py docs/_build/html

$(PARITY_STAMP): $(STAMP)
	$(INSTALL) torch==2.13.0 $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
	$(UV_INSTALL) -e ".[parity]"
	@touch $@

bench: setup ## all benchmarks beside their peers, half an hour on 2 cores: build/benchmarks/TABLE.md; ARGS="--only vit"
	$(BIN)/python -m benchmarks.all $(ARGS)

private: setup ## whether Keras, TensorFlow and tensorflow-text still are what was read of them
	$(BIN)/python -m pytest tests/test_private.py $(ARGS)

parity: setup $(PARITY_STAMP) ## compare with torch and transformers on CONFIGS random models per family
	@KERAS_TFM_PARITY_CONFIGS=$(CONFIGS) $(BIN)/python $(TESTS) tests/parity $(ARGS)

wheel: setup ## build the source archive and the wheel into dist/
	$(BIN)/python -m build --outdir dist

# A fresh environment takes the other packages from .venv by path (a path added so reads no .pth files, so that
# .venv's editable install stays unseen) and keras_tfm from the wheel; tests/ is copied away from the sources.
test-wheel: setup ## install the built wheel alone and run the tests without the source tree
	@set -eu; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(BIN)/python -m build --outdir "$$tmp/dist" >"$$tmp/build.log" 2>&1 || { cat "$$tmp/build.log" >&2; exit 1; }; \
	$(BIN)/python -m venv --without-pip "$$tmp/venv"; \
	site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "$$($(BIN)/python -c "$$site")" >"$$($$tmp/venv/bin/python -c "$$site")/other-packages.pth"; \
	$(PIP) --python "$$tmp/venv/bin/python" install --quiet --no-deps --no-index "$$tmp"/dist/*.whl; \
	cp -R tests pyproject.toml "$$tmp"; cd "$$tmp"; \
	venv/bin/python -c 'import importlib.util as u; p = u.find_spec("keras_tfm").origin; assert "/venv/" in p, p; print("testing", p)'; \
	venv/bin/python $(TESTS) -m "not slow and not parity" -p no:cacheprovider $(ARGS)

# One resolution for all supported versions of Python and both platforms; read from PyPI alone.
constraints: setup ## write constraints.txt anew: the newest versions that setup.py's ranges allow
	$(BIN)/uv pip compile setup.py --all-extras --universal --python-version 3.11 --fork-strategy fewest \
	  --upgrade --no-annotate --quiet --custom-compile-command "make constraints" --output-file constraints.txt

clean: ## delete builds and caches (.venv and saved_models/ stay)
	rm -rf build dist docs/_build docs/api *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
