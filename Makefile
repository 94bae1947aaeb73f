# Everything from a fresh clone, with Python 3.10+, make and git: `make demo`, `make test`.

PYTHON ?= python3
# torch alone, pinned and first: the default wheel brings CUDA along, several gigabytes. CPU only:
#   make demo TORCH=./torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl
TORCH ?= torch==2.13.0
VENV ?= .venv
DEMO_SECONDS ?= 60
DEMO_LOG ?= demo.jsonl
PYTEST_ARGS ?=
# Two files of tests at a time, whatever the machine: several start trainings that take more than a core each.
PYTEST_JOBS ?= -n 2 --dist loadfile --no-loadscope-reorder

BIN := $(VENV)/bin
TORCH_STAMP := $(VENV)/.torch-$(shell printf '%s' '$(TORCH)' | cksum | cut -d' ' -f1)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test soak-tests fuzz lint check bench scenarios gpu-truth gpu-check clean

help:
	@echo "make demo    a training that waits for its data, under tuimon, for about a minute"
	@echo "make test    the tests"
	@echo "make lint    format, lint, types, layers"
	@echo "make check   make lint, then make test"
	@echo "make soak-tests  the tests N times (default 6), every second time with busy processes beside"
	@echo "make fuzz    damaged logs and rings, hostile text, against everything that reads and shows them (about 15 minutes)"
	@echo "make scenarios  labelled trainings under tuimon: is its verdict right? (about 15 minutes)"
	@echo "make gpu-truth  recorded GPU trainings under tuimon: are its GPU times and verdicts true? (about a minute)"
	@echo "make bench   what tuimon costs, as a table (about 20 minutes)"
	@echo "make gpu-check  on a machine with an NVIDIA GPU: tests, cost, truth of GPU times, logs (about 8 minutes)"
	@echo "make clean   remove the environment and what tools left behind"
	@echo "Variables: PYTHON=$(PYTHON)  TORCH='$(TORCH)'  VENV=$(VENV)"

demo: $(VENV)/.demo-installed
	$(BIN)/tuimon run --force --log $(DEMO_LOG) -- $(BIN)/python demo/slow_loader.py --workers 2 --seconds $(DEMO_SECONDS)
	@echo "The report of what you saw: $(BIN)/tuimon report $(DEMO_LOG)" >&2

test: $(VENV)/.test-installed
	$(BIN)/python -m pytest $(PYTEST_JOBS) $(PYTEST_ARGS)

N ?= 6
soak-tests: $(VENV)/.test-installed
	$(BIN)/python -m tests.soak $(N) -- $(PYTEST_JOBS) $(PYTEST_ARGS)

FUZZ_ARGS ?=
fuzz: $(VENV)/.test-installed
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

lint: $(VENV)/.test-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

check: lint test

bench: $(VENV)/.demo-installed
	$(BIN)/python -m bench

scenarios: $(VENV)/.test-installed
	$(BIN)/python -m tests.scenarios

gpu-truth: $(VENV)/.test-installed
	$(BIN)/python -m tests.gpu_simulator

# With the torch that is there (GPU_PYTHON): a CUDA build of several gigabytes is not ours to install.
GPU_PYTHON ?= $(PYTHON)
GPU_ARGS ?=
gpu-check:
	PYTHONPATH=.$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) -m bench.gpu $(GPU_ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: a second run starts at once; a change in pyproject.toml, or of TORCH, installs anew.
$(TORCH_STAMP): $(VENV)/bin/python
	@echo "installing $(TORCH)" >&2
	$(PIP) $(TORCH)
	@touch $@

$(VENV)/.demo-installed: $(TORCH_STAMP) pyproject.toml
	$(PIP) --editable ".[demo]"
	@touch $@

$(VENV)/.test-installed: $(TORCH_STAMP) pyproject.toml
	$(PIP) --editable ".[demo,test]"
	@touch $@ $(VENV)/.demo-installed

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "tuimon needs Python 3.10 or newer; name one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -f $@; echo "no virtual environment: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
