# One door: `make demo` shows the product, `make test` proves it, `make check` is what CI runs.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
export TOKENIZERS_PARALLELISM := false
# Models this small gain nothing from a second thread, and lose a lot where another program runs.
export OMP_NUM_THREADS ?= 1
# What installs packages into the environment that VIRTUAL_ENV names.
INSTALL ?= $(BIN)/python -m pip install --quiet
# `make oldest` and `make newest`: which build of PyTorch, as uv names it (cpu, cu130, …); empty:
# the one of the package index.
UV            ?= $(BIN)/uv
TORCH_BACKEND ?= cpu
# Triton is not among what the project is tested with: PyTorch for CUDA brings its own, of a version
# that depends on PyTorch's, and PyTorch for the CPU has none.
ADD = VIRTUAL_ENV=$(abspath $(VENV)) $(INSTALL)

.PHONY: demo test slow properties suite gpu kernels kernels-full faults check format lint types \
	floors fix help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(ADD) -c constraints.txt -e '.[dev]'
	touch $(STAMP)

demo: $(STAMP)  ## pretrain a small cosFormer on the embedded corpus: table, plot, saved model
	$(BIN)/accelerate launch recipes/mlm.py

test: $(STAMP)  ## the default tests, under five minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(STAMP)  ## the slow tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m slow

TIMES ?= 10
SEED  ?= $(shell date +%s)
properties: $(STAMP)  ## the property tests on new examples: TIMES=10 as many, from SEED=now
	HF_LINEAR_ATTN_EXAMPLES=$(TIMES) $(BIN)/python -m pytest -m slow tests/properties \
		--hypothesis-seed=$(SEED)

suite: $(STAMP)  ## Transformers' own tests of models, against model classes; FAMILY=cosformer: one family
	$(BIN)/python -m tests.suite $(if $(FAMILY),--family $(FAMILY))

.PHONY: oldest newest
oldest: RESOLUTION := lowest-direct
newest: RESOLUTION := highest
oldest newest:  ## the default tests with the oldest, the newest versions that are allowed
	@command -v $(UV) > /dev/null || $(MAKE) $(STAMP)
	$(UV) venv --quiet --clear --python $(PYTHON) .venv-$@
	VIRTUAL_ENV=.venv-$@ $(UV) pip install --quiet --resolution $(RESOLUTION) \
		$(addprefix --torch-backend ,$(TORCH_BACKEND)) -e '.[test]'
	.venv-$@/bin/python -m tests.versions $@
	.venv-$@/bin/python -m pytest -n 2

gpu: $(STAMP)  ## the tests that need a GPU
	$(BIN)/python -m pytest -m gpu

kernels: $(STAMP)  ## Triton kernels without a GPU: interpreter, and compiles for every target
	$(ADD) 'triton>=3.9'
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 tests/kernels -m kernels
	$(BIN)/python -m tests.kernels.gate

kernels-full: $(STAMP)  ## every entry of the launch table compiled with every pattern
	$(ADD) 'triton>=3.9'
	$(BIN)/python -m tests.kernels.gate --full

faults: $(STAMP)  ## runs that are killed a hundred times, full disks, damaged files, lost processes
	$(BIN)/python -m tests.faults

format: $(STAMP)  ## is the code formatted?
	$(BIN)/ruff format --check .

lint: $(STAMP)  ## ruff and spelling
	$(BIN)/ruff check .
	$(BIN)/codespell

types: $(STAMP)  ## static types
	$(ADD) triton
	$(BIN)/basedpyright --pythonpath $(BIN)/python

floors: $(STAMP)  ## no floor imports the one above it
	$(BIN)/lint-imports

check: format lint types floors test  ## format, lint, types, floors, tests

fix: $(STAMP)  ## format and repair what a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
