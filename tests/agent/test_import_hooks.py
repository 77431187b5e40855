"""Other import hooks beside our finder: before it, behind it, instead of it; and Pythons started differently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.conftest import Run, events, reports, write_module

MANAGER = "sglang.srt.managers.detokenizer_manager"
POOLS = "sglang.srt.mem_cache.memory_pool"
INIT = "DetokenizerManager.__init__"
SHOW = f"import {MANAGER} as module\nprint(type(vars(module.DetokenizerManager)['__init__']).__name__)\n"
OURS = "[type(f).__name__ for f in sys.meta_path].index('Finder')"

FINDER = """
import sys
from importlib.machinery import PathFinder

class Theirs:
    executed = []

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        self.executed.append(module.__name__)

class Tool:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path) if name.startswith("sglang") else None
        if spec is not None:
            spec.loader = Theirs(spec.loader)
        return spec
"""


SHOWN = "print(type(vars(module.DetokenizerManager)['__init__']).__name__)\n"


def test_a_finder_put_in_front_that_loads_sglang_itself_takes_no_hook_from_us(run: Run, tmp_path: Path) -> None:
    # As all of SGLang's, the first module needs one that is not of SGLang, about which we are asked.
    write_module(tmp_path, POOLS, "import colorsys\nclass ReqToTokenPool:\n    def __init__(self): ...\n")
    code = (
        f"{FINDER}\ntool = Tool()\nsys.meta_path.insert(0, tool)\nimport {POOLS} as pools\n{SHOW}"
        "print(type(vars(pools.ReqToTokenPool)['__init__']).__name__)\n"
        f"print('{MANAGER}' in Theirs.executed, '{POOLS}' in Theirs.executed, tool in sys.meta_path)\n"
    )
    done = run(code)
    assert (done.stdout, done.stderr) == ("Hook\nHook\nTrue True True\n", "")
    assert (reports(tmp_path, INIT), reports(tmp_path, "ReqToTokenPool.__init__")) == ([("applied", None)],) * 2


def test_a_finder_in_front_that_lets_our_questions_through_keeps_its_place(run: Run) -> None:
    polite = "class Polite:\n    def find_spec(self, name, path=None, target=None):\n        return None\n"
    code = f"import sys\n{polite}sys.meta_path.insert(0, Polite())\n{SHOW}import colorsys\n"
    assert run(code + "print(type(sys.meta_path.pop(0)).__name__)").stdout == "Hook\nPolite\n"


def test_a_module_that_such_a_finder_loaded_before_we_noticed_is_hooked_as_we_notice(
    run: Run, tmp_path: Path
) -> None:
    done = run(f"{FINDER}\nsys.meta_path.insert(0, Tool())\n{SHOW}import colorsys\n{SHOWN}")
    assert (done.stdout, done.stderr) == ("function\nHook\n", "")


def test_a_module_that_it_was_still_loading_as_we_noticed_is_hooked_with_the_import_after(
    run: Run, tmp_path: Path
) -> None:
    manager = write_module(tmp_path, MANAGER, "")
    manager.write_text("import colorsys\nclass DetokenizerManager:\n    def __init__(self): ...\n")
    done = run(f"{FINDER}\nsys.meta_path.insert(0, Tool())\n{SHOW}import wave\n{SHOWN}")
    assert (done.stdout, done.stderr) == ("function\nHook\n", "")
    assert reports(tmp_path, INIT) == [("applied", None)]


def test_a_finder_that_insists_on_being_first_is_not_fought(run: Run, tmp_path: Path) -> None:
    insists = """
class Insists(Tool):
    moves = 0

    def find_spec(self, name, path=None, target=None):
        if sys.meta_path[0] is not self:
            Insists.moves += 1
            sys.meta_path.remove(self)
            sys.meta_path.insert(0, self)
        return super().find_spec(name, path, target)
"""
    code = (
        f"{FINDER}{insists}sys.meta_path.insert(0, Insists())\nimport colorsys, {MANAGER} as module\n"
        "import sglang.srt.managers.other, sglang.srt.managers.another\n"
        "print(module.DetokenizerManager().built, Insists.moves <= 1)\n"
    )
    write_module(tmp_path, "sglang.srt.managers.another", "")
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True\n", "")


def test_wrapts_own_import_hooks_and_ours_both_fire(run: Run, tmp_path: Path) -> None:
    code = f"""
import sys, wrapt
seen = []
def patch(module):
    wrapt.wrap_function_wrapper(module, "{INIT}", lambda w, i, a, k: (seen.append(1), w(*a, **k))[1])
