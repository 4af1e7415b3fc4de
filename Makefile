PYTHON ?= python3
# What running needs, and what tests need. Each is made anew if another interpreter made it than the one that is named.
VENV       ?= .venv
TEST_VENV  ?= .venv-test
BIN         = $(TEST_VENV)/bin
MADE_BY := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.base_prefix)' | tr ' /' '--')
# Pages and docstrings that follow the rules of tools/prose/rules.py.
PROSE       = README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs middleware app
STAMP       = .made-by-$(or $(MADE_BY),none)
RUNS        = $(VENV)/$(STAMP)
TESTS       = $(TEST_VENV)/$(STAMP)

.PHONY: help demo test test-lowest wheel test-compiled check lint test-tools docs reference comparison differential bench-tools bench bench-short soak fuzz laws conformance screenshots format clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 14

# What running needs is there in half the time without a second pip, if the interpreter has one that can install elsewhere,
# and if of all modules only those are compiled that the proxy imports.
OWN_PIP = $(shell $(PYTHON) -c 'import pip; print(int(pip.__version__.split(".")[0]) >= 23 or "")' 2>/dev/null)

$(RUNS): EXTRA = proxy,learn
$(RUNS): PIP = $(if $(OWN_PIP),$(PYTHON) -m pip --python $(@D)/bin/python)
$(RUNS): OPTIONS = --no-compile
$(RUNS): FIRST_IMPORT = env -u PYTHONDONTWRITEBYTECODE $(@D)/bin/python -c 'import univocal_app.commands.serve'
$(TESTS): EXTRA = dev
# Each package's name is printed as it comes. An environment that you have made yourself is kept.
OWN = test -e $(@D)/bin/python && ! ls $(@D)/.made-by-* >/dev/null 2>&1
$(RUNS) $(TESTS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "univocal needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	@if $(OWN); then echo "$(@D) is there: installing univocal[$(EXTRA)] into it"; \
	  else echo "$(@D): an environment of its own, for univocal[$(EXTRA)]"; fi
	@test -e $@ || { $(OWN); } || $(PYTHON) -m venv --clear $(if $(PIP),--without-pip) $(@D)
	@rm -f $@
	@{ $(or $(PIP),$(@D)/bin/python -m pip) install --disable-pip-version-check $(OPTIONS) --editable '.[$(EXTRA)]' && touch $@; } | sed -un 's/^Collecting \([^ <>=!~;[(]*\).*/    \1/p'
	@test -e $@
	@$(FIRST_IMPORT)

demo: $(RUNS)  ## the proxy on 127.0.0.1:8080 before four small origins, its page on 127.0.0.1:8081; Ctrl-C ends it
	$(VENV)/bin/univocal demo --visitors $(ARGS)

test: $(TESTS)  ## every test of library and program, several at once; those that need a missing program say which
	$(BIN)/pytest --ignore=tests/tools --numprocesses auto --dist worksteal $(ARGS)

wheel: $(TESTS)  ## the source distribution and a compiled wheel for this Python: dist/; needs a C compiler
	rm -rf dist/*.whl dist/*.tar.gz dist/built dist/compiled
	HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/python -m build --outdir dist/built
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist dist/built/*.whl
	mv dist/built/*.tar.gz dist && rm -r dist/built
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

COMPILED = .venv-compiled
OF_TOOLS = $(patsubst tests/%,%,$(filter-out tests/tools/test_fuzz_%,$(wildcard tests/tools/test_*.py)))
ABOUT_SOURCES = project $(OF_TOOLS) e2e/test_documented_commands.py e2e/test_library_page.py e2e/test_process.py
# Tests give programs the source roots, which would go before the wheel: here they are not there. Those about sources are left out.
test-compiled: wheel  ## the tests with the compiled wheel installed, and each fuzzer for 5 s; their environment is .venv-compiled
	$(PYTHON) -m venv --clear $(COMPILED)
	$(COMPILED)/bin/python -m pip install --quiet "$$(ls dist/*.whl)[dev]"
	mkdir $(COMPILED)/tree
	git ls-files -z ':!app' ':!middleware' | xargs -0 cp --parents --target-directory $(COMPILED)/tree
	cd $(COMPILED)/tree && PATH="$(CURDIR)/$(COMPILED)/bin:$$PATH" ../bin/pytest --override-ini pythonpath= \
	    --numprocesses auto --dist worksteal $(addprefix --ignore=tests/,$(ABOUT_SOURCES)) $(ARGS)
	cd $(COMPILED)/tree && for each in fuzz/*.py; do PYTHONPATH=. ../bin/python $$each --seconds 5 || exit 1; done

LOWEST = .venv-lowest
OF_LOWEST = $(addprefix tests/,uri tools/test_fuzz_uri.py cache asgi e2e/test_serve.py integration/app/test_app_admin.py integration/app/test_app_views.py)
LOWEST_PYTHON ?= $(PYTHON)
# Tests of what a framework does itself are of its newest version.
test-lowest:  ## URLs, the cache, the middleware, `serve` and its admin listener with the lowest versions of pyproject.toml
	$(LOWEST_PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST_PYTHON) tools/lowest/write.py $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
	    --constraint $(LOWEST)/constraints.txt --requirement $(LOWEST)/requirements.txt
	$(LOWEST)/bin/pytest --numprocesses auto --dist worksteal --ignore-glob='tests/asgi/test_framework*' $(OF_LOWEST) $(ARGS)

check: lint test-tools  ## formatting, lint, types, prose, and the tests of tools, benchmarks, fuzzers and distributions

lint: $(TESTS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.prose.check $(PROSE)

test-tools: $(TESTS)
	$(BIN)/pytest -q --numprocesses 2 --dist worksteal tests/tools

docs: $(TESTS)  ## the documentation as a site, without a warning: dist/site/index.html
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

reference: $(TESTS)  ## the tables of docs/reference.md that the code knows better, anew
	PYTHONPATH=app:middleware $(BIN)/python tools/reference/write.py $(ARGS)

comparison: bench-tools  ## which spellings nginx, Varnish and hishel take for one: docs/comparison.md; needs them
	PYTHONPATH=.:app:middleware $(BIN)/python -m tools.comparison.run $(ARGS)

differential: $(TESTS)  ## random sequences beside Varnish and nginx, judged by RFC 9111: SEQUENCES=3000, SEED=0; needs them
	PYTHONPATH=.:app:middleware $(BIN)/python -m tools.differential.run --sequences $(or $(SEQUENCES),3000) --seed $(or $(SEED),0) $(ARGS)

bench-tools: $(TESTS)  # what the benchmarks and the comparison have beside
	$(BIN)/python -m pip install --quiet --editable '.[bench]'

bench: bench-tools  ## univocal, pure and compiled, beside other caches, in 15 minutes: docs/benchmarks.md; needs wrk, nginx, gcc
	$(MAKE) wheel dist/compiled
	PYTHONPATH=.:app:middleware $(BIN)/python -m benchmarks $(ARGS)

dist/compiled:  # the compiled wheel that is in dist, unpacked: what the benchmarks measure beside the sources
	$(BIN)/python -m pip install --quiet --no-deps --target $@ dist/*.whl

bench-short: bench-tools  ## the same in about two minutes, every measurement once, with the compiled wheel of dist/compiled if it is there
	PYTHONPATH=.:app:middleware $(BIN)/python -m benchmarks --short $(ARGS)
	PYTHONPATH=.:app:middleware $(BIN)/python -m benchmarks.stores --only directory --only redis --keys 2000 --seconds 1

soak: $(TESTS)  ## mixed traffic for SECONDS=600: is every answer right, does nothing grow?
	PYTHONPATH=.:app:middleware $(BIN)/python -m benchmarks.soak --seconds $(or $(SECONDS),600)

fuzz: $(TESTS)  ## the parser beside h11, URLs and whole exchanges against their laws; SECONDS=60 each, SEED=0
	for each in fuzz/*.py; do PYTHONPATH=.:app:middleware $(BIN)/python $$each --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0) || exit 1; done

# Their conftest draws the targets.
DRAWING = tests/integration/servers/test_*.py tests/integration/exporters/test_*.py
laws: $(TESTS)  ## the properties that `make test` tries with few examples, with all
	LONG=1 $(BIN)/pytest -q --numprocesses auto --dist worksteal $$({ ls $(DRAWING); grep -rlE 'hypothesis|LONG|examples import' tests --include='test_*.py'; } | sort -u)

conformance: $(TESTS)  ## the public HTTP cache suite; CACHE_TESTS_GIT names where it is cloned from
	$(BIN)/python tools/conformance/run.py $(ARGS)

screenshots: $(TESTS)  ## the pictures of the page in docs/pictures, anew, in two minutes; needs chromium
	$(BIN)/python tools/screenshots/take.py $(ARGS)

format: $(TESTS)  ## rewrite the sources as `make check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## forget the environments and every cache
	rm -rf $(VENV) $(TEST_VENV) $(COMPILED) $(LOWEST) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
