"""`sglang-probe doctor`: what stands around an interpreter, its variables, directories and other SGLangs."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sglang_probe.cli.checks.ask import ask
from sglang_probe.cli.checks.command import Asked
from sglang_probe.testing import FakeServer, make_site
from tests.cli.doctor.asking import RELEASE, Doctor, Probe, check, make_venv, states


@pytest.fixture
def directory(probe: Probe) -> str:
    return probe("pythonpath").stdout.strip()


def test_a_doorbell_in_the_shell_does_not_confuse_it(doctor: Doctor, python: Path, directory: str) -> None:
    """The command is then armed itself, and its own Python must not be taken for an inherited reference."""
    said = doctor("--", python, env={"PYTHONPATH": directory})

    assert said["works"] is True
    assert "reference" not in states(said)
    assert check(said, "pythonpath")["facts"]["position"] == 0


@pytest.mark.parametrize(("by_path", "state"), [(False, "warning"), (True, "error")])
def test_another_python_that_was_armed_first_is_named(
    doctor: Doctor, probe: Probe, python: Path, directory: str, tmp_path: Path, by_path: bool, state: str
) -> None:
    env = {"SGLANG_PROBE_PYTHON": "/other:cpython-310", **({"PYTHONPATH": directory} if by_path else {})}

    said = doctor("--", python, env=env)

    assert check(said, "reference")["state"] == state
    assert "/other" in check(said, "reference")["says"]


def test_a_sitecustomize_in_front_of_the_probe_on_pythonpath_is_named(
    doctor: Doctor, python: Path, directory: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("")

    said = doctor("--", python, env={"PYTHONPATH": os.pathsep.join([str(tmp_path), directory])})

    assert check(said, "pythonpath")["state"] == "warning"
    assert str(tmp_path) in check(said, "pythonpath")["says"]


@pytest.mark.parametrize(
    ("env", "name", "state"),
    [
        ({"SGLANG_PROBE": "0"}, "switch", "error"),
        ({"SGLANG_PROBE": "false"}, "switch", "warning"),
        ({"SGLANG_PROBE_DISABLE": "1"}, "variable", "warning"),
        ({"SGLANG_PORBE_DIR": "x"}, "variable", "warning"),
        ({"SGLANG_PROBE_RUN_ID": "night-1"}, "run_id", "ok"),
        ({"SGLANG_PROBE_RUN_ID": "night-1", "SGLANG_PROBE_RUN_MAKER": "b 1 2 made"}, "run_id", "warning"),
        ({"SGLANG_PROBE_DIR": "relative"}, "run_directory", "warning"),
        ({"SGLANG_PROBE_DIR": "plain"}, "run_directory", "error"),
        ({"SGLANG_PROBE_DIR": "plain/below"}, "run_directory", "error"),
        ({"SGLANG_PROBE_DIR": "a" * 300}, "run_directory", "error"),
    ],
)
def test_what_the_environment_says_is_judged(
    doctor: Doctor, python: Path, tmp_path: Path, env: dict[str, str], name: str, state: str
) -> None:
    (tmp_path / "plain").write_text("")

    said = doctor("--", python, env=env)

    assert check(said, name)["state"] == state
    assert said["works"] is (state != "error")
    assert check(said, name)["do"]


@pytest.mark.parametrize("env", [{"SGLANG_PROBE": "0"}, {"SGLANG_PROBE_PYTHON": "/other:cpython-310"}])
def test_what_would_silence_the_probe_does_not_hide_the_rest(doctor: Doctor, python: Path, env: dict[str, str]) -> None:
    said = doctor("--", python, env=env)

    assert (check(said, "doorbell")["state"], check(said, "agent")["state"]) == ("ok", "ok")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_directory_that_cannot_be_written_is_an_error(doctor: Doctor, python: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)

    said = doctor("--", python, env={"SGLANG_PROBE_DIR": str(closed)})

    assert check(said, "run_directory")["state"] == "error"


def test_a_directory_sglang_where_it_starts_shadows_the_installed_one(
    doctor: Doctor, python: Path, tmp_path: Path
) -> None:
    (tmp_path / "sglang").mkdir()
    harmless = doctor("--", python)
    (tmp_path / "sglang" / "__init__.py").write_text("")

    said = doctor("--", python, "-m", "sglang.launch_server")
    safe = doctor("--", python, "-I") if sys.version_info >= (3, 11) else None

    assert harmless["works"] is True  # a directory without __init__.py gives way to an installed package
    assert check(said, "sglang_shadow")["state"] == "error"
    assert str(tmp_path / "sglang") in check(said, "sglang_shadow")["says"]
    assert safe is None or "sglang_shadow" not in states(safe)


def test_a_module_of_the_standard_library_in_the_working_directory_is_not_taken(
    python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "warnings", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)

    answer = ask(Asked(str(python), (), str(tmp_path), "as given"), os.environ, 30)

    assert answer.python["sglang"]["chosen"]["places"]
    assert answer.nvml is not None


FINDER = """
import importlib.util, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "sglang":
            return importlib.util.spec_from_file_location(name, {init!r}, submodule_search_locations=[{package!r}])
