# `make demo` and `make test` set up all they need by themselves; only Python 3.10+ and make are assumed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint unit setup screenshots clean

demo: $(VENV)/.ready
	$(BIN)/mpstui --demo

test: lint unit

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Five workers: many tests wait for processes. Where no byte code is written, every process that the tests start compiles the program anew.
unit: export PYTHONDONTWRITEBYTECODE =
unit: $(VENV)/.ready-dev
	$(BIN)/pytest -n 5 --dist worksteal

setup: $(VENV)/.ready-dev

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "mpstui needs Python 3.10 or later; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.ready-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.ready

screenshots: $(VENV)/.ready-dev
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,screenshots]'
	$(BIN)/python scripts/screenshots.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache
