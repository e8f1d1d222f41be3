# Two commands matter: `make demo` runs the main job, `make test` passes the tests.
# Both make their own virtual environment in .venv and need Python 3.11+, make and the network.

.PHONY: demo test fast slow check types-of-product types-of-tests unit golden sim cluster fuzz chaos power-cuts fault spark interop docker browser bench bench-peers bench-rocketmq bench-seeds profile-seeds soak rocketmq-tests proto sync docs format install clean
.DEFAULT_GOAL := test

VENV := .venv
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest
MINUTES := 10
# Where the tests of one process keep their stores: in memory, if there is room for them. They spent a
# third of their time on waiting for the disk; what needs a real one is in the groups of `slow`.
IN_MEMORY := $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null && echo TMPDIR=/dev/shm)
OUTSIDE := cluster or fuzz or fault or spark or interop or docker or browser

# The tests start hundreds of Python processes: they are to find our modules compiled.
unexport PYTHONDONTWRITEBYTECODE

$(VENV)/.run: pyproject.toml constraints.txt scripts/make_venv.sh
	sh scripts/make_venv.sh $(VENV) ".[server]"
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt scripts/make_venv.sh
	sh scripts/make_venv.sh $(VENV) ".[dev,spark]"
	touch $@ $(VENV)/.run

install: $(VENV)/.dev

demo: $(VENV)/.run
	$(PYTHON) scripts/demo.py

# All that a change must pass. Groups of tests whose needs are missing say so and are skipped,
# unless CI=true: then a missing need is a failure.
test: fast slow

# Lint, format, strict types; then what runs inside one process, on all cores. About ten minutes.
fast: check
	$(IN_MEMORY) $(PYTEST) -n auto -m "not ($(OUTSIDE))"

# What starts processes, Spark, brokers or containers, in lanes side by side (tests/conftest.py has
# them); last what measures a node on a machine that does nothing else. About half an hour.
slow: $(VENV)/.dev
	$(PYTEST) -n 3 --dist loadscope --max-worker-restart 0 -m "($(OUTSIDE)) and not quiet"
	$(PYTEST) -m quiet

check: $(VENV)/.dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(MAKE) --no-print-directory --jobs 2 --output-sync types-of-product types-of-tests

types-of-product: $(VENV)/.dev
	$(PYTHON) -m mypy

types-of-tests: $(VENV)/.dev
	$(PYTHON) -m mypy --config-file tests/mypy.ini

unit: $(VENV)/.dev
	$(PYTEST) -n auto -m "not (golden or sim or $(OUTSIDE))"

golden cluster fault spark interop docker browser: $(VENV)/.dev
	$(PYTEST) -m $@

# SEEDS=5000 plays so many worlds of real stores on all processors, without the tests.
sim: $(VENV)/.dev
ifdef SEEDS
	PYTHONPATH=.:tests $(PYTHON) -m sim $(SEEDS)
else
	$(PYTEST) -n auto -m sim
endif

# MINUTES of mutated requests, frames and files; FUZZ_SEED=… repeats a run.
fuzz: $(VENV)/.dev
	FUZZ_MINUTES=$(MINUTES) $(PYTEST) -o faulthandler_timeout=0 --timeout 0 -m fuzz tests/fuzz

# CUTS of power under a plain writer, under a node and under a whole cluster. Needs root, FUSE and loop devices.
power-cuts: $(VENV)/.dev
	POWER_CUTS=$(CUTS) $(PYTEST) -s -o faulthandler_timeout=0 --timeout 0 -m fuse tests/fault/test_simulated_disk.py tests/fault/test_power_cut.py tests/fault/test_rack_power_cut.py

# MINUTES of faults on real nodes in network namespaces; CHAOS_SEED=… repeats their order. What came
# of each kind of fault is in build/chaos.json. Needs root, iproute2, iptables and etcd.
chaos: $(VENV)/.dev
	PYTHONPATH=.:tests $(PYTHON) -m chaos $(MINUTES)

bench: $(VENV)/.dev
	$(PYTHON) -m benchmarks --record

# Beside Kafka and confluent-kafka, which are fetched into build/peers; needs Java and Maven.
bench-peers: $(VENV)/.dev
	$(PYTHON) -m benchmarks peers

# A node that follows a RocketMQ broker beside RocketMQ's own slave; needs Java and Maven.
bench-rocketmq: $(VENV)/.dev
	PYTHONPATH=.:tests $(PYTHON) -m benchmarks rocketmq

# RocketMQ's own client on a node and on its broker, Kafka's on Kafka; needs Java and Maven. ARGS:
# --quick, --write (docs/performance.md), --only clients, --topics 64, --rounds 1.
bench-seeds: $(VENV)/.dev
	PYTHONPATH=.:tests $(PYTHON) -m benchmarks.seeds $(ARGS)

# What a request of RocketMQ's clients costs a node, and where: WORK is send, batch or pull.
WORK ?= send
profile-seeds: $(VENV)/.dev
	PYTHONPATH=.:tests $(PYTHON) -m benchmarks.seeds.profile $(WORK)

# MINUTES of load on a RocketMQ broker and its follower, with a fault every few seconds.
soak: $(VENV)/.dev
	PYTHONPATH=.:tests $(PYTHON) -m interop.soak $(MINUTES)

# RocketMQ's own integration tests (5.5.0), all that can run, against nodes; needs Java and Maven.
rocketmq-tests: $(VENV)/.dev
	PYTHONPATH=.:tests $(PYTHON) -m interop.integration_tests

proto: $(VENV)/.dev
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PYTHON) scripts/generate_stubs.py

# Admin and Consumer, from AsyncAdmin and AsyncConsumer.
sync: $(VENV)/.dev
	$(PYTHON) scripts/generate_sync.py

# The pages that are made from the program itself.
docs: $(VENV)/.dev
	$(PYTHON) -m tandemlog_server.node.settings.config_docs > docs/configuration.md
	$(PYTHON) -m tandemlog_server.node.http.monitoring_docs > docs/monitoring.md
	$(PYTHON) -m tandemlog_server.cli.docs_page > docs/cli.md
	$(PYTHON) scripts/api_docs.py > docs/api.md
	PYTHONPATH=.:tests $(PYTHON) -m interop.client_tables

format: $(VENV)/.dev
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
