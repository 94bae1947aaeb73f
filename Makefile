# Everything from a fresh clone, with Python 3.10+, make and git: `make demo`, `make test`.

PYTHON ?= python3
# torch alone, pinned and first: the default wheel brings CUDA along, several gigabytes. Without an NVIDIA GPU the CPU build
# is taken if pip finds one (its index in PIP_EXTRA_INDEX_URL). By hand:
#   make demo TORCH=./torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl
TORCH ?= torch==2.13.0
TORCH_CPU := $(if $(wildcard /dev/nvidia*),,$(if $(findstring file,$(origin TORCH)),$(TORCH)+cpu))
VENV ?= .venv
DEMO_SECONDS ?= 60
DEMO_LOG ?= demo.jsonl
PYTEST_ARGS ?=
# Three files of tests at a time, whatever the machine: several start trainings that take more than a core each, more wait
# for trainings that sleep. Two cores took 375 s with two at a time, and 320 s with three.
PYTEST_JOBS ?= -n 3 --dist loadfile --no-loadscope-reorder

BIN := $(VENV)/bin
TORCH_STAMP := $(VENV)/.torch-$(shell printf '%s' '$(TORCH)' | cksum | cut -d' ' -f1)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test trust completions docs figures screens test-lowest soak-tests soak fuzz lint licences advisories check lock bench truth accuracy verdicts
.PHONY: torches schema prometheus-check gpu-check clean

define HELP
Run
  make demo        Run a training that waits for its data under tuimon, for about a minute
  make clean       Remove the environment and what tools left behind

Check a change
  make test        Run the tests
  make lint        Check format, lint, types and layers
  make check       Run lint, licences, advisories and test: every change has to pass
  make verdicts    Show what a change alters in what tuimon says of recorded runs (VERDICTS_ARGS=--accept keeps it)
  make trust       Run the tests that show that tuimon leaves the training as it is, and count them (at most 10 minutes)
  make soak-tests  Run the tests N times (6), every second time beside two busy processes
  make soak        Run a training day in SOAK_MINUTES (30): show what grows, is lost, or is counted wrong
  make fuzz        Feed damaged logs and rings and hostile text to everything that reads or shows them (about 12 minutes)
  make prometheus-check  Let a real Prometheus scrape two ranks, and check that each expression of the dashboard has data
                   (half a minute; PROMETHEUS=DIR: the folder of prometheus and promtool)

