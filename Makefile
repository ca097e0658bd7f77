# Needs GNU make and a Python >= 3.10 that has venv; everything else is installed into .venv.
# Another interpreter: `make setup PYTHON=/path/to/python3.12`. Options for pytest: `make test ARGS="-k noise -x"`.

PYTHON ?= python3
WORKERS ?= auto
ARGS ?=

VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
UNFINISHED := $(VENV)/.unfinished
PIP := $(PY) -m pip --disable-pip-version-check --no-input
PYTEST := $(PY) -m pytest

# oneDNN picks AMX kernels wherever the CPU reports AMX. Under a hypervisor that masks it, the first bf16 or fp16 matmul
# dies with SIGILL. This caps the choice one level lower; CPUs without AMX never get there anyway.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_BF16

# glibc hands large freed blocks back to the kernel and then pays page faults for each new activation; keeping them
# (thresholds of 8 and 16 GiB) makes eager CPU training up to four times faster. Other C libraries ignore these names.
export MALLOC_MMAP_THRESHOLD_ ?= 8589934592
export MALLOC_TRIM_THRESHOLD_ ?= 17179869184

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup test test-slow demo bench bench-dist soak soak-full graph docs dist test-pythons check lint format clean

help: ## List these targets
	@echo "usage: make <target>"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## Create .venv and install the package with its development tools (instant when up to date)
	@echo "$(VENV) is ready"

test: $(READY) ## Run the tests and the doctests, all but the slow ones
	@$(PYTEST) -n $(WORKERS) --maxprocesses 8 --dist worksteal $(ARGS)

test-slow: $(READY) ## Run the tests marked slow or bench, one at a time
	@$(PYTEST) -m "slow or bench" $(ARGS)

demo: $(READY) ## Train AdamW, SGD and VAdamW on small digits, compare what they say, write a page
	@$(PY) -m varlearn demo $(ARGS)

bench: $(READY) ## Run the benchmarks
	@$(PY) -m benchmarks.run $(ARGS)

soak: $(READY) ## Try to break every promise of docs/reliability.md: at most 30 minutes on two cores
	@$(PY) -m soak.run $(ARGS)

soak-full: $(READY) ## The same with the full figures: many hours; repeat the command to continue after an interruption
	@$(PY) -m soak.run --full $(ARGS)

graph: $(READY) ## Draw the imports again: docs/imports.svg and docs/imports-optim.svg
	@$(PY) -m tools.import_graph

docs: $(READY) ## Build the documentation site in site/; a broken link is an error
	@$(PIP) install --quiet --constraint constraints.txt -e '.[docs]'
	@$(PY) -m zensical build --clean --strict

bench-dist: $(READY) ## Time a step of IVON and of AdamW on two processes, DDP and FSDP2
	@$(PY) -m benchmarks.dist $(ARGS)

dist: $(READY) ## Build sdist and wheel into dist/, check both, and collect the tests of the unpacked sdist
	@rm -rf dist
	@$(PY) -m build --outdir dist
	@$(PY) -m twine check --strict dist/*
	@$(PY) -m tools.check_sdist dist

test-pythons: ## Run the tests with each of python3.10 to python3.13 that is found, in .venv-3.10 and so on
	@$(PYTHON) tools/each_python.py $(PYTHONS)

check: lint test ## Everything a change must pass: style, types, tests, doctests, links in the docs

lint: $(READY) ## Check style (ruff) and types (pyright)
	@$(PY) -m ruff check || { echo "make: style errors above; 'make format' repairs those marked [*]" >&2; exit 1; }
	@$(PY) -m ruff format --check || { echo "make: the files above are not formatted; run 'make format'" >&2; exit 1; }
	@$(PY) -m pyright

format: $(READY) ## Rewrite the sources in the project's style
	@$(PY) -m ruff check --fix-only --quiet
	@$(PY) -m ruff format

clean: ## Remove caches and build products (.venv stays; delete it by hand to start afresh)
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

# The stamp is touched last, so whatever interrupts the recipe, the next run takes it up again. Only a virtual environment
# that this recipe itself left half made (UNFINISHED) is deleted; one made by other means is used as it is.
$(READY): pyproject.toml constraints.txt
	@rm -f $@
	@if [ -e $(UNFINISHED) ]; then echo "$(VENV) was left half made; making it again"; rm -rf $(VENV); fi
	@if [ ! -e $(VENV) ]; then \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
			echo "make: '$(PYTHON)' does not run or is older than Python 3.10;" \
				"name another: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3" >&2; exit 1; }; \
		mkdir $(VENV) && touch $(UNFINISHED) && $(PYTHON) -m venv $(VENV) && rm $(UNFINISHED) || { \
			echo "make: '$(PYTHON) -m venv' failed; install its venv module (Debian, Ubuntu: the package" \
				"python3-venv) or name another: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3" >&2; exit 1; }; \
	fi
	@$(PIP) --version >/dev/null && $(PY) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "make: $(VENV) has no working pip or a Python older than 3.10; run 'rm -rf $(VENV)' and make again" >&2; exit 1; }
	@echo "installing torch and the development tools into $(VENV); the first time takes minutes"
	@$(PIP) install --constraint constraints.txt torch && \
		$(PIP) install -qq --constraint constraints.txt --editable '.[dev]' || { \
			echo "make: installing failed, see above; after mending the cause (network, proxy, disk space) run make again," \
				"it continues where it stopped" >&2; exit 1; }
	@# backpack, which curvlinops needs, requires torchvision without importing it; a torchvision built for another torch
	@# breaks the import of torchmetrics and others.
	@$(PIP) uninstall --quiet --yes torchvision
	@touch $@
