# Everything starts here: make demo, make test, make up. Only Python >= 3.11, git and make are needed beforehand.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTHON := $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 4 ? n + 1 : 4)))  # of the tests: some wait more than they work
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test up lint ruff types imports unit bench clean-demo

help:
	@echo "make setup       create $(VENV) and install Strop (the others call it)"
	@echo "make demo        watch the loop learn on this machine; ARGS=--quick does one update and ends"
	@echo "make up          start the product; ARGS='--port 9000' and so on"
	@echo "make test        lint, types, import rules and all tests; ARGS=tests/feedback runs some"
	@echo "make lint        lint, types and import rules alone"
	@echo "make bench       every benchmark; ARGS=learning runs one"
	@echo "make clean-demo  remove the demo's home"

setup: $(STAMP)

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Strop needs Python 3.11 or newer; found $$(python3 --version 2>&1)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		package=$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y $$package; \
		else \
			echo "Python's venv is missing. Run: sudo apt-get install $$package" >&2; exit 1; \
		fi; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing Strop into $(VENV) (1.5 GB with torch; a few minutes the first time)"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --editable '.[local,dev]'
	@touch $(STAMP)

demo: setup
	@exec $(BIN)/strop demo $(ARGS)

up: setup
	@exec $(BIN)/strop up $(ARGS)

test: ruff imports
	@$(MAKE) --no-print-directory --jobs 2 types unit  # types take a core for a minute, while some tests wait

lint: ruff types imports

ruff: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy .

imports: setup
	$(BIN)/lint-imports

unit: export PYTHONDONTWRITEBYTECODE =
unit: setup
	@$(BIN)/python -m compileall -q platform feedback evals rl_online  # or each of many processes does it again
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

bench: setup
	@for script in $(if $(ARGS),$(ARGS:%=benchmarks/%.py),benchmarks/*.py); do echo "== $$script"; \
		$(BIN)/python $$script || failed=1; done; exit $${failed:-0}

clean-demo: setup
	@$(BIN)/python -m strop.local.remove .demo