Check dependencies
  make licences    Check that pyproject.toml allows the licence of every installed package
  make advisories  Look for known vulnerabilities of locked packages, if the database can be reached
  make lock        Write requirements/*.lock anew: the newest versions within the bounds, with hashes
  make test-lowest Test what touches the dependencies with the lowest versions that pyproject.toml allows
  make torches     Test what runs in the training with torch $(TORCHES) (5 GB and 8 minutes each)

Write docs
  make docs        Build the docs site into site/, and check its links
  make figures     Write the figures of README.md and docs anew, from recorded logs and docs/cases.py
  make screens     Draw README's picture and docs/screens anew, from recorded logs
  make schema      Write docs/schema anew, from the types
  make completions Write tuimon/completions and docs/tuimon.1 anew, from the commands' parsers

Measure
  make bench       Measure what tuimon costs, as a table (about 40 minutes)
  make truth       List the kinds of experiments with programs whose truth is known
  make truth KIND=hang   Run one kind, as a table (ARGS=--help shows its options)
  make accuracy    Judge labelled trainings under tuimon run and attach, and write docs/accuracy.md; interrupted, it resumes
                   (about 100 s a program, on a quiet machine; ACCURACY='NAME ...' judges these anew)
  make gpu-check   Test on an NVIDIA GPU: cost, GPU times, traces, verdicts, and what fixes gain (about 18 minutes;
                   GPU_ARGS=--quick: 4; GPU_ARGS='--only programs --within 500': that part, in 500 s;
                   python3 -m bench.gpu --wheels prints what it needs beside torch, for pip download -r)

Variables: PYTHON=$(PYTHON)  TORCH='$(TORCH)'  VENV=$(VENV)
endef

help:
	@:$(info $(HELP))

demo: $(VENV)/.demo-installed
	$(BIN)/tuimon run --force --log $(DEMO_LOG) -- $(BIN)/python demo/slow_loader.py --workers 2 --seconds $(DEMO_SECONDS)
	@echo "The report of what you saw: $(BIN)/tuimon report $(DEMO_LOG)" >&2

test: $(VENV)/.test-installed
	$(BIN)/python -m pytest $(PYTEST_JOBS) $(PYTEST_ARGS)

# That the training is as it would be without tuimon: the tests with this mark, and how many of them held.
trust: $(VENV)/.test-installed
	$(BIN)/python -m pytest $(PYTEST_JOBS) -q -m trust $(PYTEST_ARGS)

# An environment of its own, without torch: the generator, which needs Python 3.11, and what tuimon itself needs.
DOCS := $(VENV)/docs
docs: $(DOCS)/.installed
	$(DOCS)/bin/python -m docs.make_site build/docs
	$(DOCS)/bin/zensical build --strict --clean --config-file build/docs/zensical.toml
	rm -rf site && mv build/docs/site site

$(DOCS)/.installed: requirements/docs.lock $(VENV)/bin/python
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/docs.lock
	@touch $@

figures: $(VENV)/.test-installed
	$(BIN)/python -m docs.make_figures

screens: $(VENV)/.test-installed
	$(BIN)/python -m docs.make_screens

N ?= 6
soak-tests: $(VENV)/.test-installed
	@busy=; trap 'kill $$busy 2>/dev/null' EXIT; red=0; for run in $$(seq $(N)); do \
	  if [ $$((run % 2)) = 0 ]; then for _ in 1 2; do sh -c 'while :; do :; done' & busy="$$busy $$!"; done; fi; \
	  $(BIN)/python -m pytest -q $(PYTEST_JOBS) $(PYTEST_ARGS) || red=$$((red + 1)); \
	  kill $$busy 2>/dev/null; busy=; \
	done; echo "$$red of $(N) runs are red"; [ $$red = 0 ]

SOAK_MINUTES ?= 30
SOAK_ARGS ?=
soak: $(VENV)/.test-installed
	$(BIN)/python -m tests.day --minutes $(SOAK_MINUTES) $(SOAK_ARGS)

completions: $(VENV)/.test-installed
	$(BIN)/python -m docs.make_completions

schema: $(VENV)/.test-installed
	$(BIN)/python -m docs.make_schema

VERDICTS_ARGS ?=
verdicts: $(VENV)/.test-installed
	$(BIN)/python -m tests.verdicts $(VERDICTS_ARGS)

FUZZ_ARGS ?=
fuzz: $(VENV)/.test-installed
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

lint: $(VENV)/.test-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Licences and what they ask for: [tool.pip-licenses] in pyproject.toml.
licences: $(VENV)/.test-installed
	$(BIN)/pip-licenses --python $(BIN)/python --summary

advisories: $(VENV)/.test-installed
	$(BIN)/python -m tests.packages.advisories

check: lint licences advisories test

# For every Python from 3.10 on (the docs: 3.11) and every platform; the wheels' hashes come from the package index.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --no-annotate \
  --custom-compile-command "make lock" --no-emit-index-url --no-emit-find-links --excludes requirements/excluded.txt
lock: $(BIN)/python
	$(BIN)/python -c 'import uv' 2>/dev/null || $(PIP) uv
	$(LOCK) --python-version 3.10 --extra demo --group test pyproject.toml requirements/dev.in --output-file requirements/dev.lock
	$(LOCK) --python-version 3.10 --extra demo pyproject.toml requirements/demo.in --output-file requirements/demo.lock
	$(LOCK) --python-version 3.11 --group docs pyproject.toml --output-file requirements/docs.lock
	$(LOCK) --python-version 3.10 --group wild pyproject.toml requirements/wild.in --output-file requirements/wild.lock

# An environment of its own: torch comes from the other one, which it finds behind its own packages.
LOWEST := $(VENV)/lowest
LOWEST_TESTS ?= tests/views tests/monitor tests/sources tests/proc tests/cli tests/fuzz
test-lowest: $(VENV)/.test-installed
	$(BIN)/uv pip compile --quiet --resolution lowest-direct --no-annotate --no-emit-index-url --no-emit-find-links \
	  --python $(BIN)/python pyproject.toml --output-file $(VENV)/lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/lowest.txt
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  > "$$($(LOWEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(LOWEST)/bin/python -m pytest $(PYTEST_JOBS) $(PYTEST_ARGS) $(LOWEST_TESTS)

# The oldest that pyproject.toml allows and the newest that was tried; CUDA builds. Each environment has its own torch,
# finds all else behind it, and goes when its tests have passed.
TORCHES ?= 2.4.1 2.14.1
TORCHES_TESTS ?= tests/agent tests/sources/test_tracing.py
torches: $(VENV)/.test-installed
	@set -e; for version in $(TORCHES); do \
	  env=$(VENV)/torch-$$version; \
	  $(PYTHON) -m venv --clear $$env; \
	  $$env/bin/python -m pip install --quiet --disable-pip-version-check torch==$$version; \
	  $(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > "$$($$env/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/behind.pth"; \
	  $$env/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	  $$env/bin/python -c 'import torch; print("torch", torch.__version__)'; \
	  $$env/bin/python -m pytest $(PYTEST_JOBS) $(PYTEST_ARGS) $(TORCHES_TESTS); \
	  rm -rf $$env; \
	done

bench: $(VENV)/.demo-installed
	$(BIN)/python -m bench

# What docs/accuracy.md shows: whatever has not run yet, or the programs that ACCURACY names; each is kept when it has run.
ACCURACY ?= --missing
accuracy: $(VENV)/.test-installed
	$(BIN)/python -m tests.truth scenarios --attach --record $(ACCURACY)
	$(BIN)/python -m docs.make_figures

# Programs on public frameworks have an environment of their own.
KIND ?=
ARGS ?=
TRUTH := $(if $(filter wild,$(KIND)),$(VENV)/wild,$(VENV))
truth: $(if $(filter $(VENV),$(TRUTH)),$(VENV)/.test-installed,$(VENV)/wild/.installed)
	$(TRUTH)/bin/python -m tests.truth $(KIND) $(ARGS)

# The frameworks have an environment of their own: make test stays small. --no-deps: several need torch, which comes after.
WILD := $(VENV)/wild
$(WILD)/.installed: requirements/wild.lock $(VENV)/bin/python pyproject.toml
	$(PYTHON) -m venv --clear $(WILD)
	$(WILD)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements/wild.lock
	$(WILD)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	$(WILD)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# A folder with prometheus and promtool; without, those on the PATH.
PROMETHEUS ?=
prometheus-check: $(VENV)/.test-installed
	$(BIN)/python -m tests.prometheus_check $(if $(PROMETHEUS),--bin $(PROMETHEUS))

# With the torch that is there (GPU_PYTHON): a CUDA build of several gigabytes is not ours to install.
GPU_PYTHON ?= $(PYTHON)
GPU_ARGS ?=
gpu-check:
	PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}" $(GPU_PYTHON) -m bench.gpu $(GPU_ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything by hash but torch, which is another wheel on each machine; what it imports is in the locks.
# Stamps: a second run starts at once; a change in pyproject.toml, of a lock, or of TORCH, installs anew.
$(VENV)/.demo-locked: requirements/demo.lock $(VENV)/bin/python
	$(PIP) --require-hashes --requirement requirements/demo.lock
	@touch $@

$(TORCH_STAMP): | $(VENV)/.demo-locked
	@echo "installing $(TORCH)" >&2
	$(if $(TORCH_CPU),$(PIP) '$(TORCH_CPU)' 2>/dev/null ||) $(PIP) $(TORCH)
	@touch $@

$(VENV)/.demo-installed: $(VENV)/.demo-locked $(TORCH_STAMP) pyproject.toml
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.test-installed: $(VENV)/.demo-installed requirements/dev.lock
	$(PIP) --require-hashes --requirement requirements/dev.lock
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "tuimon needs Python 3.10 or newer; name one: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -f $@; echo "no virtual environment: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
