.PHONY: help demo table1 figures notebooks explorer-picture docs test test-fast fuzz check lint bench format dist clean
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

help:
	@echo "make demo     train a network, test the packaged ones, measure, and open a page (three minutes)"
	@echo "make table1   train SonicNet and ConvNet on both synthetic tasks and write a report (about 13 minutes)"
	@echo "make test     run the whole test suite"
	@echo "make fuzz     2,500 random layers with extreme parameters, and deep networks from 20 seeds (about ten minutes)"
	@echo "make check    lint, format, types, import directions, load paths, pinned dependencies, documentation"
	@echo "make docs     build the documentation; open site/index.html"
	@echo "make figures  make all figures of the documentation, and measure the operators (a few minutes)"
	@echo "make notebooks run the notebooks and store what they show (about two minutes)"
	@echo "make bench    measure speed and memory; writes results/bench"
	@echo "make dist     build wheel and sdist, check them, and try the wheel without extras and with each extra alone"

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@echo "Installing torchsonic and its pinned requirements into $(VENV) ..."
	$(INSTALL) torch
	$(INSTALL) -e ".[dev]"
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(INSTALL) -e ".[bench]"
	@touch $@

# Needs OpenCL's headers; PoCL makes an OpenCL device of the CPU.
$(VENV)/.vkfft: $(VENV)/.installed
	VKFFT_BACKEND=opencl $(INSTALL) -e ".[vkfft]" pocl-binary-distribution
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(INSTALL) -e ".[docs]"
	@touch $@

$(VENV)/.dist: $(VENV)/.installed
	$(INSTALL) build twine hatchling
	@touch $@

demo: $(VENV)/.installed
	$(BIN)/torchsonic demo

table1: $(VENV)/.installed
	$(BIN)/torchsonic train table1 --preset demo --model sonicnet convnet --out table1

figures: $(VENV)/.installed
	$(BIN)/torchsonic figures --out docs/images $(if $(VOLUMES),--volumes $(VOLUMES))
	$(BIN)/torchsonic compare operators --out results/operators
	$(MAKE) --no-print-directory explorer-picture

notebooks: $(VENV)/.installed
	$(BIN)/python -m tests.notebooks.run

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal

test-fast: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

fuzz: $(VENV)/.installed
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -q tests/test_stability.py

# Not --quiet: that hides warnings from --strict, too. The variable silences an advertisement.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

check: lint docs
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_supply_chain.py tests/tools/test_api.py tests/test_release.py

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/torchsonic dependencies check

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench
	$(BIN)/torchsonic bench operator
	$(BIN)/torchsonic bench scaling
	$(BIN)/torchsonic bench precision
	$(BIN)/torchsonic bench memory
	$(BIN)/torchsonic bench models
	$(BIN)/torchsonic bench compile
	$(BIN)/torchsonic bench init
	$(BIN)/torchsonic bench data
	$(BIN)/torchsonic bench volumes
	$(BIN)/torchsonic bench explorer
	$(BIN)/torchsonic bench roofline

dist: $(VENV)/.dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tools.try_wheel dist/*.whl

explorer-picture: $(VENV)/.installed
	$(BIN)/python -m tests.explorer.picture docs/images/explorer.png

clean:
	rm -rf $(VENV) site .pytest_cache .ruff_cache .hypothesis
