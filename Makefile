# Two commands matter: `make demo` runs the main job, `make test` passes the tests.
# Both make their own virtual environment in .venv and need Python 3.11+, make and the network.

.PHONY: demo test check unit golden sim cluster fault spark interop docker bench proto format install clean
.DEFAULT_GOAL := test

VENV := .venv
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest
SOURCES := storage ha node tandemlog pipeline tests benchmarks scripts

$(VENV)/.run: pyproject.toml scripts/make_venv.sh
	sh scripts/make_venv.sh $(VENV) "."
	touch $@

$(VENV)/.dev: pyproject.toml scripts/make_venv.sh
	sh scripts/make_venv.sh $(VENV) ".[dev,spark]"
	touch $@ $(VENV)/.run

install: $(VENV)/.dev

demo: $(VENV)/.run
	$(PYTHON) scripts/demo.py

# Lint, format, strict types; then every group of tests. Groups whose needs are missing say so and
# are skipped, unless CI=true: then a missing need is a failure.
test: check
	$(PYTEST)

check: $(VENV)/.dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

unit: $(VENV)/.dev
	$(PYTEST) -m "not golden and not sim and not cluster and not fault and not spark and not interop and not docker"

golden sim cluster fault spark interop docker: $(VENV)/.dev
	$(PYTEST) -m $@

bench: $(VENV)/.dev
	$(PYTHON) -m benchmarks

proto: $(VENV)/.dev
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PYTHON) scripts/generate_stubs.py

format: $(VENV)/.dev
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
