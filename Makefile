# One word runs everything; `make` alone checks the tree the way CI does.
PYTHON ?= $(shell command -v python3 || command -v python)

.PHONY: all run lint test test-all
all: lint test-all

run:
	$(PYTHON) run.py

lint:
	$(PYTHON) run.py lint

test:
	$(PYTHON) run.py test

test-all:
	$(PYTHON) run.py test --all
