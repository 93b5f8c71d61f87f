# For developers and CI. It needs Python 3.11 to 3.14 and make; `make test-deploy` also needs nginx,
# PgBouncer, Prometheus and systemd's tools, and `make test-cluster` PostgreSQL, etcd and HAProxy.
# Everything is installed into .venv; tests/browser/chromium.py finds or downloads a browser.

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help install demo check test clients test-deploy test-upgrade test-cluster deploy-servers cluster-servers deploy-packages fuzz simulate torture test-stripe stripe-test-key test-mollie \
	test-mollie-described mutants bench bench-growth bench-processes screenshot lint format lock docs docs-links coverage release clean

# Tests start many processes. With this variable, each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

# The first of these Pythons for which all locked packages exist. It is used only to make .venv.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	if $$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; \
	then echo $$python; break; fi; done)

# The port of the demo's API; its shop has the next one.
PORT ?= 8000

# Extras for `make install`.
EXTRAS ?=
LOCKED_EXTRAS := granian jwt postgresql redis stripe
ifneq ($(filter-out $(LOCKED_EXTRAS),$(EXTRAS)),)
$(error EXTRAS takes some of these, with spaces between, in quotes: $(LOCKED_EXTRAS))
endif

# `make fuzz` tries this many times as many generated inputs as `make test`.
TIMES ?= 50

# How many processes share the tests. They often wait, so it takes three to keep a core busy. With more
# than 24, the others would only wait for the longest tests.
WORKERS ?= $(shell workers=$$((3 * $$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN))); \
	echo $$((workers < 24 ? workers : 24)))

# The clients are built and tested only where npm is installed.
NPM := $(shell command -v npm 2>/dev/null)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Seed and length of `make simulate` and `make torture`.
SEED ?= 1
STEPS ?= 20000
KILLS ?= 100
BOOKINGS ?= 300

# Number of rounds, and length of each load, of `make bench` and `make bench-growth`.
ROUNDS ?= 5
SECONDS ?= 5

help: ## Show this help
	@echo "cardonfile, from its source tree. Usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s  %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  PYTHON=python3.12   the Python for .venv (3.11 to 3.14; after make clean)"
	@echo "  EXTRAS=stripe       make install: granian, jwt, postgresql, redis, stripe; several in quotes"
	@echo "  PORT=9000           make demo: the port of its API; its shop has the next one"
	@echo "  UPGRADE=1           make lock: take the newest versions"
	@echo "  TIMES=500           make fuzz: how many times the inputs of make test (now $(TIMES))"
	@echo "  WORKERS=4           how many processes share the tests (now $(WORKERS))"
	@echo "  SEED=7 STEPS=90000  make simulate: its first seed, and how many steps"
	@echo "  SEED=7 KILLS=500    make torture: its seed, and how many kills on each storage"
	@echo "  ONLY=etcd           make test-cluster: only the faults with this text in their names"
	@echo "  BOOKINGS=900        make torture: how many bookings on each storage"
	@echo "  ROUNDS=9 SECONDS=10 make bench, bench-…: how many rounds, how long each load"
	@echo "  CHROMIUM=/path      make test: the browser"

install: .venv/runtime.stamp $(EXTRAS:%=.venv/%.stamp) ## Install the service and its locked dependencies into .venv

demo: install ## Start the service with sample data and a demo shop on this machine
	@$(BIN)/cardonfile demo --port $(PORT)

check: lint ## Quick checks: lint, types, import contracts, tests of the domain and of the docs
	$(BIN)/python -m pytest -n $(WORKERS) -m "not hypothesis" \
		tests/domain tests/test_docs.py tests/test_architecture.py

test: lint ## All checks: lint, types, import contracts, the whole suite with a real browser
	$(BIN)/python -m pytest -n $(WORKERS)

test-deploy: deploy-servers .venv/dev.stamp $(if $(NPM),clients) ## Test nginx, PgBouncer, alerts, generated clients; as root also units and image (installs what is missing)
	promtool test rules tests/deploy/alerts.yml
	$(BIN)/python -m pytest -n $(WORKERS) tests/deploy/behind_nginx.py tests/deploy/behind_pgbouncer.py \
		$(if $(NPM),$(addprefix tests/deploy/,built_clients.py generated_clients.py))
	test "$$(id -u)" != 0 || $(BIN)/python -m pytest tests/deploy/as_a_service.py

test-upgrade: .venv/dev.stamp ## Upgrade 0.1.0 to this release under load, and settle a booking with 0.2.0 (their code comes from git's history)
	$(BIN)/python -m pytest tests/deploy/rolling_upgrade.py

