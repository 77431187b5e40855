"""Lines survive the process that wrote them, and a write that fails is said once."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest

from sglang_probe.agent.runs import Run
from sglang_probe.agent.writer import Writer


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run("run", True, str(tmp_path / "runs"))


def wait(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def test_nothing_is_made_before_the_first_line(run: Run) -> None:
    Writer(run)
    assert not Path(run.directory).exists()


def test_directory_and_file_are_for_their_owner_alone(run: Run) -> None:
    writer = Writer(run)
    writer.write(b"{}")
    assert stat.S_IMODE(Path(run.path).stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(writer.path()).stat().st_mode) == 0o600


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_lines_survive_a_process_that_ends_without_goodbye(run: Run, end: str) -> None:
    pid = os.fork()
    if pid == 0:
        Writer(run).write(b"last words")
        os._exit(0) if end == "exit" else os.kill(os.getpid(), signal.SIGKILL)
    wait(pid)
    (file,) = Path(run.path).iterdir()
    assert file.read_bytes() == b"last words\n"


def test_a_forked_child_writes_a_file_of_its_own(run: Run) -> None:
    writer = Writer(run)
    writer.write(b"parent")
    pid = os.fork()
    if pid == 0:
        writer.forget()
        writer.write(b"child")
        os._exit(0)
    wait(pid)
    writer.write(b"parent again")
    contents = sorted(file.read_bytes() for file in Path(run.path).iterdir())
    assert contents == [b"child\n", b"parent\nparent again\n"]


def test_after_a_short_write_the_next_line_stands_alone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(run)
    writer.write(b"first")
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    assert not writer.write(b"torn line")
    monkeypatch.setattr(os, "write", real)
    assert writer.write(b"next")
    assert Path(writer.path()).read_bytes() == b"first\ntor\nnext\n"


def test_a_full_disk_loses_lines_and_says_so_once(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    writer = Writer(run)
    Path(run.path).mkdir(parents=True)
    Path(writer.path()).symlink_to("/dev/full")
    assert not any([writer.write(b"a"), writer.write(b"b")])
    assert writer.dropped == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and "No space left on device" in err and run.path in err


def unwritable(tmp_path: Path) -> str:
    (tmp_path / "file").write_text("in the way")
    return str(tmp_path / "file" / "runs")


def test_an_unwritable_directory_is_said_by_the_runs_maker_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for made_here in (True, False):
        Writer(Run("run", made_here, unwritable(tmp_path))).write(b"{}")
        expected = 1 if made_here else 0
        assert capfd.readouterr().err.count("sglang-probe:") == expected
