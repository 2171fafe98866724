# Every target sets up what it needs: only make and Python >= 3.11 have to be there.
#   make demo    train, compare, export and run a small scheduler (a few minutes)
#   make test    run the tests
#   make check   lint, types, import rules, spelling, wheel content, links of the documentation
#   make clean   remove the virtual environment and build leftovers

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
PIP_INSTALL = $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
PYTEST_FLAGS ?= -n 2
RUNS ?= runs

# One thread for every numeric library: several processes share the cores.
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test check clean lint types imports spelling wheel docs

help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "make: $(PYTHON) is no Python >= 3.11; give one with make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "make: $(PYTHON) cannot make virtual environments; on Debian install python3-venv" >&2; exit 1; }

# A stamp per set of extras, so that nothing is installed twice.
$(VENV)/agents.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e ".[agents]"
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP_INSTALL) -e ".[agents,onnx,dev]"
	@touch $@ $(VENV)/agents.stamp

demo: $(VENV)/agents.stamp
	@SCHED_ENV_COMMAND="$(BIN)/sched-env" RUNS="$(RUNS)" sh examples/demo.sh

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

check: lint types imports spelling wheel docs

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/pyright --pythonpath $(BIN)/python

imports: $(VENV)/dev.stamp
	$(BIN)/lint-imports

spelling: $(VENV)/dev.stamp
	$(BIN)/codespell

wheel: $(VENV)/dev.stamp
	$(BIN)/python .ci/check_wheel.py

docs: $(VENV)/dev.stamp
	$(BIN)/python .ci/check_links.py

clean:
	rm -rf $(VENV) build dist sched_env.egg-info