test-cluster: cluster-servers .venv/dev.stamp build/cluster/stamp ## Kill the parts of a cluster of PostgreSQL under Patroni, and count what is lost (30 minutes)
	@$(BIN)/python -m tests.cluster.run --seed $(SEED) --only "$(ONLY)"

# On Debian these programs are not in users' PATH. RUNLEVEL keeps their packages from starting servers.
deploy-servers:
	@PATH="$$PATH:/usr/sbin"; \
	if command -v nginx >/dev/null && command -v openssl >/dev/null && command -v pgbouncer >/dev/null && \
		command -v promtool >/dev/null && command -v systemd-analyze >/dev/null && \
		command -v javac >/dev/null && test -e /usr/share/java/jackson-databind.jar && \
		test -e /usr/share/java/jakarta-annotation-api.jar && test -e /usr/share/java/jsr305.jar && \
		/usr/bin/python3 -c 'import ensurepip'; then exit; fi; \
	$(call install-packages,make test-deploy,$(DEPLOY_PACKAGES))

cluster-servers:
	@PATH="$$PATH:/usr/sbin"; \
	if command -v etcd >/dev/null && command -v haproxy >/dev/null && ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 && \
		/usr/bin/python3 -c 'import ensurepip'; then exit; fi; \
	$(call install-packages,make test-cluster,$(CLUSTER_PACKAGES))

CLUSTER_PACKAGES = etcd-server haproxy postgresql python3-venv

# In a recipe: install packages ($2) as root, or say that a target ($1) needs them.
define install-packages
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "Installing what is missing on this machine: apt-get install $2"; \
		apt-get --quiet update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
			apt-get --quiet --yes install --no-install-recommends $2; \
	else \
		echo "$1 needs these: sudo apt-get install $2" >&2; \
		exit 1; \
	fi
endef

# For `.github/workflows/ci.yml`.
deploy-packages:
	@echo $(DEPLOY_PACKAGES)

DEPLOY_PACKAGES = nginx openssl pgbouncer prometheus python3-venv systemd default-jdk-headless \
	libjackson2-databind-java libjakarta-annotation-api-java libjsr305-java

fuzz: .venv/dev.stamp ## Try TIMES times as many generated inputs as make test
	FUZZ_TIMES=$(TIMES) $(BIN)/python -m pytest -n $(WORKERS) -m "hypothesis or fuzz"

simulate: .venv/dev.stamp ## Run the whole service through random faults and crashes, from a seed
	@$(BIN)/python -m tests.simulation.run --seed $(SEED) --steps $(STEPS) $(if $(ONLY),--only $(ONLY))

torture: .venv/dev.stamp ## Kill the service under load, KILLS times on each storage, and count what is lost
	@$(BIN)/python -m tests.entrypoints.torture --rounds $(KILLS) --seed $(SEED)
	@$(BIN)/python -m tests.entrypoints.erasing --kills $(KILLS) --seed $(SEED)
	@$(BIN)/python -m tests.entrypoints.booking --bookings $(BOOKINGS) --seed $(SEED)
	@$(BIN)/python -m tests.entrypoints.reading_events

test-stripe: stripe-test-key .venv/dev.stamp ## Test the Stripe adapter in Stripe's test mode (set CARDONFILE_STRIPE_TEST_KEY)
	@$(BIN)/python -m pytest adapters/psp_suite tests/browser/stripe_in_test_mode.py \
		--psp tests.adapters.stripe.in_test_mode:StripeInTestMode \
		-k "(StripeInTestMode or stripe_in_test_mode) and not different_guest_reference_at_each_merchant_account"

# The key is checked before anything is installed. It stays in the environment, and is on no command line.
stripe-test-key:
	@if [ -z "$$CARDONFILE_STRIPE_TEST_KEY" ]; then \
		echo "Set CARDONFILE_STRIPE_TEST_KEY to a key of Stripe's test mode (sk_test_... or rk_test_...):" >&2; \
		echo "  export CARDONFILE_STRIPE_TEST_KEY=sk_test_..." >&2; \
		echo "It is in the dashboard under Developers, API keys. docs/providers/stripe.md says more." >&2; \
		exit 1; \
	fi

test-mollie: .venv/dev.stamp ## Test the Mollie adapter in Mollie's test mode (set CARDONFILE_MOLLIE_TEST_KEY)
	@test -n "$$CARDONFILE_MOLLIE_TEST_KEY" || { echo "Set CARDONFILE_MOLLIE_TEST_KEY to a key of Mollie's" \
		"test mode (test_...). docs/providers/mollie.md says more." >&2; exit 1; }
	@$(BIN)/python -m pytest adapters/psp_suite --psp tests.adapters.mollie.in_test_mode:MollieInTestMode \
		-k "MollieInTestMode and not different_guest_reference_at_each_merchant_account"