wrapt.register_post_import_hook(patch, "{MANAGER}")
import {MANAGER} as module
print(module.DetokenizerManager().built, seen)
import sglang_probe.agent.core as core
print(core.agent()._hooks.displaced())
"""
    done = run(code)
    assert (done.stdout, done.stderr) == ("True [1]\n[]\n", "")
    assert reports(tmp_path, INIT) == [("applied", None)]


def test_a_module_that_no_finder_brought_is_hooked_with_the_next_one(run: Run, tmp_path: Path) -> None:
    write_module(tmp_path, POOLS, "class ReqToTokenPool:\n    def __init__(self): ...\n")
    file = tmp_path / "site" / "sglang" / "srt" / "managers" / "detokenizer_manager.py"
    code = f"""
import importlib.util, sys, sglang.srt.managers
spec = importlib.util.spec_from_file_location("{MANAGER}", {str(file)!r})
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
import {POOLS}
print(type(vars(module.DetokenizerManager)['__init__']).__name__)
"""
    done = run(code)
    assert (done.stdout, done.stderr) == ("Hook\n", "")


def test_a_spec_that_a_tool_asked_for_and_executed_itself_is_hooked(run: Run, tmp_path: Path) -> None:
    code = f"""
import importlib.util, sys
spec = importlib.util.find_spec("{MANAGER}")
module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(type(vars(module.DetokenizerManager)['__init__']).__name__)
"""
    assert run(code).stdout == "Hook\n"
    assert reports(tmp_path, INIT) == [("applied", None)]


@pytest.mark.parametrize("place", ["0", "1"])
def test_a_finder_that_forbids_a_target_module_forbids_it_and_we_go_on_watching(
    run: Run, tmp_path: Path, place: str
) -> None:
    forbids = """
import sys
class Forbids:
    def find_spec(self, name, path=None, target=None):
        if name.endswith("memory_pool"):
            raise ImportError("forbidden by a policy")
"""
    write_module(tmp_path, POOLS, "")
    code = (
        f"{forbids}sys.meta_path.insert({place}, Forbids())\n"
        f"try:\n    import {POOLS}\nexcept ImportError as error:\n    print(error)\n{SHOW}"
    )
    done = run(code)
    assert (done.stdout, done.stderr) == ("forbidden by a policy\nHook\n", "")


def test_a_name_that_somebody_forbids_or_fills_with_a_stranger_costs_the_host_nothing(run: Run) -> None:
    code = (
        "import sys\nclass Stranger:\n    def __getattr__(self, name):\n        raise RuntimeError(name)\n"
        f"sys.modules['{POOLS}'] = None\nsys.modules['sglang.srt.managers.scheduler'] = Stranger()\n"
        f"import {MANAGER} as module\nprint(module.DetokenizerManager().built)"
    )
    done = run(code)
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert "Traceback" not in done.stderr


def test_a_finder_of_ours_that_was_taken_out_stays_out(run: Run, tmp_path: Path) -> None:
    code = (
        "import sys\nfinder = next(f for f in sys.meta_path if type(f).__name__ == 'Finder')\n"
        "sys.meta_path.remove(finder)\nimport sglang\n"
        "print(finder.find_spec('colorsys'), finder in sys.meta_path)\n" + SHOW
    )
    done = run(code)
    assert (done.stdout, done.stderr) == ("None False\nfunction\n", "")


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        (("-O",), {}),
        (("-OO",), {}),
        (("-B", "-X", "importtime"), {}),
        ((), {"PYTHONSAFEPATH": "1"}),
        (("-X", "frozen_modules=off"), {}),
        (("-W", "error"), {}),
        (("-X", "dev"), {}),
    ],
)
def test_the_events_are_the_same_however_python_is_started(
    run: Run, tmp_path: Path, flags: tuple[str, ...], variables: dict[str, str]
) -> None:
    def told() -> list[tuple[str, str, str]]:
        return [(event["event"], event["level"], event["message"]) for event in events(tmp_path)]

    write_module(tmp_path, POOLS, "class ReqToTokenPool:\n    def __init__(self, size=8):\n        '''Sized.'''\n")
    code = f"import {POOLS} as pools\npools.ReqToTokenPool()\n{SHOW}"
    plain = run(code, SGLANG_PROBE_RUN_ID="one")
    before = told()
    done = run(code, flags=flags, SGLANG_PROBE_RUN_ID="one", SGLANG_PROBE_DIR=str(tmp_path / "runs"), **variables)
    assert (done.stdout, done.returncode) == (plain.stdout, 0) == ("Hook\n", 0)
    assert "sglang_probe" not in done.stderr.replace("import time", "") or "importtime" in flags
    assert sorted(told()) == sorted(before * 2) and before
