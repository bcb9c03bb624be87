# One word runs everything; `make` alone checks the tree the way CI does.
PYTHON ?= $(shell command -v python3 || command -v python)

.PHONY: all run lint test slow
all: lint test

run:
	$(PYTHON) run.py

lint:
	$(PYTHON) run.py lint

test:
	$(PYTHON) run.py test

slow:
	$(PYTHON) run.py test -m slow