sys.meta_path.append(Finder())
"""
"""How an editable installation is found: after everything on sys.path."""


def test_an_editable_sglang_gives_way_to_any_directory_of_its_name(
    doctor: Doctor, probe: Probe, site: Path, needed: Path, tmp_path: Path
) -> None:
    package = site / "sglang"
    (tmp_path / "editable").mkdir()
    finder = FINDER.format(init=str(package / "__init__.py"), package=str(package))
    (tmp_path / "editable" / "editable_finder.py").write_text(finder)
    python = make_venv(tmp_path / "env", needed, tmp_path / "editable")
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "zz.pth").write_text("import editable_finder\n")
    elsewhere = doctor("--", python)
    (tmp_path / "sglang").mkdir()

    here = doctor("--", python)
    started = probe("run", "--", python, "-m", "sglang.version")

    assert elsewhere["works"] is True
    assert check(here, "sglang_shadow")["facts"] == {"taken": str(tmp_path / "sglang"), "hidden": str(package)}
    assert here["works"] is (started.returncode == 0)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_an_editable_checkout_is_told_by_its_commit(doctor: Doctor, site: Path, needed: Path, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    shutil.copytree(site / "sglang", repo / "python" / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    commit = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True, timeout=60).strip()
    python = make_venv(tmp_path / "env", repo / "python", needed)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    info = packages / "sglang-9.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 9.9\n")
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{repo}", "dir_info": {"editable": True}}))
    clean = check(doctor("--", python), "sglang")["facts"]
    (repo / "python" / "sglang" / "version.py").write_text("__version__ = 'mine'\n")
    changed = check(doctor("--", python), "sglang")["facts"]

    assert (clean["commit"], clean["dirty"], clean["editable"]) == (commit, False, True)
    assert (changed["commit"], changed["dirty"]) == (commit, True)


def test_a_script_looks_beside_itself_first(doctor: Doctor, python: Path, script: Callable[..., Path]) -> None:
    engine = script("mine/engine.py", "raise SystemExit('started')")
    script("mine/sglang/__init__.py", "")

    assert check(doctor("--", python, engine), "sglang_shadow")["state"] == "error"


def test_several_sglangs_are_named(doctor: Doctor, python: Path, site: Path, tmp_path: Path) -> None:
    other = make_site(tmp_path / "other", "0.5.9")

    said = doctor("--", python, env={"PYTHONPATH": str(other)})

    assert check(said, "sglang")["facts"]["version"] == "0.5.9"
    assert check(said, "sglang_copies")["facts"]["hidden"] == [str(site / "sglang")]


def test_a_role_without_a_home_is_an_error(doctor: Doctor, needed: Path, tmp_path: Path) -> None:
    site = make_site(tmp_path / "site", RELEASE)
    shutil.rmtree(site / "sglang" / "srt" / "model_executor")

    said = doctor("--", make_venv(tmp_path / "env", site, needed))

    assert check(said, "targets")["state"] == "error"
    assert "weights.load" in check(said, "targets")["facts"]["homeless"]
    assert said["works"] is False


def test_the_text_says_the_same_in_a_line_per_check_and_the_verdict_last(probe: Probe, doctor: Doctor) -> None:
    shown, said = probe("doctor"), doctor()
    checks, _, verdict = shown.stdout.rstrip("\n").rpartition("\n\n")
    named = [line.split()[1] for line in checks.splitlines() if not line.startswith(" ")]

    # Servers come and go.
    assert [n for n in named if n != "servers"] == [one["check"] for one in said["checks"] if one["check"] != "servers"]
    assert verdict.startswith("Injection would")
    assert "\x1b" not in shown.stdout


def test_a_current_directory_that_is_gone_is_one_line(words_of: Callable[..., list[str]], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = ["sh", "-c", 'rmdir ../gone; "$@"', "sh", *words_of("doctor")]

    refused = subprocess.run(words, cwd=gone, capture_output=True, text=True, timeout=60)

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("has_probe", [True, False])
def test_a_server_that_runs_now_is_told_with_the_probe_or_without_it(
    doctor: Doctor, directory: str, needed: Path, tmp_path: Path, has_probe: bool
) -> None:
    runs = tmp_path / "runs"
    path: list[Path | str] = [directory, needed] if has_probe else []
    clean = {"SGLANG_PROBE_DIR": str(runs), "SGLANG_PROBE_RUN_ID": "night-1", "SGLANG_PROBE_RUN_MAKER": ""}

    with FakeServer(tmp_path / "server", release=RELEASE, pythonpath=path, environment=clean) as server:
        server.wait_until_ready()
        said = doctor()

    (process,) = (one for one in said["processes"] if one["pid"] == server.pid)
    (server_check,) = (one for one in said["checks"] if one["facts"].get("pid") == server.pid)
    assert process["sglang"] == "launcher"
    assert (process["probe"], process["run"]) == ((True, str(runs / "night-1")) if has_probe else (False, None))
    assert ("without the probe" in server_check["says"]) is not has_probe
