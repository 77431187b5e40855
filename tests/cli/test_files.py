"""Where a file that a user names comes to stand: whole or not at all, never over what is not ours, whatever happens."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sglang_probe.cli import files
from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.files import FORMER, Place, place_of, replacing

OURS = "ours.txt"


def holds_ours(path: Path) -> bool:
    return [one.name for one in path.iterdir()] == [OURS]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A directory that may be replaced."""
    path = tmp_path / "run.parquet"
    write_tables(path, "old")
    return path


def write_tables(path: Path, text: str) -> None:
    path.mkdir()
    (path / OURS).write_text(text)


def place(path: Path) -> Place:
    return place_of(str(path), ".parquet", is_ours=holds_ours)


def kept(path: Path) -> str:
    """What stands there, and nothing stands beside."""
    assert list(path.parent.iterdir()) == [path]
    return (path / OURS).read_text()


@pytest.mark.parametrize("at_once", [True, False], ids=["exchanged", "one after the other"])
def test_a_directory_is_replaced_whole(tables: Path, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not at_once:
        monkeypatch.setattr(files, "_swap", lambda *_: False)

    with replacing(place(tables)) as path:
        write_tables(path, "new")

    assert kept(tables) == "new"


def test_what_fails_between_the_two_renames_puts_the_former_back(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_swap", lambda *_: False)
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if self.parent != tables.parent and self.name != FORMER:
            raise OSError(errno.ENOTEMPTY if target.exists() else errno.EIO, "no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(BadUse, match="cannot write"), replacing(place(tables)) as path:
        write_tables(path, "new")

    assert kept(tables) == "old"


@pytest.mark.parametrize("at_once", [True, False], ids=["exchanged", "one after the other"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_of_replacing_is_answered_afterwards(
    tables: Path, at_once: bool, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[int] = []
    swap = files._swap

    def interrupted(one: Path, other: Path) -> bool:
        os.kill(os.getpid(), number)
        assert came == []
        return at_once and swap(one, other)

    monkeypatch.setattr(files, "_swap", interrupted)
    former = signal.signal(number, lambda one, _: came.append(one))
    try:
        with replacing(place(tables)) as path:
            write_tables(path, "new")
    finally:
        signal.signal(number, former)

    assert came == [number]
    assert kept(tables) == "new"


@pytest.mark.parametrize("at_once", [True, False], ids=["exchanged", "one after the other"])
def test_what_somebody_put_there_meanwhile_is_kept(
    tables: Path, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = files._swap

    def late(one: Path, other: Path) -> bool:
        (tables / "thesis.txt").write_text("mine")
        return at_once and swap(one, other)

    monkeypatch.setattr(files, "_swap", late)
    with pytest.raises(BadUse, match="holds more than tables"), replacing(place(tables)) as path:
        write_tables(path, "new")

    assert (tables / "thesis.txt").read_text() == "mine"
    assert kept(tables) == "old"


def test_of_two_at_once_the_later_one_stays(tables: Path) -> None:
    with replacing(place(tables)) as first:
        write_tables(first, "first")
        with replacing(place(tables)) as second:
            write_tables(second, "second")

    assert kept(tables) == "first"


def test_a_path_is_from_the_root_before_anything_moves(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tables)

    with replacing(place_of("../run.parquet", ".parquet", is_ours=holds_ours)) as path:
        write_tables(path, "new")

    assert kept(tables) == "new"


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_only_its_owner_reads_what_is_private(tmp_path: Path, umask: int) -> None:
    former = os.umask(umask)
    try:
        for name, private in (("secret.json", True), ("metrics.prom", False)):
            with replacing(place_of(str(tmp_path / name), ".x", is_private=private)) as path:
                path.write_text("")
        with replacing(place(tmp_path / "run.parquet")) as path:
            write_tables(path, "")
    finally:
        os.umask(former)

    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.rglob("*")}
    assert modes == {"secret.json": 0o600, "metrics.prom": 0o666 & ~umask, "run.parquet": 0o700, OURS: 0o600}


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "tuesday.html").write_text("old")
    (tmp_path / "latest.html").symlink_to("tuesday.html")

    with replacing(place_of(str(tmp_path / "latest.html"), ".html")) as path:
        path.write_text("new")

    assert (tmp_path / "latest.html").is_symlink()
    assert (tmp_path / "tuesday.html").read_text() == "new"


@pytest.fixture
def open_pipe() -> Iterator[int]:
    """An end of a pipe that has no name, as /dev/stdout may be."""
    ends = os.pipe()
    yield ends[1]
    for one in ends:
        os.close(one)


@pytest.mark.parametrize("what", ["named pipe", "device", "open pipe"])
def test_what_cannot_be_replaced_is_refused(tmp_path: Path, what: str, open_pipe: int) -> None:
    path = tmp_path / "x.json"
    if what == "named pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/null" if what == "device" else f"/proc/self/fd/{open_pipe}")

    with pytest.raises(BadUse, match="device, a pipe or a socket"):
        place_of(str(path), ".json")

    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "make room"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EACCES, "that you may write"),
        (errno.ENOTDIR, "make the directory"),
        (errno.ENOENT, "make the directory"),
        (errno.EIO, "name another file"),
    ],
)
def test_what_the_system_refuses_is_said_with_what_to_do_about_it(tmp_path: Path, code: int, advice: str) -> None:
    with pytest.raises(BadUse) as refused, replacing(place_of(str(tmp_path / "x.json"), ".json")):
        raise OSError(code, os.strerror(code))

    assert f"{os.strerror(code)}; " in str(refused.value) and advice in str(refused.value)
    assert ("make room" in str(refused.value)) == (code == errno.ENOSPC)
    assert list(tmp_path.iterdir()) == []
