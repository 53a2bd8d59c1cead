# A newcomer runs `make test`; `make` alone lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST = $(BIN)/python -m pytest
WITH_JAVA = JAVA_HOME="$$(sh scripts/java.sh --find)" && export JAVA_HOME &&

# The locked versions, for those who install by hand as well.
LOCK := requirements.lock

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup java check format test test-fast fuzz test-spark chaos cluster-test soak test-nexmark test-bench test-dashboard demo bench bench-smoke bench-count bench-durability bench-nexmark bench-balancer lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)  ## the environment in .venv, exactly as locked

$(STAMP): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	    { echo "Python 3.11 or later is needed: install it, or name it with 'make PYTHON=/path/to/python3 $(MAKECMDGOALS)'" >&2; exit 1; }
	@echo "setup: installing the locked packages into $(VENV) (Spark is large: this takes some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

java:  ## find Java 17 or later, or install it where we may; NO_INSTALL=1 forbids that
	@home="$$(sh scripts/java.sh)" && echo "java: $$home"

check: setup  ## lint, format, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## put the code in form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: setup java check  ## everything a change must pass: checks, tests, Spark and its clusters on this machine
	$(WITH_JAVA) $(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder --durations=12 -m "not slow and not browser"

test-fast: setup  ## tests without Spark: seconds
	$(PYTEST) -m "not spark and not cluster and not slow and not browser"

fuzz: setup  ## tests without Spark on examples never drawn before: minutes; what fails is kept as @example
	MEGAPHONE_EXAMPLES=new $(PYTEST) -n 2 --timeout 1800 -m "not spark and not cluster and not slow and not browser" tests

test-spark: setup java  ## tests on Spark, clusters of processes included
	$(WITH_JAVA) $(PYTEST) -m "spark or cluster"

test-nexmark: setup java  ## every NEXMark query, seed and strategy, on one and on two executors: minutes
	$(WITH_JAVA) $(PYTEST) tests/nexmark tests/spark/test_nexmark_queries.py tests/spark/test_nexmark_plain.py

test-bench: setup java  ## what experiments run, with next to nothing to count
	$(WITH_JAVA) $(PYTEST) tests/spark/test_trial.py

test-dashboard: setup java  ## drive the live page in a Chromium without a window; skipped if there is none
	$(WITH_JAVA) $(PYTEST) -rs -m browser tests/dashboard

chaos: setup java  ## break a running query in more than two hundred ways, and count what is lost
	$(WITH_JAVA) $(BIN)/python -m megaphone.harness.chaos

cluster-test: setup java  ## Spark on three hosts of this machine: one drained, two cut off, nothing lost
	$(WITH_JAVA) $(BIN)/python -m megaphone.harness.hosts

soak: setup java  ## ten minutes of migrations and kills: does anything grow? docs/reliability.md gets the table
	$(WITH_JAVA) $(BIN)/python -m megaphone.harness.soak --save

demo: setup java  ## a running query whose state moves while you watch
	$(WITH_JAVA) $(BIN)/python -m megaphone.harness.demo

bench: setup java  ## the paper's evaluation in its quick form: about an hour; one that was interrupted goes on
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/bytewax.lock || \
	    echo "bench: bytewax does not install here, so nothing is compared with it"
	$(WITH_JAVA) $(BIN)/megaphone bench run

bench-smoke: setup java  ## every experiment once, with next to nothing to do: does it work?
	$(WITH_JAVA) $(BIN)/megaphone bench run --form smoke

bench-count: setup java  ## the counting benchmark
	$(WITH_JAVA) $(BIN)/python benchmarks/count.py

bench-durability: setup java  ## snapshots on beside off, the disk over ten minutes, recoveries
	$(WITH_JAVA) $(BIN)/python benchmarks/durability.py

bench-nexmark: setup java  ## NEXMark's queries beside native ones and Spark's own
	$(WITH_JAVA) $(BIN)/python benchmarks/nexmark.py

bench-balancer: setup java  ## one worker has the hot keys; a policy shares them out
	$(WITH_JAVA) $(BIN)/python benchmarks/balancer.py

lock: setup  ## choose the versions anew from pyproject.toml
	$(BIN)/pip-compile --quiet --upgrade --all-extras --generate-hashes --allow-unsafe --strip-extras \
	    --no-header --no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	    --annotation-style=line --output-file=$(LOCK) pyproject.toml

clean:  ## remove what building and running left behind, and the environment
	rm -rf $(VENV) build dist out spark-warehouse metastore_db derby.log .mypy_cache .pytest_cache .ruff_cache \
	    .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
