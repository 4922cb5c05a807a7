# One word per habit. Every target may be run again; an environment that is up to date installs nothing.
#   make demo        raw text to a trained, evaluated model        make test        the whole suite
#   make install     only the environment (.venv)                  make test-slow   the long proofs
#   make check       format, lint, types, architecture             make fix         let ruff mend what it can
#
# CUDA=1 takes the CUDA builds of torch and FBGEMM instead of the CPU ones.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
CUDA ?=
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq install --constraint constraints.txt
FBGEMM := $(if $(CUDA),,./packaging/fbgemm-gpu-cpu)
CORE := .venv/.core$(if $(CUDA),-cuda)
FULL := .venv/.full$(if $(CUDA),-cuda)

.PHONY: demo install install-full check fix test test-slow clean

demo: $(CORE)
	@echo "demo: a synthetic click log, one epoch of DLRM from its raw text, the test metrics beside the best possible"
	@$(BIN)/recmill demo

install: $(CORE)
install-full: $(FULL)

$(BIN)/python:
	@echo "install: creating .venv with $(PYTHON)"
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("recmill needs Python 3.11 or newer, this is %d.%d: make PYTHON=/path/to/python3.11" % v)'
	@$(PYTHON) -m venv .venv

$(CORE): $(BIN)/python pyproject.toml constraints.txt
	@echo "install: recmill and its pinned dependencies into .venv (about a minute)"
	@$(PIP) --editable .
	@touch $@

$(FULL): $(CORE) packaging/fbgemm-gpu-cpu/pyproject.toml
	@echo "install: TorchRec, FBGEMM ($(if $(CUDA),CUDA,CPU) build) and the development tools into .venv"
	@$(PIP) $(FBGEMM) --editable '.[sharded,dev]'
	@touch $@

check: $(FULL)
	@echo "check: ruff format, ruff lint, mypy --strict, architecture"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest tests/test_architecture.py

fix: $(FULL)
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

test: $(FULL)
	@echo "test: the whole suite, without the long proofs (make test-slow)"
	@$(BIN)/pytest --numprocesses 2 --dist worksteal

test-slow: $(FULL)
	@echo "test-slow: the long proofs"
	@$(BIN)/pytest -m slow

clean:
	@rm -rf .venv demo .pytest_cache .mypy_cache .ruff_cache .hypothesis build
