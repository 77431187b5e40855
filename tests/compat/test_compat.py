"""The job says which row of which release moved. On the real index it is a step of `.ci/run`, not a test."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sglang_probe.catalogue.bodies import Bodies
from sglang_probe.catalogue.releases import expanded, order
from sglang_probe.catalogue.targets import TARGETS
from sglang_probe.events.names import ROLES
from tests.catalogue.making import write_wheel
from tests.compat.conftest import RELEASE, Job, python_files

BUDGET = "sglang/srt/model_executor/model_runner_kv_cache_mixin.py"
HEAD = b"def _profile_available_bytes("


def written(checkout: Path) -> Bodies:
    data: Bodies = json.loads((checkout / "sglang_probe" / "catalogue" / "bodies.json").read_text())
    return data


def test_the_page_names_every_release_and_every_home(root: Path) -> None:
    page = (root / "docs" / "compatibility.md").read_text()
    rows = re.findall(r"^\| (0\.[^|]*?) \|", page.partition("## The KV budget")[0], re.MULTILINE)
    assert written(root)["releases"] == [release for row in rows for release in row.split(", ")]
    assert [] == [target.name for target in TARGETS if f"`{target.path}`" not in page]
    assert [] == [role for role in ROLES if f"### {role}" not in page]


def test_the_known_bodies_are_in_the_order_of_the_releases(root: Path) -> None:
    data = written(root)
    assert sorted(data["releases"], key=order) == data["releases"]
    for bodies in data["bodies"].values():
        releases = [release for some in bodies.values() for release in expanded(some, data["releases"])]
        assert len(set(releases)) == len(releases)  # one body a release


def test_what_was_written_is_what_is_found_the_next_time(job: Job, copy: Path) -> None:
    pages = [copy / "docs" / "compatibility.md", copy / "sglang_probe" / "catalogue" / "bodies.json"]
    before = [page.read_bytes() for page in pages]
    done = job()
    assert (0, "") == (done.returncode, done.stderr)
    assert [RELEASE] == written(copy)["releases"]
    assert 0 == job("--write").returncode
    assert before == [page.read_bytes() for page in pages]


def test_a_release_that_nobody_has_seen_is_told_with_the_rows_that_moved(job: Job, index: Path) -> None:
    files = python_files(RELEASE)
    mixin = files[BUDGET]
    assert isinstance(mixin, bytes) and HEAD in mixin
    at = mixin.index(b":\n", mixin.index(HEAD)) + 2
    files[BUDGET] = mixin[:at] + b"        seen = 1\n" + mixin[at:]
    del files["sglang/srt/distributed/device_communicators/pynccl.py"]
    write_wheel(index, "99.1", files, tag="cp313-cp313-manylinux_2_34_x86_64")
    done = job()
    assert 1 == done.returncode
    head, *moved = [line for line in done.stdout.splitlines() if line.startswith(("99.1", "  "))]
    assert f"99.1: new; against {RELEASE}:" == head
    assert 2 == len(moved)
    assert any("PyNcclCommunicator.__init__: there" in line and line.endswith("absent") for line in moved)
    assert any("kv.profile" in line and "another body" in line for line in moved)
    assert "a budget that nobody has read" in done.stdout
    assert "no home" not in done.stdout
    again = job("--write")
    assert 1 == again.returncode  # writing does not make a body known
    assert "a budget that nobody has read" in again.stdout and "new; against" not in again.stdout


def test_a_release_without_a_home_for_a_memory_role_is_told(job: Job, index: Path) -> None:
    files = {name: text for name, text in python_files(RELEASE).items() if name != BUDGET}
    write_wheel(index, "99.1", files)
    done = job()
    assert 1 == done.returncode
    assert "no home for kv.profile in 99.1" in done.stdout


def test_a_row_that_is_written_otherwise_is_told_with_its_release(job: Job, copy: Path) -> None:
    path = copy / "sglang_probe" / "catalogue" / "bodies.json"
    data = written(copy)
    name, bodies = next((name, bodies) for name, bodies in data["bodies"].items() if bodies)
    (body,) = bodies
    data["bodies"][name] = {"0" * 16: RELEASE}
    path.write_text(json.dumps(data))
    done = job()
    assert 1 == done.returncode
    assert f"{RELEASE}: not as written" in done.stdout
    assert f"{name}: another body, {'0' * 16} -> {body}" in done.stdout


def test_a_page_that_says_otherwise_is_told_line_by_line(job: Job, copy: Path) -> None:
    page = copy / "docs" / "compatibility.md"
    text = page.read_text()
    page.write_text(text.replace(f"| {RELEASE} | `ModelRunner", "| 0.5.13 | `ModelRunner"))
    assert text != page.read_text()
    done = job()
    assert 1 == done.returncode
    assert "-| 0.5.13 | `ModelRunner" in done.stdout and f"+| {RELEASE} | `ModelRunner" in done.stdout


def test_a_release_that_is_gone_from_the_index_is_told(job: Job, index: Path) -> None:
    write_wheel(index, "99.1", python_files(RELEASE))
    assert 0 == job("--write").returncode
    (wheel,) = index.glob("sglang-99.1-*.whl")
    wheel.unlink()
    done = job()
    assert 1 == done.returncode
    assert "not on the index any more: 99.1" in done.stdout


def test_a_page_without_a_place_for_the_matrix_is_one_line_and_exit_2(job: Job, copy: Path) -> None:
    (copy / "docs" / "compatibility.md").write_text("# Compatibility\n")
    done = job("--write")
    assert 2 == done.returncode
    assert 1 == done.stderr.count("\n") and "lacks the line" in done.stderr


def test_an_index_without_releases_is_one_line_and_exit_2(job: Job, index: Path) -> None:
    for wheel in index.iterdir():
        wheel.unlink()
    done = job()
    assert (2, "") == (done.returncode, done.stdout)
    assert 1 == done.stderr.count("\n") and done.stderr.startswith("compat.py: ")


def test_a_damaged_wheel_is_one_line_and_exit_2(job: Job, copy: Path) -> None:
    (kept,) = (copy.parent / "kept").glob("*.whl")
    content = kept.read_bytes()
    kept.unlink()
    kept.write_bytes(content[: len(content) // 2])
    done = job()
    assert (2, "") == (done.returncode, done.stdout)
    assert kept.name in done.stderr and "Traceback" not in done.stderr


def test_the_scheduled_job_runs_this_script_every_day_and_may_write_nothing(root: Path) -> None:
    text = (root / ".github" / "workflows" / "compatibility.yml").read_text()
    lines = [line.split("#")[0].rstrip() for line in text.splitlines()]
    runs = [line.partition("run: ")[2] for line in lines if "run: " in line]
    assert "python compat/compat.py" == runs[-1] and (root / "compat" / "compat.py").is_file()
    assert (
        re.search(r'^  schedule:\n    - cron: "\d+ \d+ \* \* \*"$', text, re.MULTILINE)
        and "  workflow_dispatch:" in lines
    )
    assert re.search(r"^permissions:\n  contents: read\n\n", text, re.MULTILINE) and 1 == text.count("permissions:")
    assert [] == [line for line in lines if "uses: " in line and not re.search(r"uses: actions/[a-z-]+@v\d+$", line)]
    assert "secrets." not in text and "\t" not in text
    kept = re.search(r"SGLANG_PROBE_WHEELS: \$\{\{ github\.workspace \}\}/(\S+)", text)
    assert kept and f"path: {kept[1]}" in text
