# make demo         the main job: a real SGLang server on this CPU, with the probe in it, its timeline and what explains it
# make test         every test, against the installed wheel (PYTEST_ARGS='tests/agent -k fork' for some)
# make test-wrapt   the agent's tests with every generation of wrapt (`make test-wrapt-2.0` for one)
# make lanes        build the lanes that are missing (LANES='0.5.9 0.5.14' for some; `make test` runs the same ones)
# make compatibility every release of SGLang in docs/compatibility.md against the table of homes (the daily job asks the index)
# make lint         ruff, mypy, the arrows between the rooms
# make bench        what the probe costs, and how fast its events and logs are read and its reports written
# Each makes what it needs first, and does nothing twice. The lanes need CPython 3.11: `make demo PYTHON=python3.11`.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
PYTEST_ARGS ?=
# The releases whose lanes are built and run: all where it is empty.
LANES ?=
export LANES
DEMO_VERSION ?= 0.5.14

BIN := $(abspath $(VENV))/bin
OUT := $(abspath $(BUILD))
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# What the wheel holds, and what the tests read beside it.
PACKAGE := $(shell find sglang_probe sitecustomize -type f -not -name '*.pyc')
BESIDE := $(wildcard tests lanes bench compat docs .ci .github .gitignore Makefile LICENSE pyproject.toml *.md)
BESIDE_FILES := $(shell find $(BESIDE) -type f -not -name '*.pyc')

# Those of bench/README.md that need neither a GPU nor SGLang.
BENCHES := doorbell event collector logs reports

AGENT_TESTS := tests/agent tests/sitecustomize tests/lanes/test_losses_on_fakes.py
WRAPTS := 1.16 1.17 2.0 newest pure
# The oldest structlog goes with the oldest wrapt; `pure` is the newest wrapt without its C extension.
WRAPT_1.16 := wrapt==1.16.* structlog==23.1.*
WRAPT_1.17 := wrapt==1.17.* structlog
WRAPT_2.0 := wrapt==2.0.* structlog
WRAPT_newest := wrapt structlog
WRAPT_pure := wrapt structlog
PURE_pure := WRAPT_DISABLE_EXTENSIONS=1

# Not `lint-imports`: Debian gives its Python a sitecustomize, and that one would be looked at.
ARROWS := "import sys; sys.modules.pop('sitecustomize', 0); import importlinter.cli as c; c.lint_imports_command()"

.PHONY: demo test test-wrapt $(addprefix test-wrapt-,$(WRAPTS)) lanes compatibility lint bench clean
.DELETE_ON_ERROR:
.SILENT:

demo: $(VENV)/.wheel
	rm -rf $(OUT)/demo
	SGLANG_PROBE_DIR=$(OUT)/demo/runs $(BIN)/python lanes/lane.py serve $(DEMO_VERSION) --tp 2 \
	  --pythonpath $(CURDIR) --logs $(OUT)/demo/logs
	$(BIN)/sglang-probe timeline $(OUT)/demo/runs
	$(BIN)/sglang-probe explain $(OUT)/demo/runs

test: $(BUILD)/tree/.made
	cd $(OUT)/tree && SGLANG_PROBE_WHEEL=$$(ls $(OUT)/wheel/*.whl) $(BIN)/python -m pytest $(PYTEST_ARGS)

test-wrapt: $(addprefix test-wrapt-,$(WRAPTS))

$(addprefix test-wrapt-,$(WRAPTS)): test-wrapt-%: $(BUILD)/tree/.made $(BUILD)/wrapt/%/.needs
	echo "wrapt $*"
	cd $(OUT)/tree && $(PURE_$*) $(OUT)/wrapt/$*/bin/python -m pytest -q -m 'not lane' $(AGENT_TESTS)

lanes:
	$(PYTHON) lanes/lane.py build $(LANES) > /dev/null

compatibility: $(VENV)/.wheel
	$(BIN)/python compat/compat.py --listed

lint: $(VENV)/.wheel
	failed=0; \
	$(BIN)/ruff check --quiet --output-format concise . || failed=1; \
	$(BIN)/mypy || failed=1; \
	$(BIN)/python -c $(ARROWS) > $(OUT)/arrows.log 2>&1 || { cat $(OUT)/arrows.log; failed=1; }; \
	exit $$failed

bench: $(VENV)/.wheel
	for name in $(BENCHES); do echo "bench/$$name.py"; $(BIN)/python bench/$$name.py || exit 1; done

clean:
	rm -rf $(VENV) $(BUILD) dist

# What the package and its tests need, from pyproject.toml.
$(VENV)/.needs: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install '.[cli,report,dev]'
	touch $@

# Just what the agent's tests import: its own two, and the readers' two for the ones that look at a timeline.
$(BUILD)/wrapt/%/.needs: pyproject.toml
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --quiet --disable-pip-version-check install --upgrade \
	  $(WRAPT_$*) 'pytest>=8.2' pytest-randomly hypothesis jsonschema orjson rich msgspec
	touch $@

# The wheel, installed as a user has it: not editable, so that what is tested is what ships.
$(VENV)/.wheel: $(VENV)/.needs $(PACKAGE)
	rm -rf $(OUT)/wheel
	$(BIN)/python -m hatchling build -t wheel -d $(OUT)/wheel > $(VENV)/.wheel.log 2>&1 || { cat $(VENV)/.wheel.log; false; }
	$(PIP) install --no-deps --force-reinstall $(OUT)/wheel/*.whl
	touch $@

# A tree like the checkout, in which both packages are links to the installed wheel's.
$(BUILD)/tree/.made: $(VENV)/.wheel $(BESIDE_FILES)
	rm -rf $(OUT)/tree
	mkdir -p $(OUT)/tree
	cp -R $(BESIDE) $(OUT)/tree
	ln -s "$$(cd $(OUT) && $(BIN)/python -c 'import sglang_probe; print(sglang_probe.__path__[0])')" $(OUT)/tree/sglang_probe
	ln -s sglang_probe/_inject/sitecustomize $(OUT)/tree/sitecustomize
	touch $@
