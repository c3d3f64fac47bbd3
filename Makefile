# The two commands of the README: `make demo` and `make test`. Both set up what is missing first.
PYTHON ?= python3
DEVICE ?= auto
BIN := .venv/bin

.PHONY: demo test lint bench setup clean

demo: setup
	$(BIN)/dapo demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not gpu"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# For instance: make bench NAME=chaos ARGUMENTS="--minutes 5 --json"
bench: setup
	$(BIN)/dapo bench $(NAME) $(ARGUMENTS)

setup:
	@$(PYTHON) install.py --device $(DEVICE)

clean:
	rm -rf .venv cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
