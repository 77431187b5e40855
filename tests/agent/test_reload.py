"""Modules that are reloaded, imported again, imported early, or import each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.agent.conftest import Run, events, reports, write_module

CONFIGURATOR = "sglang.srt.model_executor.pool_configurator"
FUNCTION = "create_memory_pool_configurator"
MANAGER = "sglang.srt.managers.detokenizer_manager"
POOLS = "sglang.srt.mem_cache.memory_pool"
HOOKED = "lambda function: type(function).__name__"


@pytest.fixture
def configurator(tmp_path: Path) -> None:
    """A target module whose target is a function of the module, which others may import by name."""
    write_module(tmp_path, CONFIGURATOR, f"def {FUNCTION}(runner=None):\n    return 7\n")


@pytest.fixture
def pool(tmp_path: Path) -> None:
    """A target module whose target is a class, each new instance of which writes two events."""
    write_module(tmp_path, POOLS, "class ReqToTokenPool:\n    def __init__(self):\n        self.built = True\n")


def begun(tmp_path: Path) -> int:
    return len([event for event in events(tmp_path) if event["kind"] == "begin"])


def test_a_reloaded_module_is_hooked_again_each_time(run: Run, tmp_path: Path) -> None:
    code = (
        f"import importlib, {MANAGER} as module\n"
        "for _ in range(3):\n    importlib.reload(module)\n    module.DetokenizerManager()\n"
        "print(type(vars(module.DetokenizerManager)['__init__']).__name__, type(module.__spec__.loader).__name__)"
    )
    done = run(code)
    assert (done.stdout, done.stderr) == ("Hook SourceFileLoader\n", "")
    assert reports(tmp_path, "DetokenizerManager.__init__") == [("applied", None)] * 4


RELOADED = f"""
import importlib, {POOLS} as module
old = module.ReqToTokenPool
held = old()
importlib.reload(module)
new = module.ReqToTokenPool
assert old is not new and isinstance(held, old)
old(); new()
import sglang_probe.agent.core as core
print(core.agent()._hooks.displaced())
from sglang_probe.agent.finder import unhook
unhook()
print(type(vars(new)["__init__"]).__name__, old().built)
"""


def test_classes_from_before_a_reload_keep_working_and_are_not_called_displaced(
    run: Run, tmp_path: Path, pool: None
) -> None:
    done = run(RELOADED)
    assert (done.stdout, done.stderr) == ("[]\nfunction True\n", "")
    assert begun(tmp_path) == len(["held", "old", "new"])  # each is told once; after unhook none


def test_a_module_that_is_imported_a_second_time_is_hooked_a_second_time(
    run: Run, tmp_path: Path, pool: None
) -> None:
    code = f"""
import importlib, sys
first = importlib.import_module({POOLS!r})
del sys.modules[{POOLS!r}]
second = importlib.import_module({POOLS!r})
assert first is not second
first.ReqToTokenPool(), second.ReqToTokenPool()
import sglang_probe.agent.core as core
print(core.agent()._hooks.displaced())
"""
    done = run(code)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert begun(tmp_path) == len(["first", "second"])


def test_a_from_import_after_the_module_has_loaded_takes_the_hook(
    run: Run, tmp_path: Path, configurator: None
) -> None:
    write_module(tmp_path, "sglang.srt.user", f"from {CONFIGURATOR} import {FUNCTION}\n")
    done = run(f"import sglang.srt.user as user\nprint(({HOOKED})(user.{FUNCTION}))")
    assert done.stdout == "Hook\n"
    assert reports(tmp_path, FUNCTION) == [("applied", None)]


def test_a_function_that_a_module_of_a_circle_took_too_early_is_reported(run: Run, tmp_path: Path) -> None:
    text = f"def {FUNCTION}(runner=None):\n    return 7\n\nimport sglang.srt.circle\n"
    write_module(tmp_path, CONFIGURATOR, text)
    write_module(tmp_path, "sglang.srt.circle", f"from {CONFIGURATOR} import {FUNCTION}\n")
    done = run(
        f"import {CONFIGURATOR} as module, sglang.srt.circle as circle\n"
        f"print(({HOOKED})(module.{FUNCTION}), ({HOOKED})(circle.{FUNCTION}), circle.{FUNCTION}())"
    )
    assert (done.stdout, done.stderr) == ("Hook function 7\n", "")
    assert reports(tmp_path, FUNCTION) == [("applied", "not hooked where it was imported before: sglang.srt.circle")]
    (report,) = [e for e in events(tmp_path) if e["attributes"].get("target") == f"{CONFIGURATOR}:{FUNCTION}"]
    assert report["level"] == "warning"
    assert [item["reason"] for item in report["degraded"]] == ["taken_early"]


def test_a_circle_in_which_the_target_class_is_not_there_yet_is_hooked_when_it_is(run: Run, tmp_path: Path) -> None:
    manager = write_module(tmp_path, MANAGER, "")
    manager.write_text(
        "import sglang.srt.circle\n\nclass DetokenizerManager:\n    def __init__(self):\n        self.built = True\n"
    )
    circle = f"import {MANAGER} as half\nseen = hasattr(half, 'DetokenizerManager')\n"
    write_module(tmp_path, "sglang.srt.circle", circle)
    done = run(f"import {MANAGER} as module, sglang.srt.circle as c; print(c.seen, module.DetokenizerManager().built)")
    assert (done.stdout, done.stderr) == ("False True\n", "")
    assert reports(tmp_path, "DetokenizerManager.__init__") == [("applied", None)]


DISARMED = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'sglang_probe' not in type(f).__module__]\n"
ARM = "from sglang_probe.agent.finder import arm\narm()\n"


def test_a_function_imported_before_we_armed_is_hooked_in_its_module_and_reported_elsewhere(
    run: Run, tmp_path: Path, configurator: None
) -> None:
    write_module(tmp_path, "sglang.srt.early", f"from {CONFIGURATOR} import {FUNCTION}\n")
    code = (
        f"{DISARMED}from sglang.srt.early import {FUNCTION}\nimport {CONFIGURATOR} as module\n{ARM}"
        f"print(({HOOKED})(module.{FUNCTION}), ({HOOKED})({FUNCTION}), {FUNCTION}())"
    )
    done = run(code)
    assert (done.stdout, done.stderr) == ("Hook function 7\n", "")
    reason = "not hooked where it was imported before: __main__, sglang.srt.early"
    assert reports(tmp_path, FUNCTION) == [("applied", reason)]


def test_a_class_imported_before_we_armed_is_hooked_for_everybody(run: Run, tmp_path: Path, pool: None) -> None:
    done = run(f"{DISARMED}from {POOLS} import ReqToTokenPool\n{ARM}print(ReqToTokenPool().built)")
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert reports(tmp_path, "ReqToTokenPool.__init__") == [("applied", None)]
    assert begun(tmp_path) == 1


def test_a_name_that_the_module_itself_imported_is_hooked_there_and_nowhere_else(probe: Any, target: Any) -> None:
    # As `get_available_gpu_memory`: bound over in the module that asks for it, on purpose not where it is defined.
    def elsewhere() -> int:
        return 7

    probe.hook([target("elsewhere")], elsewhere=elsewhere)
    (report,) = [e["attributes"] for e in probe.events() if e["event"] == "sglang.probe.target"]
    assert (report["state"], report["reason"]) == ("applied", None)
