# `make demo` and `make test` set up all they need by themselves; only Python 3.10+ and make are assumed.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
WORKERS ?= 7
PART    ?= usual

.PHONY: demo test test-slow test-real test-browser lint unit newest setup screenshots screens manual docs packages test-pythons clean

demo: $(VENV)/.ready
	$(BIN)/mpstui --demo

# Both at once: the type checker needs one core, and the tests wait for processes.
test: $(VENV)/.ready-dev
	+$(MAKE) --no-print-directory -j2 lint unit

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# More workers than cores: many tests wait for processes. Where no byte code is written, every process that the tests start compiles the program anew.
# The tests are compiled by one process first, or each worker would compile all of them.
unit: export PYTHONDONTWRITEBYTECODE =
unit: $(VENV)/.ready-dev
	$(BIN)/pytest --collect-only -qq -p no:xdist > /dev/null || true
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --part $(PART)

# One test in eleven, which take more than half of the time: CI runs them behind `make test`.
test-slow:
	+$(MAKE) --no-print-directory unit PART=slow

# The part of the contract suite that needs no GPU, on a vendor's binary: MPSTUI_REAL_CONTROL=/path/to/nvidia-cuda-mps-control make test-real
# A binary that is like no row of mpstui/control/drivers.py is recorded into tests/data/drivers; MPSTUI_REAL_DRIVER=570.133.20 names it.
test-real: $(VENV)/.ready-dev
	@test -x "$(MPSTUI_REAL_CONTROL)" || { echo "MPSTUI_REAL_CONTROL has to name a control binary, and names: $(MPSTUI_REAL_CONTROL)"; exit 2; }
	MPSTUI_CONTRACT=control $(BIN)/pytest -p no:xdist -s tests/contract

# The screen in a real browser: Chromium has to be here.
test-browser: $(VENV)/.ready-dev
	MPSTUI_BROWSER=1 $(BIN)/pytest -p no:xdist tests/web

# The screen on the newest Textual and Rich there are, whatever pyproject.toml allows; needs the network. Pictures are left out:
# each release draws some of Textual's own widgets otherwise.
newest: export PYTHONDONTWRITEBYTECODE =
newest:
	$(PYTHON) -m venv --clear $(VENV)-newest
	grep -vE '^(textual|rich|markdown-it-py|mdit-py-plugins)==' constraints.txt > $(VENV)-newest/constraints.txt
	$(VENV)-newest/bin/python -m pip install -q -c $(VENV)-newest/constraints.txt -e '.[dev]'
	$(VENV)-newest/bin/python -m pip install -q --upgrade textual rich
	$(VENV)-newest/bin/python -c 'from importlib.metadata import version as v; print("textual", v("textual"), "rich", v("rich"))'
	$(VENV)-newest/bin/pytest -n $(WORKERS) --dist worksteal --ignore-glob='*pictures*' tests/pty tests/ui tests/keys tests/dialogs

setup: $(VENV)/.ready-dev

# The Python's own pip serves the environment too, where it is there and new enough: one more was a sixth of what a set-up takes.
PIP = $(shell [ -x $(BIN)/pip ] && echo $(BIN)/python -m pip || echo $(PYTHON) -m pip --python $(BIN)/python)

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "mpstui needs Python 3.10 or later; set PYTHON=...")'
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PIP) --version > /dev/null 2>&1 || $(PYTHON) -m venv $(VENV)

$(VENV)/.ready: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e .
	touch $@

$(VENV)/.ready-dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -q -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.ready

screenshots: $(VENV)/.ready-dev
	$(PIP) install -q -c constraints.txt -e '.[dev,screenshots]'
	$(BIN)/python scripts/screenshots.py
	$(BIN)/python scripts/animation.py

# Every screen and dialog in four sizes, on sheets to look at; one to two hours. SCREENS=plan makes those with that in their names.
screens: $(VENV)/.ready-dev
	$(PIP) install -q -c constraints.txt -e '.[dev,screenshots]'
	$(BIN)/python scripts/screenshots.py --all build/screens --only '$(SCREENS)'

# All that is made from the program's tables: the man page, the completions, the pages of docs/ with the keys, and the JSON schemas.
manual: $(VENV)/.ready-dev
	COLUMNS=100 $(BIN)/python scripts/manual
	$(BIN)/python scripts/docs pages

# The documentation as a site, in build/site; every link is checked. Once mkdocs-material is there, no network is needed.
docs: $(VENV)/.ready-dev
	$(BIN)/python -c 'import mkdocs, material' 2>/dev/null || $(PIP) install -q -c constraints.txt -e '.[dev,docs]'
	$(BIN)/python scripts/docs site

# What is released, into dist/; the deb is installed and run in a clean root (as root, with debootstrap and a Debian mirror), and
# the exporter's image is built with it where buildah is.
packages: $(VENV)/.ready-dev
	$(BIN)/python scripts/packages build
	$(BIN)/python scripts/packages check
	$(BIN)/python scripts/packages container

# The tests that need no screen, with every Python that is here, each in an environment of its own.
test-pythons:
	scripts/test-pythons

clean:
	rm -rf $(VENV) $(VENV)-newest .mypy_cache .pytest_cache .ruff_cache
