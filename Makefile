# `make PYTHON=python3.12 ...` chooses another interpreter.
ifndef PYTHON
PYTHON := $(shell scripts/python.sh)
endif
PYTEST_FLAGS ?=
# Many tests wait for a process, a disk or a deadline, so there are more workers than cores.
TEST_WORKERS ?= $(shell expr $$(nproc) + 2)
SERVE_FLAGS ?=
CONFORMANCE_FLAGS ?=
SMBTORTURE_FLAGS ?=
FAULTS_FLAGS ?=
# `make lock LOCK_FLAGS=--upgrade` upgrades every pin to the newest release.
LOCK_FLAGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
QUICK_TESTS := tests/rules tests/auth --ignore=tests/protocol/http tests/protocol tests/operations tests/test_errors.py tests/test_settings.py
# The files with tests that run alone, so that the others need not be collected again.
ALONE_TESTS = $(shell grep -rlF mark.alone --include='test_*.py' tests)
PIP_TOOLS := pip-tools==7.6.2

# The tests start the server and the command hundreds of times: without bytecode in files, each
# start would compile all sources.
unexport PYTHONDONTWRITEBYTECODE

# Prerequisites are steps in order: packages, then environment, then check.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help serve cluster test quick check format torture faults bench conformance cifs smbtorture lock man dist clean environment serve-packages nodes-packages test-packages cluster-packages smbtorture-packages cifs-packages python interpreter

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: serve-packages environment ## run the server in the foreground with its data in ./etagere-data
	$(BIN)/etagere serve $(SERVE_FLAGS)

cluster: nodes-packages environment ## run a cluster on the loopback address to try it out: PostgreSQL, S3 and three nodes
	PYTHONPATH=src:. $(BIN)/python scripts/cluster.py

test: test-packages environment check ## install missing packages, check, and run the tests
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal -m 'not long and not alone' $(PYTEST_FLAGS)
	$(BIN)/pytest -m 'alone and not long' $(PYTEST_FLAGS) $(ALONE_TESTS)

quick: environment ## run the tests that need no server (under a minute)
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal -q -k 'not sqlite' $(QUICK_TESTS) $(PYTEST_FLAGS)

check: environment ## check lint, formatting, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy $(wildcard src tests benchmarks cifs conformance examples smbtorture)
	$(BIN)/lint-imports

format: environment ## apply the fixes of the linter and the formatter
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

torture: test-packages cluster-packages environment ## run the long tests (over an hour; shows the progress)
	$(BIN)/pytest -m long $(PYTEST_FLAGS)

faults: cluster-packages environment ## make histories of clusters under faults and check them (half an hour)
	$(BIN)/python -m tests.history --ledger postgresql --bodies s3 $(FAULTS_FLAGS)
	$(BIN)/python -m tests.history --ledger patroni --bodies ceph $(FAULTS_FLAGS)
	$(BIN)/python -m tests.history --cells 2 --nodes 1 --services blob queue table file

bench: environment ## run the benchmarks
	$(BIN)/python -m benchmarks

conformance: test-packages environment ## run the live tests of Microsoft's SDKs against the server
	$(BIN)/python -m conformance $(CONFORMANCE_FLAGS)

cifs: cifs-packages environment ## run the cifs client of the Linux kernel against the server, in QEMU
	$(BIN)/python -m cifs

smbtorture: smbtorture-packages environment ## run Samba's tests of SMB servers against the server
	$(BIN)/python -m smbtorture $(SMBTORTURE_FLAGS)

# The pins and hashes are those of the public index, so local pip settings must not apply.
PIP_COMPILE = $$tools/bin/pip-compile --quiet --no-config --generate-hashes --allow-unsafe \
	--strip-extras --no-header --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host $(LOCK_FLAGS)

man: environment ## regenerate the man page from the help of the commands
	$(BIN)/python scripts/man_page.py > packaging/etagere.1.new
	mv packaging/etagere.1.new packaging/etagere.1

dist: environment ## build the wheel and the source distribution in ./dist
	$(BIN)/python -m hatchling build -d dist

lock: python ## regenerate requirements/*.txt from pyproject.toml
	@set -eu; \
	tools=$$(mktemp -d); trap 'rm -rf "$$tools"' EXIT; \
	unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX PIP_CONSTRAINT; \
	export PIP_CONFIG_FILE=/dev/null; \
	$(PYTHON) -m venv "$$tools"; \
	"$$tools/bin/pip" install --quiet $(PIP_TOOLS); \
	$(PIP_COMPILE) --output-file requirements/run.txt pyproject.toml; \
	$(PIP_COMPILE) --output-file requirements/dev.txt --extra dev --all-build-deps \
		--constraint requirements/run.txt pyproject.toml; \
	$(PIP_COMPILE) --output-file requirements/build.txt --only-build-deps --build-deps-for wheel \
		--constraint requirements/dev.txt pyproject.toml; \
	$(PIP_COMPILE) --output-file conformance/requirements.txt \
		--constraint requirements/dev.txt conformance/requirements.in; \
	for file in requirements/run.txt requirements/dev.txt requirements/build.txt conformance/requirements.txt; do \
		{ echo '# Generated by `make lock`.'; cat $$file; } > "$$tools/lock"; \
		cat "$$tools/lock" > $$file; \
	done

clean: ## remove all generated files
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	rm -rf .bench .cifs .conformance .smbtorture tests/javascript/node_modules
	find src tests benchmarks cifs conformance smbtorture -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

environment: interpreter $(STAMP)

IDENTITY := import os, sys; print(os.path.realpath(sys.executable), sys.version)

# An environment belongs to the interpreter that created it; recreate it for another one.
interpreter: python
	@if [ -e $(VENV) ] && \
		[ "$$($(BIN)/python -c '$(IDENTITY)' 2>&1)" != "$$($(PYTHON) -c '$(IDENTITY)')" ]; then \
		echo "Recreating $(VENV) with $(PYTHON)."; rm -rf $(VENV); fi

# The build backend is pinned too; an isolated build would fetch another version.
$(STAMP): requirements/run.txt requirements/dev.txt pyproject.toml | python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

serve-packages nodes-packages test-packages cluster-packages smbtorture-packages cifs-packages:
	@PYTHON='$(PYTHON)' scripts/packages.sh $(@:-packages=)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Étagère needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
			"Choose another one: make PYTHON=python3.12 ..." >&2; exit 1; }