test-mollie-described: .venv/dev.stamp ## Check the fake Mollie against Mollie's OpenAPI description (set MOLLIE_OPENAPI to its specs.yaml)
	@test -f "$$MOLLIE_OPENAPI" || { echo "Set MOLLIE_OPENAPI to specs.yaml of github.com/mollie/openapi" >&2; exit 1; }
	@$(BIN)/python -m pytest -q -p tests.fake_mollie.described -k "mollie" adapters/psp_suite tests/adapters/mollie

# It starts from scratch: mutmut would keep old results, even for mutants that new tests notice.
mutants: .venv/dev.stamp ## Change the domain in 6,600 ways, one at a time, and see whether tests notice
	rm -rf mutants
	$(BIN)/mutmut run --max-children $(WORKERS)
	@$(BIN)/mutmut results --all true | $(BIN)/python -m tests.mutation_score

bench: .venv/dev.stamp build/runtime/stamp ## Compare the service with others, and write docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks.run bench --rounds $(ROUNDS) --seconds $(SECONDS)

bench-growth: .venv/dev.stamp ## Measure add-card with up to ten million sessions, for docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks.run growth --rounds $(ROUNDS) --seconds $(SECONDS)

bench-processes: .venv/dev.stamp ## Measure 1, 2 and 4 processes on one PostgreSQL, for docs/benchmarks.md
	@$(BIN)/python -m tests.benchmarks.run processes --rounds $(ROUNDS) --seconds $(SECONDS)

screenshot: .venv/dev.stamp ## Take the pictures docs/demo-light.png and -dark.png, in a browser test
	SCREENSHOTS=docs $(BIN)/python -m pytest -q tests/browser -k readme

