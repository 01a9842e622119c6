# Everything a newcomer needs: python3.11 and make. The rest is installed into .venv from the lock.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check up build format lock clean

demo: $(STAMP)
	$(BIN)/python -m functions.examples.demo

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

up: $(STAMP)
	$(BIN)/despina up

build: $(STAMP)
	$(BIN)/python -m functions.examples.build

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The lock is made from pyproject.toml, for one Python and with hashes; edit that, then run this.
lock: $(STAMP)
	$(BIN)/pip install -q uv==0.13.9
	$(BIN)/uv pip compile -q pyproject.toml --all-extras --generate-hashes --no-header --no-annotate --python-version 3.11 -o requirements.lock

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf $(VENV) .build .data
