# One word each. Everything is installed into .venv; nothing else on the machine is touched, except that
# `make test` as root on Debian or Ubuntu installs the packages that are missing (python3-venv, chromium).
#
#   make serve                      run the demo application and print its URL
#   make serve ARGS="--port 9000"   the same with flags (any of `servery --help`)
#   make test                       the whole test suite, with branch coverage
#   make test ARGS="-k limits"      a part of it (coverage is then not asked for)
#   make lint                       ruff check, ruff format --check, mypy --strict
#   make format                     ruff format and the fixes that ruff can make
#   make judges                     the test suites of other servers and of a client, against this one
#   make judges ARGS="httpx"        one of them
#   make soak                       a long run that watches memory and open descriptors
#   make dist                       sdist and pure wheel into dist/
#   make clean                      remove what the other words made
#
# `make PYTHON=/path/to/python3.13 WORD` chooses the interpreter; by default the first of these that runs.

CANDIDATES := python3.11 python3.12 python3.13 python3.14 python3.15 python3
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)

BIN := .venv/bin
ARGS ?=

# The code that a peer's bytes meet first: every line and every branch of it is tested.
COMPLETE := servery/http1/*,servery/errors.py,servery/events.py,servery/limits.py,servery/engine.py,servery/grammar.py

export PIP_ROOT_USER_ACTION := ignore
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: serve test lint format judges soak dist clean chromium

serve: .venv/.checkout
	$(BIN)/python -m servery servery.demo:app $(ARGS)

test: .venv/.test chromium
ifeq ($(strip $(ARGS)),)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report --skip-covered
	@echo "These files must be complete:"
	$(BIN)/coverage report --show-missing --fail-under=100 --include='$(COMPLETE)'
else
	$(BIN)/python -m pytest $(ARGS)
endif

lint: .venv/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

judges: .venv/.checkout
	$(BIN)/python tests/judges/run.py $(ARGS)

soak: .venv/.test
	$(BIN)/python tests/soak/run.py $(ARGS)

dist: .venv/.checkout
	$(BIN)/python -m pip install --quiet 'build>=1.2'
	rm -rf build dist
	$(BIN)/python -m build

clean:
	rm -rf .venv build dist htmlcov .coverage .coverage.* *.egg-info
	rm -rf .cache/judges .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without a browser the rest of the suite still runs; the browser's tests then say what they miss.
chromium:
	@command -v chromium >/dev/null || .ci/apt chromium || true

# A stamp is written last, so that an interrupted install is done again.
.venv/.made:
	@test -n "$(PYTHON)" || { echo "servery needs Python 3.11 or later; none of these runs: $(CANDIDATES)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || .ci/apt python3-venv
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

# setuptools warns about every editable install, in a box that would hide the URL of `make serve`.
.venv/.checkout: .venv/.made pyproject.toml setup.py
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/.test: .venv/.checkout pyproject.toml
	$(BIN)/python -m pip install --quiet --group test
	@touch $@

.venv/.lint: .venv/.checkout pyproject.toml
	$(BIN)/python -m pip install --quiet --group lint
	@touch $@