coverage: .venv/dev.stamp ## Run all tests, and print the lines and branches that none of them reaches
	rm -rf build/coverage
	$(BIN)/coverage run -m pytest -n $(WORKERS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

docs: build/docs/stamp ## Build the documentation site into build/docs/html, and check the links between its pages
	$(SPHINX) -b html . build/docs/html
	@cp docs/demo-*.png build/docs/html/docs/
	@echo '<!doctype html><meta http-equiv="refresh" content="0; url=README.html">' >build/docs/html/index.html
	@echo "Open build/docs/html/index.html"

docs-links: build/docs/stamp ## Check the documentation's links to other sites
	$(SPHINX) -b linkcheck . build/docs/links

SPHINX = build/docs/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env --conf-dir docs --doctree-dir build/docs/doctrees

lint: .venv/dev.stamp ## Check formatting, lint, types and import contracts
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m ruff check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo

format: .venv/dev.stamp ## Format the code, and fix what lint can fix
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# It installs only uv: `dev.stamp` would need the locks that this target may have to repair.
lock: .venv/bin/python ## Lock the dependencies of pyproject.toml, with hashes
	@test -x $(BIN)/uv || $(PIP) install uv
	$(BIN)/uv pip compile $(COMPILE) --output-file requirements.txt
	for extra in $(LOCKED_EXTRAS); do \
		$(BIN)/uv pip compile $(COMPILE) --extra $$extra --constraint requirements.txt \
			--output-file requirements-$$extra.txt || exit; \
	done
	$(BIN)/uv pip compile $(COMPILE) --all-extras --constraint requirements.txt \
		--output-file requirements-dev.txt
	for group in docs release; do \
		$(BIN)/uv pip compile $(COMPILE) --group $$group --constraint requirements.txt \
			--output-file requirements-$$group.txt || exit; \
	done
	for group in clients cluster; do \
		$(BIN)/uv pip compile --group pyproject.toml:$$group $(LOCK) --output-file requirements-$$group.txt || exit; \
	done

COMPILE = pyproject.toml --group build $(LOCK)
LOCK = --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet \
	$(if $(UPGRADE),--upgrade)

# Everything but the files in clients/ is generated, by a generator whose version is locked.
clients: build/clients/stamp build/release/stamp .venv/dev.stamp ## Generate and build the clients in Python and TypeScript (needs Java and npm)
	@command -v java >/dev/null && command -v npm >/dev/null || { echo "make clients needs Java and npm" >&2; exit 1; }
	rm -rf build/clients/generated build/clients/python build/clients/typescript build/clients/dist
	mkdir -p build/clients/generated build/clients/dist
	cp -R clients/python clients/typescript build/clients
	$(BIN)/python -m tests.openapi_document >build/clients/generated/openapi.json
	$(GENERATE) -g python -o python --additional-properties packageName=cardonfile_client,packageVersion=$(VERSION)
	$(GENERATE) -g typescript-fetch -o typescript-fetch --additional-properties importFileExtension=.js
	mv build/clients/generated/python/cardonfile_client build/clients/python
	mv build/clients/generated/typescript-fetch build/clients/typescript/src
	$(RELEASE)/python -m build --quiet --no-isolation --outdir build/clients/dist build/clients/python
	cd build/clients/typescript && npm version --silent --no-git-tag-version $(subst .dev,-dev.,$(VERSION)) >/dev/null && \
		npm ci --silent --no-audit --no-fund --ignore-scripts && npx tsc && \
		npm pack --silent --pack-destination ../dist >/dev/null
	@echo "build/clients/dist has the packages; each has a README"

GENERATE = cd build/clients/generated && ../bin/openapi-generator-cli generate -i openapi.json >>log

# The wheel is built from the sdist, so both are complete. Advisories come from OSV.
release: build/release/stamp .venv/dev.stamp ## Build and check wheel and sdist, list their packages (SBOM), look for advisories
	@test -z "$$(git status --porcelain)" || \
		{ echo "Commit or remove what git status shows: otherwise the release differs from the commit that is tagged" >&2; exit 1; }
	@grep -q '^## \[$(VERSION)\]' CHANGELOG.md || \
		{ echo "CHANGELOG.md has no heading for $(VERSION), the version in pyproject.toml" >&2; exit 1; }
	@$(MAKE) --no-print-directory clients
	rm -rf dist build/advisories.json
	$(RELEASE)/python -m build --quiet --no-isolation
	cp build/clients/dist/* dist
	$(RELEASE)/twine check dist/*.whl dist/*.tar.gz
	for lock in requirements $(LOCKED_EXTRAS:%=requirements-%); do \
		PYTHONWARNINGS=ignore $(RELEASE)/cyclonedx-py requirements $$lock.txt --pyproject pyproject.toml --output-reproducible \
			--output-file dist/$$lock.cdx.json || exit; \
	done
	$(BIN)/python -m tests.bundled_components dist/*.cdx.json
	@if $(RELEASE)/pip-audit --requirement requirements-dev.txt --require-hashes --disable-pip \
		--vulnerability-service osv --format json --output build/advisories.json \
		2>build/pip-audit.log; \
	then echo "No advisory concerns a locked package."; \
	elif [ -s build/advisories.json ]; then cat build/advisories.json; exit 1; \
	else tail -n 1 build/pip-audit.log; echo "NOT CHECKED for advisories: osv.dev did not answer." >&2; fi
	@echo "dist has cardonfile $(VERSION). Once .ci/run has passed, tag this commit:"
	@echo "  git tag --annotate v$(VERSION) --message 'cardonfile $(VERSION)' $$(git rev-parse --short HEAD)"

RELEASE := build/release/bin
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

clean: ## Remove everything installed or cached here; databases stay
	rm -rf .venv .browser build dist cardonfile.egg-info .hypothesis .import_linter_cache .mypy_cache \
		.pytest_cache .ruff_cache .schemathesis mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp makes a second call instant. It is out of date once its lock changes. The second `--quiet`
# hides a warning of setuptools about editable installs.
.venv/runtime.stamp: requirements.txt pyproject.toml .venv/bin/python
	@echo "Installing cardonfile and its locked dependencies into .venv (a minute or two)"
	@$(PIP) install --require-hashes --requirement requirements.txt
	@$(PIP) --quiet install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/%.stamp: requirements-%.txt .venv/runtime.stamp
	@echo "Installing the locked extra: $*"
	@$(PIP) install --require-hashes --requirement $<
	@touch $@

# Only what the service needs, for `make bench`.
build/runtime/stamp: requirements.txt requirements-granian.txt pyproject.toml .venv/bin/python
	@$(BIN)/python -m venv --clear build/runtime
	@build/runtime/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes \
		--requirement requirements-granian.txt
	@build/runtime/bin/python -m pip --disable-pip-version-check --quiet --quiet install --no-deps \
		--no-build-isolation --editable .
	@touch $@

VENV_PYTHON = $(BIN)/python
# If root runs it, the cluster runs as nobody, who may not reach other Pythons.
build/cluster/stamp: VENV_PYTHON = $(if $(filter 0,$(shell id -u)),/usr/bin/python3,$(BIN)/python)

build/release/stamp build/clients/stamp build/cluster/stamp build/docs/stamp: build/%/stamp: requirements-%.txt .venv/bin/python
	@$(VENV_PYTHON) -m venv --clear build/$*
	@build/$*/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --requirement $<
	@touch $@

# Debian and Ubuntu ship Python without `ensurepip`; say so before venv fails with a long error.
.venv/bin/python:
	@python="$(PYTHON)"; \
	if ! "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then \
		echo "cardonfile needs Python 3.11 to 3.14$${python:+, and $$python is not}." >&2; \
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
