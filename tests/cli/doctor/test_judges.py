"""The doctor's judges: facts in, checks out."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_probe.agent.runs import join_run
from sglang_probe.cli.checks import interpreter, packages, place
from sglang_probe.cli.checks.command import Asked
from sglang_probe.cli.checks.model import Check, State
from sglang_probe.cli.checks.text import checks_text, verdict, works
from sglang_probe.events.variables import run_directory

PROJECT = Path(__file__).parents[3] / "pyproject.toml"
ASKED = Asked("/opt/python", (), "/", "as given")


def test_the_ranges_are_those_of_the_projects_own_requirements() -> None:
    text = PROJECT.read_text()
    for name in packages.NEEDED:
        (required,) = re.findall(rf'^  "({name}[^"]*)",', text, re.MULTILINE)
        assert required == name + packages._range(name)


def test_the_versions_of_python_are_those_of_the_projects_own_metadata() -> None:
    text = PROJECT.read_text()
    listed = re.findall(r"Python :: 3\.(\d+)", text)

    assert (3, min(map(int, listed))) == interpreter.OLDEST
    assert (3, max(map(int, listed))) == interpreter.NEWEST


@pytest.mark.parametrize(
    ("version", "inside"),
    [
        ("1.15.9", False),
        ("1.16", True),
        ("1.16.0rc1", True),
        ("2.5.2", True),
        ("3", False),
        ("3.0.0.dev1", False),
        ("1.17.0+local", True),
        ("", False),
    ],
)
def test_a_version_is_in_wrapts_range_or_not(version: str, inside: bool) -> None:
    assert packages.in_range(version, *packages.NEEDED["wrapt"]) is inside


def facts(**more: Any) -> dict[str, Any]:
    names = ("ignore_environment", "no_site", "isolated", "no_user_site", "safe_path")
    me = {"version": [3, 11, 7], "implementation": "cpython", "flags": dict.fromkeys(names, False), "user_site": None}
    fine = {"error": None, "missing": False, "file": "/x"}
    versions = {"wrapt": "2.0", "structlog": "25.1", "orjson": None, "nvidia-ml-py": None, "pynvml": None}
    known = {"interpreter": me, "imports": {"wrapt": fine, "structlog": fine}, "agent": fine, "distributions": versions}
    return {**known, **more}


def packages_of(*, has_gpu: bool = True, **versions: str | None) -> dict[str, Check]:
    known = facts()
    known["distributions"] = {**known["distributions"], **versions}
    return {one.check: one for one in packages.judge_packages(known, ASKED, has_gpu=has_gpu)}


def test_a_version_out_of_range_is_a_warning_where_it_can_be_imported() -> None:
    found = packages_of(wrapt="3.1")

    assert (found["wrapt"].state, found["structlog"].state) == ("warning", "ok")
    assert "wrapt>=1.16,<3" in found["wrapt"].says


def test_an_agent_that_cannot_be_loaded_would_not_work() -> None:
    broken = facts(agent={"error": "SyntaxError: bad", "missing": False})

    found = {one.check: one.state for one in packages.judge_packages(broken, ASKED, has_gpu=False)}

    assert found["agent"] == "error"


@pytest.mark.parametrize(("has_gpu", "state"), [(True, "warning"), (False, "ok")])
def test_what_nvml_needs_is_missed_only_where_there_is_a_gpu(has_gpu: bool, state: str) -> None:
    assert packages_of(has_gpu=has_gpu)["nvidia-ml-py"].state == state


def test_the_deprecated_shell_is_named_with_what_to_do() -> None:
    found = packages_of(pynvml="12.0")

    assert found["pynvml"].state == "warning"
    assert "uninstall pynvml" in (found["pynvml"].do or "")
    assert "nvidia-ml-py" not in found  # the shell brings the module


@pytest.mark.parametrize(
    ("version", "implementation", "state"),
    [
        ([3, 9, 1], "cpython", "error"),
        ([3, 10, 0], "cpython", "ok"),
        ([3, 11, 1], "pypy", "warning"),
        ([3, 99, 0], "cpython", "warning"),
    ],
)
def test_a_python_is_judged_by_its_version_and_kind(version: list[int], implementation: str, state: str) -> None:
    known = facts()
    known["interpreter"] |= {"version": version, "implementation": implementation}

    assert interpreter.judge_python(known, ASKED).state == state


def bell(**more: Any) -> dict[str, Any]:
    known = facts(doorbell={"armed": False, "loaded": None, "chained": [], "sitecustomizes": [], "usercustomize": None})
    known["interpreter"] |= {"pythonpath": "/probe", "executable": "/opt/python"}
    known["doorbell"] |= more
    return known


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("Error in sglang-probe; set PYTHONVERBOSE for traceback:\nKeyError: 'x'", "KeyError: 'x'"),
        ("noise", "no reason was found"),
    ],
)
def test_a_doorbell_that_failed_is_quoted(stderr: str, said: str) -> None:
    found = interpreter.judge_doorbell(bell(), "/probe", stderr)

    assert found.state == "error"
    assert said in found.says


def test_a_second_hidden_sitecustomize_is_not_run() -> None:
    known = bell(
        armed=True, chained=["/a/sitecustomize.py"], sitecustomizes=["/a/sitecustomize.py", "/b/sitecustomize.py"]
    )

    found = interpreter.judge_sitecustomize(known, "/probe")

    assert "/b/sitecustomize.py: further back, not run" in found.says


def test_another_copy_of_the_probe_is_told_from_a_foreign_sitecustomize(tmp_path: Path) -> None:
    for name, text in (("copy", "import sglang_probe"), ("theirs", "import os")):
        (tmp_path / name / "sitecustomize").mkdir(parents=True)
        (tmp_path / name / "sitecustomize" / "__init__.py").write_text(text)

    copy = interpreter.judge_pythonpath({"PYTHONPATH": str(tmp_path / "copy")}, "/probe")
    theirs = interpreter.judge_pythonpath({"PYTHONPATH": str(tmp_path / "theirs")}, "/probe")

    assert (copy.state, theirs.state) == ("warning", "ok")
    assert str(tmp_path / "copy") in copy.says


ROOM: dict[str, Any] = {
    "given": "/runs", "path": "/runs", "exists": True, "nearest": "/runs", "why": None, "is_directory": True,
    "writable": True, "read_only": False, "free_bytes": 1 << 40, "free_inodes": 9, "run": None, "run_id": None,
    "takes_files": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "state", "said"),
    [
        ({}, "ok", "1024.0 GiB free"),
        ({"writable": False}, "error", "cannot be written by this user"),
        ({"writable": False, "exists": False, "nearest": "/up"}, "error", "cannot be created in /up"),
        ({"read_only": True}, "error", "read-only"),
        ({"free_bytes": 0}, "error", "full"),
        ({"free_inodes": 0}, "error", "full"),
        ({"free_inodes": None}, "ok", "free"),
        ({"free_bytes": None}, "ok", "free space unknown"),
        ({"free_bytes": 5 << 20}, "warning", "only 5 MiB free"),
        ({"why": "the current directory is gone", "path": None}, "error", "gone"),
    ],
)
def test_a_place_for_events_is_judged_by_what_can_be_written_there(more: dict[str, Any], state: str, said: str) -> None:
    found = place.judge_place({**ROOM, **more})

    assert found.state == state
    assert said in found.says
    assert found.do or state == "ok"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40))
def test_any_directory_can_be_asked_about(given_directory: str) -> None:
    assert place.judge_place(place.place_facts({"SGLANG_PROBE_DIR": given_directory})).check == "run_directory"


@pytest.mark.parametrize("in_the_way", ["file", "dangling link", "long name", "long name in no directory yet"])
@pytest.mark.parametrize("run_id", ["night", ".hidden/../night"])
def test_a_run_whose_own_directory_cannot_be_made_is_an_error(tmp_path: Path, in_the_way: str, run_id: str) -> None:
    runs, run = tmp_path / "runs", Path(run_directory(str(tmp_path / "runs"), run_id))
    if "yet" not in in_the_way:
        runs.mkdir()
    if in_the_way == "file":
        run.write_text("")
    elif in_the_way == "dangling link":
        run.symlink_to(tmp_path / "nowhere")
    else:
        run_id *= 300

    found = place.judge_place(place.place_facts({"SGLANG_PROBE_DIR": str(runs), "SGLANG_PROBE_RUN_ID": run_id}))

    assert (found.state, "SGLANG_PROBE_RUN_ID" in (found.do or "")) == ("error", True)


def test_a_directory_of_runs_in_which_no_file_can_have_a_name_is_an_error(tmp_path: Path) -> None:
    deep, longest = str(tmp_path), os.pathconf(tmp_path, "PC_PATH_MAX") - 1
    deep += "/d" * ((longest - 30 - len(deep)) // 2)

    found = place.judge_place(place.place_facts({"SGLANG_PROBE_DIR": deep}))

    assert (found.state, "SGLANG_PROBE_DIR" in (found.do or "")) == ("error", True)


def test_a_directory_of_runs_whose_name_no_directory_can_have_is_an_error(tmp_path: Path) -> None:
    found = place.judge_place(place.place_facts({"SGLANG_PROBE_DIR": str(tmp_path / "no" / ("a" * 300))}))

    assert (found.state, "SGLANG_PROBE_DIR" in (found.do or "")) == ("error", True)


@pytest.mark.parametrize("directory", ["/proc/x", "/sys/x/y", "/proc"])
def test_a_file_system_of_the_kernels_takes_no_runs_and_is_not_called_full(
    monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: True)  # what root is told

    found = place.judge_place({**place.place_facts({"SGLANG_PROBE_DIR": directory}), "read_only": False})

    assert (found.state, "full" in found.says) == ("error", False)
    assert found.says.startswith(directory) and "the kernel's own file system" in found.says
    assert ("cannot be created" in found.says) is (directory != "/proc")
    assert (found.do or "").startswith("set SGLANG_PROBE_DIR")


@pytest.mark.parametrize("made", [True, False])
def test_a_run_that_has_its_directory_is_written_on(tmp_path: Path, made: bool) -> None:
    if made:
        (tmp_path / "night").mkdir()

    found = place.judge_place(place.place_facts({"SGLANG_PROBE_DIR": str(tmp_path), "SGLANG_PROBE_RUN_ID": "night"}))

    assert found.state == "ok"
    assert [one.name for one in tmp_path.iterdir()] == ["night"] * made


@given(st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=40), st.sampled_from(["runs", "/a/../b"]))
def test_the_directory_of_a_run_is_named_as_the_agent_names_it(run_id: str, directory: str) -> None:
    run = join_run({"SGLANG_PROBE_RUN_ID": run_id, "SGLANG_PROBE_DIR": directory})

    asked = place.place_facts({"SGLANG_PROBE_RUN_ID": run_id, "SGLANG_PROBE_DIR": directory})

    assert (asked["path"], asked["run"]) == (run.directory, run.path)


def test_a_directory_of_runs_that_is_asked_about_is_not_made(tmp_path: Path) -> None:
    asked = place.place_facts({"SGLANG_PROBE_DIR": str(tmp_path / "a" / "b")})

    assert (asked["exists"], asked["nearest"]) == (False, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["SGLANG_PROBE_DIRECTORY", "SGLANG_PROBE_RUNID", "SGLANG_PROBE_X", "SGL_PROBE_DIR"])
def test_a_name_that_the_probe_does_not_read_is_said(name: str) -> None:
    found = [one for one in place.judge_variables({name: "x"}) if one.check == "variable"]

    assert [one.facts for one in found] == [{"name": name}]


@pytest.mark.parametrize("name", [*place.OWN, "SGLANG_TORCH_PROFILER_DIR", "SGLANG_PORT", "PROBE", "HOME"])
def test_names_of_the_probe_and_of_others_are_left_in_peace(name: str) -> None:
    assert [one for one in place.judge_variables({name: "x"}) if one.check == "variable"] == []


words_ = st.lists(st.text("abc/x", min_size=1, max_size=30), min_size=1, max_size=12).map(" ".join)
check_ = st.builds(
    Check, st.sampled_from(["sglang", "run_directory"]), st.sampled_from(get_args(State)), words_, words_
)


@given(st.lists(check_, max_size=6), st.integers(80, 120))
def test_the_text_keeps_to_its_width_and_names_what_is_in_the_way(checks: list[Check], width: int) -> None:
    text = checks_text(checks, width)

    assert all(len(line) <= width for line in text.splitlines())
    assert works(checks) is not any(check.state == "error" for check in checks)
    assert ("would not work" in text) is not works(checks)


HOSTILE = "/opt/\x1b[2J\u202e a\nb\t'c\\udcff/python"


@given(st.text() | st.just(HOSTILE), st.sampled_from(get_args(State)))
def test_nothing_that_a_path_holds_acts_on_the_terminal(path: str, state: State) -> None:
    text = checks_text([Check("python", state, path, f"{path} -m pip install wrapt")], 80)

    assert all(line.isprintable() for line in text.split("\n"))


def test_a_newline_in_a_path_is_seen() -> None:
    assert "a\\nb" in checks_text([Check("python", "ok", "/opt/a\nb")], 80)


@pytest.mark.parametrize(
    "path", ["/opt/python", "/opt/a b/python", "/opt/it's/python", HOSTILE, "/opt/\\n\n'\\/\udcff"]
)
def test_what_is_to_be_typed_names_that_very_python(path: str) -> None:
    absent = facts(imports={"wrapt": {"missing": True, "error": None}, "structlog": {"missing": True, "error": None}})
    (wrapt, *_) = packages.judge_packages(absent, replace(ASKED, python=path), has_gpu=False)
    word = (wrapt.do or "").partition(" -m pip")[0]

    said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True, timeout=60).stdout

    assert word.isprintable()
    assert os.fsdecode(said) == path


def test_colour_marks_the_state_alone() -> None:
    checks = [Check("sglang", "error", "none", "install it"), Check("wrapt", "ok", "2.0")]

    plain, coloured = checks_text(checks, 80), checks_text(checks, 80, colour=True)

    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
    assert coloured.count("\x1b[0m") == len(checks)


def test_the_verdict_counts_warnings() -> None:
    warning = Check("orjson", "warning", "x")

    assert verdict([warning]) == "Injection would work here, with 1 warning."
    assert verdict([]) == "Injection would work here."
