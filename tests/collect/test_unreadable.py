"""What cannot be read, or must not be opened, is said and never mistaken for what is not there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sglang_probe.collect import Collected, InputError, read
from tests.collect.building import SECOND, Host
from tests.collect.starting import Shape, launch, write


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Path]]:
    """Paths that the system refuses to open or list, as mode 000 does to all but root."""
    refused: set[Path] = set()

    def guarded(method: Any) -> Any:
        def call(path: Path, *args: Any, **more: Any) -> Any:
            if path in refused:
                raise PermissionError(13, "Permission denied", str(path))
            return method(path, *args, **more)

        return call

    with monkeypatch.context() as patch:
        for name in ("open", "iterdir"):
            patch.setattr(Path, name, guarded(getattr(Path, name)))
        yield refused


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[Path, Path]:
    """A directory of two runs: the older, the newer."""
    host = Host()
    older = write(tmp_path, launch([Shape()], host, run_id="older", first_pid=10))
    host.tick(3600 * SECOND)
    return older, write(tmp_path, launch([Shape()], host, run_id="newer", first_pid=20))


def _losses(collected: Collected) -> dict[str, int]:
    return {loss.kind: loss.count for loss in collected.report.losses}


def _refusal(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        read([path])
    return str(caught.value)


def test_a_newer_run_whose_directory_is_closed_is_said_beside_the_older(
    two_runs: tuple[Path, Path], tmp_path: Path, closed: set[Path]
) -> None:
    closed.add(two_runs[1])

    collected = read([tmp_path])

    assert ["older"] == [run.run_id for run in collected.runs]
    assert {"unreadable_run": 1} == _losses(collected)
    (place,) = collected.report.losses[0].examples
    assert (str(two_runs[1]), "Permission denied") == (place.file, place.text)


def test_a_newer_run_whose_files_are_closed_is_said_beside_the_older(
    two_runs: tuple[Path, Path], tmp_path: Path, closed: set[Path]
) -> None:
    closed.update(two_runs[1].iterdir())

    assert {"unreadable_run": 1} == _losses(read([tmp_path]))


def test_a_directory_of_closed_files_is_not_called_empty(
    two_runs: tuple[Path, Path], tmp_path: Path, closed: set[Path]
) -> None:
    for run in two_runs:
        closed.update(run.iterdir())

    for path in (two_runs[0], tmp_path):
        text = _refusal(path)
        assert "Permission denied" in text
        assert "empty" not in text


def test_a_closed_file_among_open_ones_is_counted(two_runs: tuple[Path, Path], closed: set[Path]) -> None:
    closed.add(min(two_runs[0].iterdir()))

    assert {"unreadable_file": 1} == _losses(read([two_runs[0]]))


def test_a_directory_that_may_not_be_listed_says_so(tmp_path: Path, closed: set[Path]) -> None:
    closed.add(tmp_path)

    assert f"{tmp_path} cannot be read: Permission denied" in _refusal(tmp_path)


def test_a_path_that_may_not_be_looked_at_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: Path, **_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", stat)

    assert "cannot be read: Permission denied" in _refusal(tmp_path / "x.jsonl")


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "file/below", "loop"])
def test_a_path_that_the_system_refuses_is_one_line(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert str(tmp_path) in _refusal(tmp_path / name)


@contextmanager
def _special(directory: Path, kind: str) -> Iterator[None]:
    path = directory / "pipe.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(directory)  # a socket's name may have a hundred characters
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
            os.chdir(here)
            yield
        return
    yield


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_what_is_no_regular_file_is_noted_and_never_opened(tmp_path: Path, kind: str) -> None:
    run = write(tmp_path, launch([Shape()]))
    with _special(run, kind), _special(tmp_path, kind):
        assert {"special_file": 1} == _losses(read([run]))
        assert {"special_file": 2} == _losses(read([tmp_path]))


def test_a_directory_of_pipes_alone_holds_no_events(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")

    assert "holds no probe events" in _refusal(tmp_path)


def test_a_pipe_that_is_named_is_read(tmp_path: Path) -> None:
    lines = b"".join(launch([Shape()])[1].lines())
    reading, writing = os.pipe()
    os.write(writing, lines[: lines.index(b"\n") + 1])
    os.close(writing)

    assert 1 == read([f"/dev/fd/{reading}"]).report.events
    os.close(reading)


def test_a_name_that_is_not_utf8_is_spelt_out_in_the_report(tmp_path: Path) -> None:
    run = write(tmp_path, launch([Shape()]))
    Path(os.fsdecode(os.fsencode(run) + b"/\xff.txt")).write_text("note\n")

    (loss,) = read([run]).report.losses

    assert loss.examples[0].file.endswith("\\udcff.txt")
    assert loss.examples[0].file.encode()


@pytest.mark.parametrize("within", [True, False], ids=["run", "directory of runs"])
def test_a_link_that_leads_nowhere_is_counted(tmp_path: Path, within: bool) -> None:
    run = write(tmp_path, launch([Shape()]))
    (run / "lost.jsonl").symlink_to(tmp_path / "nowhere")

    assert {"unreadable_file": 1} == _losses(read([run if within else tmp_path]))
