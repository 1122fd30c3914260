# Everything sets itself up: `make demo` and `make test` need Python 3.11+, make, git and, as root, apt.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
REQUIRE ?=
PYTEST_ARGS ?=
# Tests wait for much of their time: two workers more than processors keep two of these busy for two thirds of it, so there are four more.
WORKERS ?= $(shell expr $$(nproc) + 4)
export VENV PYTHON REQUIRE
export TEXTUAL_ANIMATIONS = none
# Without bytecode each of the thousands of programs that the tests start compiles the package: 1.0 s of CPU, not 0.5.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-microvm test-k8s conformance check bench screenshots lock clean

help: ## what there is to make
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "%-12s %s\n", $$1, $$2}' Makefile

demo: ## real sandboxes, then the console on them (without a terminal: a printed tour)
	@scripts/setup run
	@$(BIN)/sandbox-console demo

test: ## every test; REQUIRE=docker,bubblewrap,... makes a missing engine a failure
	@scripts/setup test
	$(BIN)/python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-slow: ## the tests that take minutes
	@scripts/setup test
	$(BIN)/python -m pytest -m slow -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

test-microvm: ## real microVMs: here where KVM works, else in an emulated machine (under 20 minutes)
	@scripts/setup microvm
	$(BIN)/python -m tests.support.microvm.suite $(PYTEST_ARGS)

test-k8s: ## a real Kubernetes of one node, built from Debian's source once (3 to 6 minutes), and the tests on it; exits with 75 if it cannot be set up
	@scripts/setup test
	REQUIRE=kubernetes tests/kubernetes/cluster/run $(BIN)/python -m pytest -q --tb=short tests/kubernetes/test_cluster.py tests/kubernetes/test_cluster_outages.py tests/conformance/test_kubernetes.py $(PYTEST_ARGS)

conformance: ## every backend here asked every check again, and the table of docs/backends.md written of it
	@scripts/setup test
	$(BIN)/python -m tests.conformance.refresh

check: ## formatting, lints, types, the rooms' walls, documents against code
	@scripts/setup test
	$(BIN)/ruff format --check -q
	$(BIN)/ruff check -q
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -q tests/docs

bench: ## the figures, each beside its peer where one can be had; not the soak of 20 minutes
	@scripts/setup test
	@for script in $(filter-out benchmarks/soak.py,$(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

screenshots: ## the pictures of README.md, off real sandboxes
	@scripts/setup test
	$(BIN)/python scripts/screenshots.py

lock: ## write requirements.lock and requirements-dev.lock anew
	@scripts/setup test
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --all-extras pyproject.toml -o requirements-dev.lock

clean: ## remove what was made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache build dist
