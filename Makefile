PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help venv test lint types format check bench build clean

help:
	@echo "make venv    an environment in $(VENV) with cp-matrix (editable) and the tools"
	@echo "make test    the tests"
	@echo "make lint    ruff: rules and format"
	@echo "make types   mypy --strict"
	@echo "make format  let ruff rewrite what it can"
	@echo "make check   lint, types and tests"
	@echo "make bench   planning and launching, timed side by side"
	@echo "make build   the wheel and the source distribution, in dist/"
	@echo "make clean   remove caches and builds (runs in reports/ stay)"

$(BIN)/cp-matrix: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	touch $@

venv: $(BIN)/cp-matrix

test: venv
	$(BIN)/pytest

lint: venv
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: venv
	$(BIN)/mypy --strict

format: venv
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

check: lint types test

bench: venv
	$(BIN)/python benchmarks/planning.py
	$(BIN)/python benchmarks/launches.py

build: venv
	$(BIN)/python -m build

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
