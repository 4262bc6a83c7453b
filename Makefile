# `make serve` and `make test` do all their own set-up from a bare clone.
# The folder of the environment and the model to serve can be given: make serve VENV=... MODEL=...
VENV ?= .venv
MODEL ?= smollm2
PY = $(VENV)/bin/python
READY = $(VENV)/.ready

.PHONY: setup serve test test-slow check bench bench-quick docs clean

setup: $(READY)

$(READY): setup.sh pyproject.toml constraints.txt
	VENV=$(VENV) sh setup.sh
	@touch $@

serve: $(READY)
	$(VENV)/bin/octavo serve $(MODEL)

test: $(READY)
	$(PY) -m pytest -q -m "not slow and not gpu"

test-slow: $(READY)
	$(PY) -m pytest -q -m "slow and not gpu"

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

bench: $(READY)
	$(PY) -m benchmarks.bench

bench-quick: $(READY)
	$(PY) -m benchmarks.bench --quick

docs: $(READY)
	$(PY) -m docs.generate

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache site results
