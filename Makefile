# Every target sets itself up: a newcomer types `make demo` or `make test` and nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# The distribution's Python where it will do, else the one on the path: distributions build theirs with profile-guided optimisation,
# which others leave out by default, and on which a simulated week takes an eighth less.
WILL_DO := import sys, ensurepip, lzma, sqlite3, ssl, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for each in /usr/bin/python3 python3; do "$$each" -c '$(WILL_DO)' 2> /dev/null && echo "$$each" && exit; done; echo python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TRACES ?= $(firstword $(wildcard ../shared/traces))
export HEADRACE_TRACES ?= $(if $(TRACES),$(abspath $(TRACES)))

# Empty: modules are kept compiled, wherever this runs. The tests start some hundred processes, and each would compile all it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test test-long lint types arch unit lock clean cluster-build cluster-up cluster-status cluster-down schemas chart bench-interruptions bench-loop

setup: $(STAMP)

$(STAMP): requirements/bootstrap.txt requirements/dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headrace needs Python 3.11 or newer, this is %s: set PYTHON=" % sys.version.split()[0])'
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip sync --quiet --require-hashes --allow-empty-requirements requirements/bootstrap.txt requirements/dev.txt
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(STAMP)

demo: setup
	mkdir -p out
	$(BIN)/headrace demo --summary out/demo.json --plot out/demo.png

test: setup lint types arch unit

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

arch: setup
	$(BIN)/lint-imports

# Three on two cores: one in five waits for a server, a process or the test bed.
unit: setup cluster-build
	$(BIN)/python -m pytest -n 3 --dist worksteal

# What takes a minute or more each: failovers, outages, Karpenter, two hundred notices, thousands of rounds in a storm. Half an hour on two cores.
test-long: setup cluster-build
	HEADRACE_LONG=1 $(BIN)/python -m pytest -m long

# Without a suitable Go it says so, and the tests that need a control plane are skipped.
cluster-build: setup
	$(BIN)/python -m tests.cluster.build --where-possible

# headrace bench interruptions on a bed of its own; NODES=20 for a glance.
bench-interruptions: cluster-build
	$(BIN)/python -m tests.e2e.cluster.bench interruptions $(or $(NODES),500)

# headrace bench loop likewise; NODES=50 for a glance, ten minutes with 5000.
bench-loop: cluster-build
	$(BIN)/python -m tests.e2e.cluster.bench loop $(or $(NODES),5000)

cluster-up cluster-status cluster-down: cluster-%: setup
	@$(BIN)/python -m tests.cluster $*

# Pins carry hashes and no addresses, so that any mirror serves.
lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url --upgrade --extra dev pyproject.toml -o requirements/dev.txt

# The schemas, the definition and its copy in the chart, as the code has them now: after each change of the YAML, a new policy is one too.
schemas: setup
	$(BIN)/headrace schema > deploy/schema/rolloutfleet.schema.json
	$(BIN)/headrace schema --controller > deploy/schema/controller.schema.json
	$(BIN)/headrace schema --crd > deploy/crd/rolloutfleets.headrace.dev.yaml
	cp deploy/crd/rolloutfleets.headrace.dev.yaml deploy/helm/headrace/crds/

chart: schemas

clean:
	@if [ -e out/cluster ]; then $(BIN)/python -m tests.cluster down; fi
	rm -rf $(VENV) out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
