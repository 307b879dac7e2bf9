# Needs git, gcc, make and a Python >= 3.10 with its headers; everything else is installed into .venv, pinned.
# On Debian, missing packages are installed by name when run as root, and named when not.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then echo $$p; break; fi; done)
ARGS ?=
FUZZ_SECONDS ?= 60

ifeq ($(PYTHON),)
$(error no Python >= 3.10 was found; on Debian: apt-get install python3 python3-dev python3-venv)
endif

.DEFAULT_GOAL := help
.PHONY: help demo examples test check bench fuzz soak sanitize matrix format wheel docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## build the package, run the worked examples, print their reports
	@$(PYTHON) tools/demo.py $(ARGS)

examples: ## real programs under the recorder: xdist, PyTorch, Dask, MPI, uvicorn, Jupyter (1.2 GB to install)
	@$(PYTHON) tools/examples.py $(ARGS)

test: ## every test on every Python found from 3.10 on (ARGS="--help" for a part of them)
	@$(PYTHON) tools/run_tests.py $(ARGS)

check: ## warnings as errors (gcc, clang), ruff, mypy --strict, formatting, house rules
	@$(PYTHON) tools/check.py $(ARGS)

bench: ## what we cost beside other tools, interleaved; tables and charts (ARGS=--quick for a first look)
	@$(PYTHON) benchmarks/run.py $(ARGS)

fuzz: ## libFuzzer against every reader, FUZZ_SECONDS=60 each; then damaged files against the command
	@$(PYTHON) tools/fuzz.py --seconds $(FUZZ_SECONDS) $(ARGS)

soak: ## a thousand kills of programs, 200 of collectors, each system call refused by each errno, each call a million times (ARGS=--help)
	@$(PYTHON) tools/soak.py $(ARGS)

sanitize: ## C tests under the sanitizers of gcc and clang (addresses, leaks, threads), Python tests under gcc's
	@$(PYTHON) tools/run_tests.py --sanitize $(ARGS)

matrix: ## every test on 3.10 to 3.15 and free-threaded 3.13; C tests with gcc, clang, musl and on aarch64 (ARGS=--help)
	@$(PYTHON) tools/matrix.py $(ARGS)

format: ## format C and Python in place
	@$(PYTHON) tools/check.py --format

wheel: ## a wheel for each Python found, built for old systems too, and an sdist, in dist/; each installed and tried
	@$(PYTHON) tools/wheels.py $(ARGS)

docs: ## README and docs/ as plain pages in build/docs, links checked
	@$(PYTHON) tools/pages.py $(ARGS)

clean: ## remove all that the targets made
	rm -rf build dist .venv
