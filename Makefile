# `make PYTHON=python3.12 ...` chooses another interpreter.
ifndef PYTHON
PYTHON := $(shell scripts/python.sh)
endif
PYTEST_FLAGS ?=
# Many tests wait for a process or a disk, so there is one worker more than cores.
TEST_WORKERS ?= $(shell expr $$(nproc) + 1)
SERVE_FLAGS ?=
CONFORMANCE_FLAGS ?=
# `make lock LOCK_FLAGS=--upgrade` moves every pin to its newest release.
LOCK_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
QUICK_TESTS := tests/rules tests/auth --ignore=tests/protocol/http tests/protocol tests/operations tests/test_errors.py tests/test_settings.py
PIP_TOOLS := pip-tools==7.6.2

# Prerequisites are steps in order: packages, then environment, then check.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help serve test quick check format torture bench conformance lock clean environment serve-packages test-packages python interpreter

help: ## list these verbs
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: serve-packages environment ## run the server in the foreground, data in ./etagere-data
	$(BIN)/etagere serve $(SERVE_FLAGS)

test: test-packages environment check ## install what is missing, check, and run the tests
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal -m 'not long and not alone' $(PYTEST_FLAGS)
	$(BIN)/pytest -m 'alone and not long' $(PYTEST_FLAGS)

quick: environment ## run the tests that need no server (under a minute)
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal -q -k 'not sqlite' $(QUICK_TESTS) $(PYTEST_FLAGS)

check: environment ## lint, formatting, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(wildcard src tests benchmarks conformance examples)
	$(BIN)/lint-imports

format: environment ## rewrite the sources as the linter wants them
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

torture: test-packages environment ## run the long form of the torture tests (over an hour; tells how far it is)
	$(BIN)/pytest -m long $(PYTEST_FLAGS)

bench: environment ## run the benchmarks
	$(BIN)/python -m benchmarks

conformance: test-packages environment ## run Microsoft's own live tests against the server
	$(BIN)/python -m conformance $(CONFORMANCE_FLAGS)

# The pins and hashes are those of the public index, so local pip settings must not take part.
PIP_COMPILE = $$tools/bin/pip-compile --quiet --no-config --generate-hashes --allow-unsafe \
	--strip-extras --no-header --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host $(LOCK_FLAGS)

lock: python ## write requirements/*.txt anew from pyproject.toml
	@set -eu; \
	tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX PIP_CONSTRAINT; \
	export PIP_CONFIG_FILE=/dev/null; \
	$(PYTHON) -m venv "$$tools"; \
	"$$tools/bin/pip" install --quiet $(PIP_TOOLS); \
	$(PIP_COMPILE) --output-file requirements/run.txt pyproject.toml; \
	$(PIP_COMPILE) --output-file requirements/dev.txt --extra dev --all-build-deps \
		--constraint requirements/run.txt pyproject.toml; \
	$(PIP_COMPILE) --output-file conformance/requirements.txt \
		--constraint requirements/dev.txt conformance/requirements.in; \
	for file in requirements/run.txt requirements/dev.txt conformance/requirements.txt; do \
		{ echo '# Made by `make lock`.'; cat $$file; } > "$$tools/lock"; \
		cat "$$tools/lock" > $$file; \
	done

clean: ## remove everything that can be made again
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf .bench .conformance tests/javascript/node_modules tests/javascript/*/node_modules
	find src tests benchmarks conformance -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

environment: interpreter $(STAMP)

IDENTITY := import os, sys; print(os.path.realpath(sys.executable), sys.version)

# An environment belongs to the interpreter that made it: another one makes it anew.
interpreter: python
	@if [ -e $(VENV) ] && \
		[ "$$($(BIN)/python -c '$(IDENTITY)' 2>&1)" != "$$($(PYTHON) -c '$(IDENTITY)')" ]; then \
		echo "Making $(VENV) anew with $(PYTHON)."; rm -rf $(VENV); fi

# The build backend is in the lock too, hence no isolated build that would fetch another.
$(STAMP): requirements/run.txt requirements/dev.txt pyproject.toml | python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

serve-packages test-packages:
	@PYTHON='$(PYTHON)' scripts/packages.sh $(@:-packages=)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Étagère needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
			"Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
