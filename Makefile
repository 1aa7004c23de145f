# Every target makes what it needs: `make demo` and `make test` work in a fresh clone. `make` alone prints the list.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Any Python from 3.11 on will do; PYTHON=... chooses one.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# One worker more than there are cores, because tests also wait; those marked `serial` measure time and run alone afterwards.
WORKERS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null | awk '{ print ($$1 < 7 ? $$1 + 1 : 8) }')
SECONDS ?= 60
RATE ?= 20000
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup bytecode native wheel demo test test-kafka test-spark42 search fuzz check format faults soak \
	bench-broker bench-neighbours bench-log bench-clients bench-spark peers spark-peer reference clean

help: ## print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv and install everything into it (quick when nothing changed)

$(STAMP): pyproject.toml setup.py
	@tools/setup_venv.sh "$(PYTHON)" "$(VENV)"
	@touch $(STAMP)

# An installed package has its bytecode beside it; an editable one gets it here, so that processes start as fast as a user's would.
bytecode: native
	@$(BIN)/python -m compileall -q src bench

native: $(STAMP) ## compile the request path anew if its sources changed (ADR 7); without a C compiler it stays plain Python
	@tools/build_native.sh $(BIN)/python

wheel: $(STAMP) ## build the wheel that users get into dist/, and try it where there is no compiler
	@tools/system_packages.sh cc
	@tools/build_wheel.sh $(BIN)/python

demo: bytecode ## orders through a broker and Spark, live, with a proof at the end; SECONDS=0 runs until Ctrl-C, RATE=... orders a second
	@tools/system_packages.sh java
	@$(BIN)/python -m bench.demo --seconds $(SECONDS) --rate $(RATE)

test: bytecode ## run the whole test suite; a failed test is run once more, alone
	@tools/system_packages.sh kcat java mvn || echo "tests that need a missing program are left out and say so"
	@$(BIN)/python -m bench.peers --optional
	@$(BIN)/python tools/run_tests.py --workers $(WORKERS)

# What talks to a broker through our clients; the unit tests in these directories run along.
KAFKA_TESTS := tests/client tests/producer tests/consumer tests/clients tests/cli tests/test_examples.py tests/test_docstrings.py \
	tests/faults/test_producer_network.py tests/faults/test_dying_chain.py tests/spark

test-kafka: bytecode peers ## the tests of clients, command line, examples and Spark against Apache Kafka instead of our broker (a quarter of an hour)
	@BARNABAS_TEST_AGAINST=kafka $(PYTEST) -n $(WORKERS) --dist loadfile -m "not serial" -q --timeout 400 -o faulthandler_timeout=390 $(KAFKA_TESTS)

search: bytecode ## the tests with generated data, with thousands of new examples each: `make test` tries the same ones every time
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m hypothesis --hypothesis-profile search -q --timeout 1200 -o faulthandler_timeout=1100

# Inputs of all targets together, and mutated frames for a live broker; FUZZ_SEED=0 tries others each time.
FUZZ_RUNS ?= 10000000
FUZZ_FRAMES ?= 1000000
FUZZ_SEED ?= 0

fuzz: bytecode ## coverage-guided fuzzing and an attack on a live broker: a line per target (FUZZ_RUNS=…, FUZZ_FRAMES=…; an hour or two)
	@$(BIN)/python -m tests.fuzz --runs $(FUZZ_RUNS) --frames $(FUZZ_FRAMES) --seed $(FUZZ_SEED)

check: $(STAMP) ## ruff, mypy --strict, import rules, size limits, generated reference, coverage of the specification
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/generate_reference.py --check
	$(BIN)/python tools/check_rp_coverage.py --check

format: $(STAMP) ## let ruff format the code and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

FAULTS := BARNABAS_FAULTS=full $(PYTEST) tests/faults tests/spark/test_sink_faults.py -v --timeout 3600 -o faulthandler_timeout=3500

faults: bytecode ## the fault matrix with full counts: prints a line per row with its figures (long)
	@$(FAULTS) -n $(WORKERS) --dist worksteal -m "not serial"
	@$(FAULTS) -m serial

SOAK_SECONDS ?= 3600
soak: bytecode ## row 31: an hour of producers whose memory is used up on a line that fails (SOAK_SECONDS=…)
	@BARNABAS_FAULTS=full SOAK_SECONDS=$(SOAK_SECONDS) $(PYTEST) tests/faults/test_memory_stress.py -q --timeout 0 -o faulthandler_timeout=0

bench-broker: bytecode peers ## side by side with Apache Kafka: rates, ratios, start time, memory
	@tools/system_packages.sh cc
	@$(BIN)/python -m bench.broker

.PHONY: bench-neighbours
bench-neighbours: bytecode peers ## what a bystander feels while one client does its worst, on our broker and on Apache Kafka (about 20 minutes)
	@$(BIN)/python -m bench.neighbours

bench-log: bytecode ## the log beside the bare work of the operating system: append, fetch, recovery, start, look-ups, memory
	@tools/system_packages.sh cc
	@$(BIN)/python -m bench.log

bench-clients: bytecode ## our clients beside confluent-kafka and kafka-python, on one broker with the same data
	@$(BIN)/python -m bench.clients

bench-spark: bytecode spark-peer ## our Spark connector beside Spark's own, on one broker with the same data (about ten minutes)
	@$(BIN)/python -m bench.spark

peers: $(STAMP) ## fetch Apache Kafka's jars into .cache (needs Java and Maven)
	@tools/system_packages.sh java mvn
	@$(BIN)/python -m bench.peers

spark-peer: $(STAMP) ## fetch Spark's own Kafka connector and the PySpark that it fits into .cache (about 450 MB; needs Java and Maven)
	@tools/system_packages.sh java mvn
	@$(BIN)/python -m bench.peers --spark

test-spark42: bytecode spark-peer ## the tests of the Spark connector on PySpark 4.2, beside the newest one that `make test` uses
	@tools/test_on_peer_spark.sh $(BIN)/python tests/spark -q

reference: $(STAMP) ## write docs/reference anew from the declared rows
	$(BIN)/python tools/generate_reference.py
	$(BIN)/python tools/check_rp_coverage.py

clean: ## remove the environment, caches and build products
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist src/*.egg-info
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
