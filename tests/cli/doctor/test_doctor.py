"""`sglang-probe doctor`: asked from outside, of real interpreters, and compared with what a run then does."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sglang_probe.cli.checks.interpreter import OLDEST
from sglang_probe.cli.checks.processes import sglang_part
from sglang_probe.testing import make_site
from tests.cli.conftest import command, environment
from tests.cli.doctor.asking import RELEASE, WATCHED, Doctor, Probe, check, make_venv, states


def test_where_everything_is_in_place_it_would_work(doctor: Doctor, python: Path) -> None:
    said = doctor("--", python)

    assert said["works"] is True
    assert said["schema"] == "doctor/1.0"
    assert said["python"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert "error" not in states(said).values()
    assert check(said, "sglang")["facts"]["version"] == RELEASE
    assert check(said, "wrapt")["facts"]["version"] == importlib.metadata.version("wrapt")


FLAGS = [[], ["-I"], ["-E"], ["-S"], ["-s"], ["-B"], ["-P"], ["-OO"], ["-X", "dev"], ["-Es"], ["-BI"]]


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_its_verdict_on_flags_is_what_a_run_with_them_does(
    doctor: Doctor, probe: Probe, python: Path, site: Path, needed: Path, tmp_path: Path, flags: Sequence[str]
) -> None:
    if "-P" in flags and sys.version_info < (3, 11):
        pytest.skip("-P came with 3.11")
    env = {"PYTHONPATH": os.pathsep.join(map(str, (site, needed)))}  # so that SGLang is found with -S too

    said = doctor("--", python, *flags, env=env)
    done = probe("run", "--dir", tmp_path / "runs", "--", python, *flags, "-c", f"import {WATCHED}", env=env)

    assert done.returncode == 0, done.stderr
    assert said["works"] is any(tmp_path.glob("runs/*/*.jsonl"))
    assert check(said, "doorbell")["state"] == ("ok" if said["works"] else "error")


@pytest.mark.parametrize("name", ["PYTHONSAFEPATH", "PYTHONNOUSERSITE", "PYTHONDONTWRITEBYTECODE"])
def test_variables_of_python_do_not_keep_the_doorbell_from_ringing(doctor: Doctor, python: Path, name: str) -> None:
    assert doctor("--", python, env={name: "1"})["works"] is True


def test_a_whole_launch_command_is_asked_about_and_not_started(
    doctor: Doctor, python: Path, site: Path, tmp_path: Path
) -> None:
    words = [python, "-I", "-m", "sglang.launch_server", "--model-path", "fake", "--tp", "8"]

    said = doctor("--", *words)

    assert said["python"]["command"] == [str(python), "-I"]
    assert check(said, "flags")["state"] == "error"
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_asks_about_a_server_does_not_see_itself_as_one(python: Path, tmp_path: Path) -> None:
    program = tmp_path / "sglang-probe"
    program.write_text(command()[2])
    words = [sys.executable, str(program), "doctor", "--format=json", "--", str(python), "-m", "sglang.launch_server"]
    assert sglang_part(words) == "launcher"  # by its words alone

    asking = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    said, _ = asking.communicate(timeout=60)

    assert asking.pid not in {one["pid"] for one in json.loads(said)["processes"]}


def test_variables_that_env_sets_are_judged_and_reach_the_python(doctor: Doctor, python: Path) -> None:
    off = doctor("--", "env", "SGLANG_PROBE=0", python, "-m", "sglang.launch_server")
    hidden = doctor("--", "/usr/bin/env", "A=1", f"PYTHONPATH={python.parent}", python)
    plain = doctor("--", "env", f"PATH={python.parent}", "python", "-I")

    assert (check(off, "switch")["state"], check(off, "doorbell")["state"]) == ("error", "ok")
    assert check(hidden, "doorbell")["state"] == "error"
    assert plain["python"]["command"] == [str(python), "-I"]


def test_a_program_is_asked_about_by_its_first_line(doctor: Doctor, python: Path, script: Callable[..., Path]) -> None:
    sglang = script("bin/sglang", f"#!{python} -E\nraise SystemExit('started')\n")

    said = doctor("--", sglang, "serve", "--tp", "8")

    assert said["python"]["command"] == [str(python), "-E"]
    assert check(said, "flags")["state"] == "error"
    assert "first line" in check(said, "flags")["do"]


def test_without_a_command_it_is_the_python_on_path(doctor: Doctor, python: Path) -> None:
    said = doctor(env={"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"})

    assert said["python"]["command"] == [str(python)]
    assert said["works"] is True


def test_it_leaves_no_file_behind(doctor: Doctor, probe: Probe, needed: Path, tmp_path: Path) -> None:
    site = make_site(tmp_path / "site", RELEASE)
    python = make_venv(tmp_path / "env", site, needed)
    before = sorted(tmp_path.rglob("*"))

    said = doctor("--", python, "-m", "sglang.launch_server")

    assert said["works"] is True
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_not_installed_is_named_with_the_command_that_mends_it(doctor: Doctor, bare: Path) -> None:
    said = doctor("--", bare)

    assert said["works"] is False
    assert states(said) | {"wrapt": "error", "structlog": "error", "sglang": "error", "doorbell": "ok"} == states(said)
    assert check(said, "wrapt")["do"].startswith(f"{bare} -m pip install ")


def test_a_package_that_cannot_be_imported_is_not_called_absent(
    doctor: Doctor, site: Path, needed: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "wrapt.py").write_text("raise ValueError('half an installation')")
    python = make_venv(tmp_path / "env", site, tmp_path / "broken", needed)

    said = doctor("--", python)

    assert "ValueError: half an installation" in check(said, "wrapt")["says"]
    assert said["works"] is False


def old_pythons() -> list[Path]:
    versions = Path.home() / ".pyenv" / "versions"
    found = [versions.glob(f"{version}.*/bin/python") for version in ("2.7", "3.6", "3.8")]
    return [path for paths in found for path in paths]


@pytest.mark.skipif(not old_pythons(), reason="no Python older than the probe's oldest is here")
@pytest.mark.parametrize("old", old_pythons(), ids=lambda path: path.parts[-3])
def test_an_old_python_says_what_it_is_and_would_not_work(doctor: Doctor, old: Path) -> None:
    said = doctor("--", old)

    assert said["python"]["version"] == old.parts[-3]
    assert check(said, "python")["state"] == "error"
    assert ".".join(map(str, OLDEST)) in check(said, "python")["do"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sleep 60", "did not answer within"),
        ("exec yes garbage", "and no answer"),
        ("echo boom >&2; exit 3", "ended with code 3: boom"),
        ("exit 0", "ended with code 0 and said nothing"),
        ("kill -9 $$", "ended with code -9"),
    ],
)
def test_what_only_calls_itself_python_is_one_line_and_exit_2(
    probe: Probe, script: Callable[..., Path], tmp_path: Path, text: str, said: str
) -> None:
    pretender = script("python3", f"#!/bin/sh\necho $$ >{tmp_path}/pid\n{text}\n")

    refused = probe("doctor", "--timeout", "4", "--", pretender)

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert said in refused.stderr
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-python-here"], "no-such-python-here: command not found"),
        (["/no/such/python"], "/no/such/python: command not found"),
        ([""], "'' is no command"),
        (["/bin/sh", "-c", "exit"], "/bin/sh is no Python"),
        (["/"], "/ is not a program"),
        (["./plain"], "./plain is not a program"),
        (["./python-of-nobody"], "cannot be started"),
        (["./loop"], "./loop is no Python"),
        (["./conda", "run", "python"], "./conda starts a program with another Python"),
        (["./pipx", "run", "sglang"], "./pipx starts a program with another Python"),
        (["./tox"], "./tox starts a program with another Python"),
        (["./nox", "-s", "serve"], "./nox starts a program with another Python"),
        (["./sglang-probe", "run"], "./sglang-probe is this probe"),
        ([sys.executable, "-Z"], "-Z is no flag of Python"),
        ([sys.executable, "-W"], "-W needs a value"),
        (["a" * 5000], "name"),
    ],
)
def test_what_is_no_python_is_one_line_and_exit_2(
    probe: Probe, script: Callable[..., Path], tmp_path: Path, words: Sequence[str], said: str
) -> None:
    (tmp_path / "plain").write_text("x")
    shutil.move(script("x", "\x7fELF nonsense"), tmp_path / "python")
    (tmp_path / "python-of-nobody").symlink_to("python")
    script("loop", "#!./loop\n")
    for name in ("conda", "pipx", "tox", "nox", "sglang-probe"):
        script(name, f"#!{sys.executable}\nraise SystemExit('started')\n")

    refused = probe("doctor", "--", *words)

    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert said in refused.stderr


@pytest.mark.parametrize("value", ["0", "-1", "nan", "soon", "1e9"])
def test_a_timeout_that_is_none_is_refused(probe: Probe, value: str) -> None:
    refused = probe("doctor", "--timeout", value)

    assert refused.returncode == 2
    assert value in refused.stderr


def test_what_else_a_python_prints_does_not_matter(doctor: Doctor, python: Path, script: Callable[..., Path]) -> None:
    loud = script("python3", f'#!/bin/sh\necho loading module\nprintf "no newline"\nexec {python} "$@"\n')

    assert doctor("--", loud)["works"] is True


def test_a_wrapper_that_drops_pythonpath_is_found_out(
    doctor: Doctor, probe: Probe, python: Path, script: Callable[..., Path], tmp_path: Path
) -> None:
    wrapper = script("python3", f'#!/bin/sh\nunset PYTHONPATH\nexec {python} "$@"\n')

    said = doctor("--", wrapper)
    probe("run", "--dir", tmp_path / "runs", "--", wrapper, "-c", f"import {WATCHED}")

    assert "PYTHONPATH did not arrive" in check(said, "doorbell")["says"]
    assert said["works"] is any(tmp_path.glob("runs/*/*.jsonl"))


def test_a_sitecustomize_that_comes_first_is_named(
    doctor: Doctor, probe: Probe, site: Path, needed: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "sitecustomize.py").write_text("")
    python = make_venv(tmp_path / "env", site, needed)
    (packages,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (packages / "first.pth").write_text(f"import sys; sys.path.insert(0, {str(first)!r})\n")

    said = doctor("--", python)
    probe("run", "--dir", tmp_path / "runs", "--", python, "-c", f"import {WATCHED}")

    assert str(first / "sitecustomize.py") in check(said, "doorbell")["says"]
    assert said["works"] is any(tmp_path.glob("runs/*/*.jsonl"))


def test_a_sitecustomize_that_the_probe_runs_after_itself_is_named(
    doctor: Doctor, site: Path, needed: Path, tmp_path: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("")

    env = {"PYTHONPATH": str(tmp_path / "theirs")}  # before one that the distribution gave its Python
    said = doctor("--", make_venv(tmp_path / "env", site, needed), env=env)

    assert said["works"] is True
    assert check(said, "sitecustomize")["facts"]["chained"] == [str(tmp_path / "theirs" / "sitecustomize.py")]
