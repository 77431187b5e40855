"""The finder, in a Python of its own that imports a made-up sglang with one target module."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.conftest import Run, events

IMPORT = "from sglang.srt.managers import detokenizer_manager as module\n"


def test_no_file_is_made_where_no_target_module_loads(run: Run, tmp_path: Path) -> None:
    done = run("import sys, sglang.srt.managers.other; print('structlog' in sys.modules, 'wrapt' in sys.modules)")
    assert (done.stdout, done.stderr) == ("False False\n", "")
    assert not (tmp_path / "runs").exists()


def test_a_target_module_is_hooked_as_it_loads(run: Run, tmp_path: Path) -> None:
    done = run(IMPORT + "print(module.DetokenizerManager().built)")
    assert (done.stdout, done.stderr) == ("True\n", "")
    told = [event["event"] for event in events(tmp_path)]
    assert told[0] == "sglang.probe.process.start"
    assert "sglang.probe.target" in told


def test_the_module_keeps_its_own_loader_and_source(run: Run) -> None:
    code = IMPORT + "import inspect\nprint(type(module.__loader__).__name__, type(module.__spec__.loader).__name__)\n"
    done = run(code + "print('built' in inspect.getsource(module.DetokenizerManager))")
    assert done.stdout == "SourceFileLoader SourceFileLoader\nTrue\n"


def test_a_reloaded_module_is_hooked_again(run: Run, tmp_path: Path) -> None:
    done = run(
        IMPORT
        + "import importlib\nimportlib.reload(module)\n"
        + "print(type(vars(module.DetokenizerManager)['__init__']).__name__)"
    )
    assert done.stdout == "Hook\n"
    reports = [e for e in events(tmp_path) if e["event"] == "sglang.probe.target"]
    assert ["applied", "applied"] == [report["attributes"]["state"] for report in reports]


def test_a_module_loaded_before_the_agent_was_armed_is_hooked_at_once(run: Run) -> None:
    code = (
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith('sglang_probe')]\n"
        + IMPORT
        + "from sglang_probe.agent.finder import arm\narm(); arm()\n"
        "print(type(vars(module.DetokenizerManager)['__init__']).__name__)"
    )
    assert run(code).stdout == "Hook\n"


def test_an_import_error_of_the_hosts_own_passes_unchanged(run: Run) -> None:
    done = run("try:\n    import sglang.srt.managers.nowhere\nexcept ModuleNotFoundError as e:\n    print(e)")
    assert done.stdout == "No module named 'sglang.srt.managers.nowhere'\n"


def test_process_start_pickles_its_target_with_every_hook_in_place(run: Run, tmp_path: Path) -> None:
    code = """
import multiprocessing as mp
from sglang.srt.managers.detokenizer_manager import run_detokenizer_process
if __name__ == "__main__":
    mp.set_start_method("spawn")
    ours, theirs = mp.Pipe()
    process = mp.Process(target=run_detokenizer_process, args=(theirs,))
    process.start()
    print(ours.recv())
    process.join()
    print(process.exitcode)
"""
    done = run(code)
    assert (done.stdout, done.stderr) == ("True\n0\n", "")
    by_process = {event["pid"]: event for event in events(tmp_path)}
    assert sorted(event["proc"]["role"] for event in by_process.values()) == ["detokenizer", "launcher"]
    assert len({event["run_id"] for event in by_process.values()}) == 1


@pytest.mark.parametrize("missing", ["wrapt", "structlog"])
def test_without_a_dependency_the_host_runs_and_one_line_says_what_to_do(
    run: Run, tmp_path: Path, missing: str
) -> None:
    code = IMPORT + "import importlib; importlib.reload(module); print(module.DetokenizerManager().built)"
    done = run(code, block=(missing,))
    assert (done.returncode, done.stdout) == (0, "True\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("sglang-probe:") and missing in line and "pip install" in line


def test_without_orjson_nothing_is_lost(run: Run, tmp_path: Path) -> None:
    done = run(IMPORT + "module.DetokenizerManager()", block=("orjson",))
    assert (done.returncode, done.stderr) == (0, "")
    assert events(tmp_path)


def test_an_unwritable_directory_is_said_once_for_the_whole_run(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = """
import multiprocessing as mp
from sglang.srt.managers.detokenizer_manager import DetokenizerManager
if __name__ == "__main__":
    process = mp.get_context("spawn").Process(target=DetokenizerManager)
    process.start(); process.join()
    print(process.exitcode)
"""
    done = run(code, SGLANG_PROBE_DIR=str(tmp_path / "file" / "runs"))
    assert done.stdout == "0\n"
    (line,) = done.stderr.splitlines()
    assert "SGLANG_PROBE_DIR" in line and str(tmp_path / "file" / "runs") in line


def test_target_modules_that_import_each_other_say_a_loss_once(run: Run, tmp_path: Path) -> None:
    managers = tmp_path / "site" / "sglang" / "srt" / "managers"
    managers.joinpath("tokenizer_manager.py").write_text("from sglang.srt.managers import detokenizer_manager")
    done = run("import sglang.srt.managers.tokenizer_manager", block=("wrapt",))
    assert len(done.stderr.splitlines()) == 1
