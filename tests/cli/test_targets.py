"""`sglang-probe targets` shows what an SGLang has for the probe, from its files alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.catalogue.sources import from_tree
from sglang_probe.catalogue.targets import TARGETS
from sglang_probe.events.names import ROLES
from tests.catalogue.making import FILES, RUNNER, write_tree, write_wheel

Probe = Callable[..., "subprocess.CompletedProcess[str]"]
WIDTH = 80
ENDS_THE_IMPORTER = "raise SystemExit('sglang was imported')\n"


def whole(body: str = "return 1") -> dict[str, str]:
    """Files of an SGLang that has every home of the table."""
    classes: dict[str, dict[str, list[str]]] = {}
    for target in TARGETS:
        owner, _, name = target.path.rpartition(".")
        classes.setdefault(target.module, {}).setdefault(owner, []).append(name)
    files = {"sglang/__init__.py": ENDS_THE_IMPORTER, "sglang/srt/__init__.py": ENDS_THE_IMPORTER}
    for module, owners in classes.items():
        text = ""
        for owner, names in owners.items():
            indent = "    " if owner else ""
            text += f"class {owner}:\n" if owner else ""
            text += "".join(f"{indent}def {name}(*args):\n{indent}    {body}\n" for name in names)
        files[f"{module.replace('.', '/')}.py"] = text
    return files


def document(probe: Probe, *args: str | Path, code: int = 0) -> Any:
    shown = probe("targets", *args, "--format", "json")
    assert (code, "") == (shown.returncode, shown.stderr)
    return json.loads(shown.stdout)


def test_a_tree_with_every_home_is_shown_and_nothing_of_it_is_imported(probe: Probe, tmp_path: Path) -> None:
    found = document(probe, "--sglang", write_tree(tmp_path / "src", whole()))
    assert "targets/1.0" == found["schema"]
    assert {"version": None, "path": str(tmp_path / "src" / "sglang")} == found["sglang"]
    assert set(ROLES) == set(found["roles"])
    assert [target.name for target in TARGETS] == [row["target"] for row in found["targets"]]
    assert {"unknown body", "nested"} == {row["state"] for row in found["targets"]}
    assert all(row["fingerprint"] and row["known_in"] == [] for row in found["targets"])


def test_the_homes_of_a_role_are_its_rows_that_are_hooked(probe: Probe, tmp_path: Path) -> None:
    found = document(probe, "--sglang", write_tree(tmp_path / "src", whole()))
    for role, said in found["roles"].items():
        rows = [row for row in found["targets"] if row["role"] == role and row["state"] != "nested"]
        assert ("unknown body", [row["target"] for row in rows]) == (said["state"], said["homes"])


def test_a_role_without_a_home_is_named_and_the_command_exits_1(probe: Probe, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "1.2.3")
    shown = probe("targets", "--sglang", wheel)
    assert (1, "") == (shown.returncode, shown.stderr)
    assert "1.2.3" in shown.stdout
    head, summary, *_ = shown.stdout.split("\n\n")
    assert "NO HOME for" in head
    without = [line.split()[0] for line in summary.splitlines() if line.endswith("NO HOME")]
    with_home = [line.split()[0] for line in summary.splitlines() if not line.endswith("NO HOME")]
    assert ["scheduler.init", "weights.load"] == with_home
    assert set(ROLES) == {*without, *with_home}
    assert "no home" == document(probe, "--sglang", wheel, code=1)["roles"]["kv.profile"]["state"]


def test_without_all_only_what_is_not_applied_is_shown_and_no_fingerprint(probe: Probe, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "src", {**whole(), RUNNER: "class ModelRunner:\n    load_model = 1\n"})
    rows = document(probe, "--sglang", root, code=1)["targets"]
    shown = probe("targets", "--sglang", root).stdout
    assert {"unknown body", "nested", "failed", "absent"} == {row["state"] for row in rows}
    for row in rows:
        path = row["target"].partition(":")[2]
        if row["state"] in {"unknown body", "failed"} or (row["state"] == "nested" and row["role"]):
            assert any(line.split() == [*row["state"].split(), path] for line in shown.splitlines()), row
    assert [row["fingerprint"] for row in rows if row["fingerprint"] and row["fingerprint"] in shown] == []
    assert "rows and fingerprints: --all" == shown.splitlines()[-1]


def test_absent_rows_are_shown_on_demand(probe: Probe, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "src")
    rows = document(probe, "--sglang", root, code=1)["targets"]
    absent = [row["target"].partition(":")[2] for row in rows if row["state"] == "absent"]
    shown, everything = (probe("targets", "--sglang", root, *more).stdout for more in ((), ("--all",)))
    assert [name for name in absent if name not in everything] == []
    assert [
        name
        for name in {*absent} - {row["target"].partition(":")[2] for row in rows if row["state"] != "absent"}
        if name in shown
    ] == []


def test_a_body_of_a_release_is_applied_and_says_where_it_is_known(probe: Probe, tmp_path: Path, root: Path) -> None:
    known = json.loads((root / "sglang_probe" / "catalogue" / "bodies.json").read_text())
    releases = known["releases"]
    found = document(probe, "--sglang", releases[-1])
    assert releases[-1] == found["sglang"]["version"]
    assert {"applied", "absent", "nested"} == {row["state"] for row in found["targets"]}
    assert all((releases[-1] in row["known_in"]) == (row["fingerprint"] is not None) for row in found["targets"])
    text, everything = (probe("targets", "--sglang", releases[-1], *more).stdout for more in ((), ("--all",)))
    assert "every memory role has a home" in text and "that we do not know" not in text
    assert "formula: " in everything and "formula: " not in text and len(text) < len(everything) / 2


def test_a_patched_body_in_a_known_release_is_an_unknown_body(probe: Probe, tmp_path: Path, root: Path) -> None:
    releases = json.loads((root / "sglang_probe" / "catalogue" / "bodies.json").read_text())["releases"]
    release = document(probe, "--sglang", releases[-1])
    (budget,) = release["roles"]["kv.profile"]["homes"]
    module, _, path = budget.partition(":")
    with zipfile.ZipFile(release["sglang"]["path"]) as archive:
        archive.extractall(tmp_path / "src", [name for name in archive.namelist() if name.endswith(".py")])
    file = tmp_path / "src" / f"{module.replace('.', '/')}.py"
    text = file.read_text()
    head = f"def {path.rpartition('.')[2]}("
    at = text.index(":\n", text.index(head)) + 2
    file.write_text(f"{text[:at]}        print('seen')\n{text[at:]}")
    changed = document(probe, "--sglang", tmp_path / "src", "--against", releases[-1])["changes"]
    assert [(budget, "applied", "unknown body")] == [
        (row["target"], row["before"]["state"], row["after"]["state"]) for row in changed
    ]


def test_what_differs_between_two_is_shown_row_by_row(probe: Probe, tmp_path: Path) -> None:
    old = write_wheel(tmp_path, "1.2.3")
    new = write_wheel(tmp_path, "1.2.4", {**FILES, RUNNER: FILES[RUNNER].replace("return 1", "return 2")})
    gone = write_wheel(tmp_path, "1.2.5", {name: text for name, text in FILES.items() if name != RUNNER})
    shown = probe("targets", "--sglang", new, "--against", old)
    assert 1 == shown.returncode
    assert shown.stdout.startswith(f"1 row differs; {len(TARGETS) - 1} are the same in both\n")
    assert "other body" in shown.stdout
    assert "against   1.2.3" in shown.stdout and "sglang    1.2.4" in shown.stdout
    (change,) = document(probe, "--sglang", gone, "--against", old, code=1)["changes"]
    assert ("unknown body", "absent") == (change["before"]["state"], change["after"]["state"])
    assert "was unknown body" in probe("targets", "--sglang", gone, "--against", old).stdout
    same = probe("targets", "--sglang", old, "--against", old)
    assert f"0 rows differ; {len(TARGETS)} are the same" in same.stdout


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_text_in_a_pipe_is_plain_and_80_columns_wide(probe: Probe, tmp_path: Path, more: tuple[str, ...]) -> None:
    root = write_tree(tmp_path / "src", whole())
    shown = probe("targets", "--sglang", root, *more).stdout
    too_wide = [line for line in shown.splitlines() if len(line) > WIDTH and len(line.split()) > 1]
    assert "\x1b" not in shown
    assert [] == too_wide


def test_a_file_that_does_not_parse_is_a_failed_row_and_no_crash(probe: Probe, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "src", {**whole(), RUNNER: "class ModelRunner:\n    def load_model(:\n"})
    rows = document(probe, "--sglang", root, code=1)["targets"]
    broken = [row for row in rows if row["target"].startswith("sglang.srt.model_executor.model_runner:")]
    assert {"failed"} == {row["state"] for row in broken}
    assert all("line 2" in row["reason"] for row in broken)
    assert "line 2" in probe("targets", "--sglang", root).stdout


@pytest.mark.parametrize("option", ["--sglang", "--against"])
@pytest.mark.parametrize("named", ["nowhere", "no\tway", "", "/dev/null", "a" * 300, "cut.whl", "empty", "9.9.9.post9"])
def test_what_is_no_sglang_is_one_line_that_names_it(probe: Probe, tmp_path: Path, option: str, named: str) -> None:
    whole_wheel = write_wheel(tmp_path / "w", "1.2.3")
    (tmp_path / "cut.whl").write_bytes(whole_wheel.read_bytes()[:-10])
    (tmp_path / "empty").mkdir()
    env = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "empty"),
        "SGLANG_PROBE_WHEELS": str(tmp_path / "kept"),
    }
    other = [] if option == "--sglang" else ["--sglang", whole_wheel]
    refused = probe("targets", *other, option, named, env=env)
    lines = [line for line in refused.stderr.splitlines() if not line.startswith("downloading")]
    assert (2, "", 1) == (refused.returncode, refused.stdout, len(lines))
    assert lines[0].startswith("sglang-probe targets: ")
    assert repr(named)[1:-1].replace("\\", "") in lines[0].replace("\\", "")


def test_a_version_is_told_while_it_is_downloaded_and_not_again(probe: Probe, tmp_path: Path) -> None:
    write_wheel(tmp_path / "index", "1.2.3", tag="cp312-cp312-manylinux_2_34_x86_64")
    env = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "index"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    first, again = (probe("targets", "--sglang", "1.2.3", env=env) for _ in range(2))
    assert first.stdout == again.stdout and "1.2.3" in first.stdout
    assert 1 == first.stderr.count("\n") and "downloading" in first.stderr
    assert "" == again.stderr
    assert 1 == len(list((tmp_path / "cache" / "sglang-probe" / "wheels").iterdir()))


def test_an_environment_without_sglang_is_told_how_to_name_one(probe: Probe) -> None:
    refused = probe("targets")
    if refused.returncode != 2:
        pytest.skip("this environment has an SGLang of its own")
    assert "--sglang VERSION" in refused.stderr and refused.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--sglang", "--against"])
def test_an_environment_without_sglang_is_told_of_the_option_it_was_named_with(
    probe: Probe, tmp_path: Path, option: str
) -> None:
    other = [] if option == "--sglang" else ["--sglang", write_wheel(tmp_path, "1.2.3")]
    refused = probe("targets", *other, option, "installed")
    if refused.returncode != 2:
        pytest.skip("this environment has an SGLang of its own")
    assert f"{option} VERSION or {option} PATH" in refused.stderr and refused.stderr.count("\n") == 1


def test_the_installed_one_is_found_where_python_would_find_it(tmp_path: Path, root: Path) -> None:
    site = write_tree(
        tmp_path / "site", {**whole(), "sglang-1.2.3.dist-info/METADATA": "Name: sglang\nVersion: 1.2.3\n"}
    )
    boot = f"import sys; sys.path[:0] = {[str(root), str(site)]}; from sglang_probe.cli import main as m; m.main()"
    words = [sys.executable, "-c", boot, "targets", "--format", "json"]
    shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (0, "") == (shown.returncode, shown.stderr)
    assert {"version": "1.2.3", "path": str(site / "sglang")} == json.loads(shown.stdout)["sglang"]


def test_names_from_a_hostile_tree_do_not_reach_the_terminal_as_they_are(probe: Probe, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "a\x1b[2Jb", {**whole(), "sglang/version.py": "__version__ = '1\x1b[31m2'\n"})
    for more in ((), ("--format", "json")):
        shown = probe("targets", "--sglang", root, *more)
        assert 0 == shown.returncode and "\x1b" not in shown.stdout
    assert from_tree(root).version == "1\x1b[31m2"
