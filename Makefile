# The two commands: `make study` and `make test`. Each makes what it needs; both work on a fresh clone. `make install` does only that.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
THREADS := OMP_NUM_THREADS=1
SECONDS_OF_CHAOS ?= 90
PAGE_OF_CHAOS ?=
LEAST_OF_CHAOS ?=
TREE ?= .
GOLDENS ?= build/goldens.txt
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --root-user-action=ignore -c constraints.txt

.PHONY: install study chaos fuzz mutants load test test-long test-all laws test-slow check docs site evidence gpu bench hops goldens clean help

help:            ## what there is to make
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/ \t/'

$(BIN)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Fulcrum needs Python 3.11 or newer; name one: make PYTHON=python3.12 study"; exit 1; }
	@echo "making an environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "installing torch: a few minutes at the first time ..."
	@$(INSTALL) torch
	@echo "installing the project and what it needs ..."
	@$(INSTALL) -e .
	@$(BIN)/python -c 'import torch, fulcrum'
	@touch $@

$(BIN)/.dev: $(BIN)/.ready
	@echo "installing what the tests need: a few minutes at the first time ..."
	@$(INSTALL) -e '.[dev]'
	@$(BIN)/python -c 'import pytest, diffusers'
	@touch $@

install: $(BIN)/.ready  ## the environment and nothing else; then: source .venv/bin/activate

study: $(BIN)/.ready  ## train, measure and compare: ends with the path of a report
	$(BIN)/fulcrum study run quick

test: $(BIN)/.dev    ## the tests but the longest: about five minutes on two quiet cores
	$(THREADS) $(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow and not long"

test-long: $(BIN)/.dev    ## the rest of them: kills, whole studies, processes that share a run, laws
	$(THREADS) $(BIN)/python -m pytest -n 2 --dist loadgroup -m "long and not slow"

test-all: test test-long  ## all tests but what takes minutes each (test-slow)

laws: $(BIN)/.dev    ## the laws over every lever, on two cores: under four minutes
	$(THREADS) $(BIN)/python -m pytest tests/laws -n 2 --dist loadgroup

chaos: $(BIN)/.dev  ## the attack, counted: kills, bad disks, crowds, hostile input; SECONDS_OF_CHAOS=3600 for an hour
	$(THREADS) $(BIN)/python -m chaos --seconds $(SECONDS_OF_CHAOS) $(if $(PAGE_OF_CHAOS),--page $(PAGE_OF_CHAOS)) $(LEAST_OF_CHAOS)

$(BIN)/.fuzz: $(BIN)/.ready
	@$(INSTALL) -e '.[fuzz]'
	@touch $@

fuzz: $(BIN)/.fuzz   ## every reader of foreign input, guided by coverage: a minute for each
	$(THREADS) $(BIN)/python -m chaos.guided

mutants: $(BIN)/.dev  ## a fault for every promise, put into a copy: each must make the test fail that proves it
	$(THREADS) $(BIN)/python -m mutants promises

load: $(BIN)/.dev  ## 100,000 samples, 1,000 checkpoints, 500 cells, a week's record: is memory, handles and disk flat?
	$(THREADS) $(BIN)/python -m bench.load

test-slow: $(BIN)/.dev  ## what takes minutes: real compiler, kill -9, whole trainings
	$(BIN)/python -m pytest -m slow --timeout=3600

check: $(BIN)/.dev   ## lint, format, types, import direction, size, wording, hops
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.house
	$(BIN)/python bench/hops.py --limits --skip-cell

docs: $(BIN)/.ready   ## docs/levers, docs/reference, docs/recipes and what docs/advice.md shows, from the code
	$(BIN)/fulcrum levers pages docs/levers
	$(BIN)/python -m tools.pages docs

$(BIN)/.docs: $(BIN)/.ready
	@echo "installing what builds the site ..."
	@$(INSTALL) -e '.[docs]'
	@touch $@

site: $(BIN)/.docs    ## the documentation as a site that opens offline: build/site/index.html; a warning fails it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "open build/site/index.html"

evidence: $(BIN)/.ready   ## docs/evidence and the opening of README.md, from the kept studies; then docs/levers and docs/advice.md
	$(BIN)/python -m tools.evidence docs/evidence --readme README.md --levers fulcrum/levers
	$(BIN)/fulcrum levers pages docs/levers
	$(BIN)/python -m tools.pages docs

gpu: $(BIN)/.dev     ## on a machine with a GPU: a training, and the laws there; never run where this was written
	$(BIN)/fulcrum train spark --device cuda --images 3200 --out runs/gpu
	$(BIN)/fulcrum doctor --laws --device cuda

bench: $(BIN)/.dev   ## the step against diffusers, interleaved
	$(BIN)/python bench/step.py

hops: $(BIN)/.dev    ## functions, files and changes of file of a step, the start, a picture, a cell; with limits
	$(BIN)/python bench/hops.py --limits

goldens: $(BIN)/.dev  ## keys and weights hashes of small trainings, to compare two trees: TREE=. GOLDENS=FILE
	$(BIN)/python bench/goldens.py $(TREE) $(GOLDENS)

clean:           ## remove the environment; runs stay
	rm -rf $(VENV)
