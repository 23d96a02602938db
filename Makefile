# `make demo` and `make test` set up their own virtual environment and need nothing but a Python of 3.11 or newer.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-all lint format docs clean

demo: $(READY)
	@examples/demo.sh $(BIN)

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q

test-all: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -q -m "slow or not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch goes first and pinned: without a pin, pip may fetch gigabytes of another build
$(READY): pyproject.toml constraints/dev.txt
	@test -n "$(PYTHON)" || { echo "no Python of 3.11 or newer found; set PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	PIP_CONSTRAINT=constraints/dev.txt $(BIN)/python -m pip install --quiet torch
	PIP_CONSTRAINT=constraints/dev.txt $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)

# broken links and anchors are errors; nothing is fetched
docs: $(READY)
	$(BIN)/python scripts/docs_pages.py
	$(BIN)/zensical build --clean --strict

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis site .cache
