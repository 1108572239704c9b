# Everything Rota needs, set up on first use. A second call costs nothing.
#
# `make` alone prints the commands. ARGS goes on to the program that runs:
#   make run ARGS="--for 20s"      make test ARGS="-k claim -x"

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
LOCK := requirements/lock.txt

ARGS ?=
ONLY ?=
WORKERS ?= 2

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup run test check format bench explore lock clean

help: ## Print this help
	@echo "Rota: one command sets up whatever it needs, then runs."
	@echo
	@sed -n 's/^\([a-z]*\):.*## /  make \1|/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

run: $(READY) ## Run the demo on an embedded Postgres (ARGS="--for 20s" ends by itself)
run: export ROTA_DATABASE_URL = embedded
run:
	@exec $(BIN)/rota demo $(ARGS)

test: $(READY) ## Run the whole test suite (ARGS="-k claim -x" goes to pytest)
	@exec $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: $(READY) ## Check format, lint, types and the import law
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(READY) ## Format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(READY) ## Measure against the ceiling and a peer (ONLY=drain,enqueue for a part)
	@exec $(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

explore: $(READY) ## Search every state of the protocol (ARGS="--list" names the searches and variants)
	@exec $(BIN)/python -m rota.chaos.searches $(ARGS)

setup: $(READY) ## Only set up: a virtual environment from the lock
	@:

lock: $(READY) ## Resolve the dependencies anew and write the lock
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --upgrade --quiet --output-file $(LOCK)

clean: ## Remove everything that make made
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf build *.egg-info .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the directory it was made in: a copied or moved checkout sets up anew, because
# both the scripts of a virtual environment and an editable install point at absolute paths.
ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(BIN)/python
endif

$(READY): $(LOCK) pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@printf '%s\n' "$(CURDIR)" > $@

# The interpreter is the first that really runs, is recent enough and can make a virtual environment
# (a pyenv shim may exist and fail, and Debian packages venv apart). PYTHON=... asks for another.
PYTHONS := $(if $(PYTHON),"$(PYTHON)",python3 python3.14 python3.13 python3.12 python3.11 python)

$(BIN)/python:
	@for python in $(PYTHONS) ""; do \
		"$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' \
			2>/dev/null && break; \
	done; \
	if [ -z "$$python" ]; then \
		echo "Rota needs Python 3.11 or later with its venv module (on Debian: python3-venv);" \
			"name one with make PYTHON=/path/to/python3." >&2; \
		exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$python" --version) ..." && \
	"$$python" -m venv --clear $(VENV)
