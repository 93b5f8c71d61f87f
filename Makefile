# Everything a newcomer and a CI machine run. It needs Python 3.11 or newer and make, nothing else.
# What it installs goes into .venv in this folder; the browser that `make test` may have to fetch is
# explained in tests/browser/chromium.py. `make test-deploy` needs nginx as well.

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help install demo check test test-deploy nginx fuzz simulate torture test-stripe stripe-test-key mutants \
	bench bench-growth screenshot lint format lock clean

# The first of these that is new enough. It is looked for only when .venv has to be made.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then echo $$python; break; fi; done)

# Where the demo's API listens; its shop has the next port.
PORT ?= 8000

# What `make install` adds where more than the rest is needed: granian, postgresql, redis, stripe.
EXTRAS ?=

# How much longer `make fuzz` looks for inputs that break something.
TIMES ?= 50

# How many processes share the tests: more than two starve each other's browsers on a small machine.
WORKERS ?= 2

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Where `make simulate` and `make torture` begin, and how far they go.
SEED ?= 1
STEPS ?= 20000
KILLS ?= 100

# How many rounds `make bench` and `make bench-growth` have, and how long each load in them is.
ROUNDS ?= 5
SECONDS ?= 5

help: ## Show this help
	@echo "cardonfile, from its source tree. Usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s  %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  PYTHON=python3.12   the Python that .venv is made with (3.11 or newer; after make clean)"
	@echo "  EXTRAS=stripe       with make install: granian, postgresql, redis, stripe; several in quotes"
	@echo "  PORT=9000           where the demo listens: its API there, its shop on the next port"
	@echo "  UPGRADE=1           with make lock: take the newest versions"
	@echo "  TIMES=500           with make fuzz: for how much longer (now $(TIMES))"
	@echo "  WORKERS=4           how many processes share the tests (now $(WORKERS))"
	@echo "  SEED=7 STEPS=90000  with make simulate: its first seed, and how many steps it takes"
	@echo "  SEED=7 KILLS=500    with make torture: its seed, and how many kills on each storage"
	@echo "  ROUNDS=9 SECONDS=10 with make bench, bench-growth: how many rounds, how long each load"
	@echo "  CHROMIUM=/path      the browser for make test, if none is to be looked for"

install: .venv/runtime.stamp $(EXTRAS:%=.venv/%.stamp) ## Put the service and its locked dependencies into .venv

demo: install ## Start the service with sample data and a demo shop on this machine
	@$(BIN)/cardonfile demo --port $(PORT)

check: lint ## The quick part: formatting, lint, types, import contracts, tests without a browser
	$(BIN)/python -m pytest -n $(WORKERS) -m "not browser and not slow"

test: lint ## Everything: the same checks, and the whole suite with a real browser
	$(BIN)/python -m pytest -n $(WORKERS)

test-deploy: nginx .venv/dev.stamp ## The service behind nginx, on each server (as root it installs what is missing)
	$(BIN)/python -m pytest -n $(WORKERS) tests/deploy/behind_nginx.py

# Debian keeps nginx where only root looks. RUNLEVEL keeps the package from starting a server of its own.
nginx:
	@PATH="$$PATH:/usr/sbin"; \
	if command -v nginx >/dev/null && command -v openssl >/dev/null; then exit; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing what is missing on this machine: apt-get install nginx openssl"; \
		apt-get --quiet update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
			apt-get --quiet --yes install --no-install-recommends nginx openssl; \
	else \
		echo "make test-deploy needs nginx and openssl: sudo apt-get install nginx openssl" >&2; \
		exit 1; \
	fi

fuzz: .venv/dev.stamp ## Try TIMES as many made-up inputs as make test does
	FUZZ_TIMES=$(TIMES) $(BIN)/python -m pytest -n $(WORKERS) -m "hypothesis or fuzz"

simulate: .venv/dev.stamp ## Put the whole service through chance, faults and crashes, out of one seed
	@$(BIN)/python -m tests.simulation.run --seed $(SEED) --steps $(STEPS) $(if $(ONLY),--only $(ONLY))

torture: .venv/dev.stamp ## Kill the service under load, KILLS times on each storage, and count what is lost
	@$(BIN)/python -m tests.entrypoints.torture --rounds $(KILLS) --seed $(SEED)

test-stripe: stripe-test-key .venv/dev.stamp ## Ask Stripe itself, in test mode (with CARDONFILE_STRIPE_TEST_KEY)
	@$(BIN)/python -m tests.adapters.stripe.ask_stripe; asked=$$?; \
	$(BIN)/python -m pytest adapters/psp/contract tests/browser/stripe_in_test_mode.py \
		--psp tests.adapters.stripe.in_test_mode:StripeInTestMode \
		-k "(StripeInTestMode or stripe_in_test_mode) and not somebody_else_at_another_merchant_account" \
		&& exit $$asked

