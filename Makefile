PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
# The environment is made anew where another interpreter is named than the one that made it.
MADE_BY := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.base_prefix)' | tr ' /' '--')
# Pages and docstrings that follow the rules of tools/prose/rules.py.
PROSE   = README.md CONTRIBUTING.md SECURITY.md docs/comparison.md docs/conformance.md docs/index.md docs/learning.md docs/library.md docs/profiles.md docs/security.md docs/tour.md \
    docs/tutorial.md docs/how-to/cdn.md docs/how-to/in-front.md docs/how-to/mediawiki.md docs/how-to/mounting.md \
    docs/how-to/observing.md docs/how-to/page.md docs/how-to/purging.md docs/how-to/websockets.md
STAMP   = $(VENV)/.made-by-$(or $(MADE_BY),none)

.PHONY: help demo test check docs reference comparison differential bench bench-short soak fuzz conformance screenshots format clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "univocal needs Python 3.11 or newer; name one: make PYTHON=python3.12")'
	test -e $@ || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: $(STAMP)  ## the proxy on 127.0.0.1:8080 before three small origins, its page on 127.0.0.1:8081; Ctrl-C ends it
	$(BIN)/univocal demo --visitors $(ARGS)

test: $(STAMP)  ## every test, several at once; those that need a missing program say which
	$(BIN)/pytest --numprocesses auto --dist worksteal $(ARGS)

check: $(STAMP)  ## formatting, lint, types, prose
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tools.prose.check $(PROSE)

docs: $(STAMP)  ## the documentation as a site, without a warning: dist/site/index.html
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

reference: $(STAMP)  ## the tables of docs/reference.md that the code knows better, anew
	PYTHONPATH=app:middleware $(BIN)/python tools/reference/write.py $(ARGS)

comparison: $(STAMP)  ## which spellings nginx, Varnish and hishel take for one: docs/comparison.md; needs them
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	PYTHONPATH=.:app:middleware $(BIN)/python -m tools.comparison.run $(ARGS)

differential: $(STAMP)  ## random sequences beside Varnish and nginx, judged by RFC 9111: SEQUENCES=3000, SEED=0; needs them
	PYTHONPATH=.:app:middleware $(BIN)/python -m tools.differential.run --sequences $(or $(SEQUENCES),3000) --seed $(or $(SEED),0) $(ARGS)

bench: $(STAMP)  ## univocal beside other caches, in ten minutes: docs/benchmarks.md; needs wrk and nginx
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	PYTHONPATH=.:app:middleware $(BIN)/python -m benchmarks $(ARGS)

bench-short:  ## the same in about a minute, every measurement once; writes nothing
	$(MAKE) bench ARGS='--short $(ARGS)'

soak: $(STAMP)  ## mixed traffic for SECONDS=600: is every answer right, does nothing grow?
	PYTHONPATH=.:app:middleware $(BIN)/python -m benchmarks.soak --seconds $(or $(SECONDS),600)

fuzz: $(STAMP)  ## the parser beside h11, URLs and whole exchanges against their laws; SECONDS=60 each, SEED=0
	for each in fuzz/*.py; do PYTHONPATH=.:app:middleware $(BIN)/python $$each --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0) || exit 1; done

conformance: $(STAMP)  ## the public HTTP cache suite; CACHE_TESTS_GIT names where it is cloned from
	$(BIN)/python tools/conformance/run.py $(ARGS)

screenshots: $(STAMP)  ## the pictures of the page in docs/pictures, anew, in two minutes; needs chromium
	$(BIN)/python tools/screenshots/take.py $(ARGS)

format: $(STAMP)  ## rewrite the sources as `make check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## forget the environment and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