# Checked before anything is installed. The key stays in the environment, out of every command line.
stripe-test-key:
	@if [ -z "$$CARDONFILE_STRIPE_TEST_KEY" ]; then \
		echo "Set CARDONFILE_STRIPE_TEST_KEY to a key of Stripe's test mode (sk_test_... or rk_test_...):" >&2; \
		echo "  export CARDONFILE_STRIPE_TEST_KEY=sk_test_..." >&2; \
		echo "It is in the dashboard under Developers, API keys. docs/providers/stripe.md says more." >&2; \
		exit 1; \
	fi

# From nothing each time: mutmut keeps its verdicts, also on mutants that a new test would notice.
mutants: .venv/dev.stamp ## Break the domain in each of 1,400 ways, and see that the tests notice
	rm -rf mutants
	$(BIN)/mutmut run --max-children $(WORKERS)
	@$(BIN)/mutmut results --all true | $(BIN)/python -m tests.mutation_score

bench: .venv/dev.stamp build/runtime/stamp ## Measure the service beside others, and write docs/benchmarks.md anew
	@$(BIN)/python -m tests.benchmarks.run bench --rounds $(ROUNDS) --seconds $(SECONDS)

bench-growth: .venv/dev.stamp ## Measure add-card with up to ten million stored sessions, for the same page
	@$(BIN)/python -m tests.benchmarks.run growth --rounds $(ROUNDS) --seconds $(SECONDS)

screenshot: .venv/dev.stamp ## Take the picture of the hosted page in docs/ anew, as a browser test
	SCREENSHOT=docs/hosted-page.png $(BIN)/python -m pytest -q tests/browser -k readme

lint: .venv/dev.stamp ## Formatting, lint, types and import contracts alone
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo

format: .venv/dev.stamp ## Format the code and repair what lint can repair
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# A missing or broken lock must not keep it from being made anew, hence uv alone and not `dev.stamp`.
lock: .venv/bin/python ## Lock the dependencies of pyproject.toml, with hashes
	@test -x $(BIN)/uv || $(PIP) install uv
	$(BIN)/uv pip compile $(COMPILE) --output-file requirements.txt
	for extra in $(LOCKED_EXTRAS); do \
		$(BIN)/uv pip compile $(COMPILE) --extra $$extra --constraint requirements.txt \
			--output-file requirements-$$extra.txt || exit; \
	done
	$(BIN)/uv pip compile $(COMPILE) --all-extras --constraint requirements.txt \
		--output-file requirements-dev.txt

LOCKED_EXTRAS = granian postgresql redis stripe

COMPILE = pyproject.toml --group build --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet \
	$(if $(UPGRADE),--upgrade)

clean: ## Remove what was installed and cached here; databases stay
	rm -rf .venv .browser build cardonfile.egg-info .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache .schemathesis mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second call instant, and are out of date as soon as a lock changes. The second
# pip is the more silent one: setuptools warns about every editable install.
.venv/runtime.stamp: requirements.txt pyproject.toml .venv/bin/python
	@echo "Installing cardonfile and its locked dependencies into .venv"
	@$(PIP) install --require-hashes --requirement requirements.txt
	@$(PIP) --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/%.stamp: requirements-%.txt .venv/runtime.stamp
	@echo "Installing the locked extra: $*"
	@$(PIP) install --require-hashes --requirement $<
	@touch $@

# What the service needs and nothing else, for `make bench`.
build/runtime/stamp: requirements.txt requirements-granian.txt pyproject.toml .venv/bin/python
	@$(BIN)/python -m venv --clear build/runtime
	@build/runtime/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes \
		--requirement requirements-granian.txt
	@build/runtime/bin/python -m pip --disable-pip-version-check --quiet --quiet install --no-deps \
		--no-build-isolation --editable .
	@touch $@

# Debian and Ubuntu ship Python without `ensurepip`, and the error that follows is a long one.
.venv/bin/python:
	@python="$(PYTHON)"; \
	if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
		echo "cardonfile needs Python 3.11 or newer$${python:+, and $$python is not}." >&2; \
		echo "Debian 12, Ubuntu 24.04 or newer: apt-get install python3 python3-venv" >&2; \
		echo "macOS: brew install python@3.11 · others: https://www.python.org/downloads/" >&2; \
		echo "If it is there under another name: make PYTHON=/path/to/python" >&2; \
		exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
		echo "$$python cannot make a virtual environment: its modules venv and ensurepip are missing." >&2; \
		echo "Debian or Ubuntu: apt-get install $$("$$python" -c \
			'import sys; print("python{}.{}-venv".format(*sys.version_info))')" >&2; \
		exit 1; \
	fi; \
	echo "Making .venv with $$("$$python" --version)"; \
	"$$python" -m venv --clear .venv
