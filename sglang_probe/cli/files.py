"""Writing files that a user names: whole or not at all, for the user's eyes only, and over nothing that is not ours."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.paths import is_directory

IsOurs = Callable[[Path], bool]
"""Says whether a directory holds what this program wrote there, and nothing else; OSError where it cannot look."""
ROOM: Final = ".sglang-probe-"
"""What the name of a directory begins with in which a file is made: it lies beside where the file comes to stand."""
FORMER: Final = "former"
NOT_OURS: Final = "is a directory that holds more than tables; name another, or remove it"
_MAKE_ROOM: Final = "make room, or name another file"
_NO_RIGHT: Final = "name a file in a directory that you may write"
_NO_PLACE: Final = "make the directory, or name another"
_ADVICE: Final = {
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or name a file elsewhere",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: _NO_RIGHT,
    errno.ENOENT: _NO_PLACE,
    errno.ENOTDIR: _NO_PLACE,
    errno.ENAMETOOLONG: "name a shorter one",
}


class Place(NamedTuple):
    """Where a report comes to stand; made by `place_of`."""

    name: str
    """As the user gave it."""
    path: Path
    """From the root and behind all links: it stays the same when the current directory is replaced."""
    ending: str
    is_ours: IsOurs | None = None
    """Of a directory; None: a file is to be written."""
    is_private: bool = True


def place_of(name: str, ending: str, *, is_ours: IsOurs | None = None, is_private: bool = True) -> Place:
    """Check, before anything long is done, that a file, or a directory of tables, may come to stand there.

    A link is followed: what it leads to is replaced, and the link stays.

    Raises:
        BadUse: it may not.
    """
    place = Place(name, _behind_links(name), ending, is_ours, is_private)
    stands = is_directory("-o", name)
    there = Path(name)
    if not is_directory("-o", os.fspath(place.path.parent)):
        parent = os.fspath(place.path.parent if there.is_symlink() else there.parent)
        raise BadUse(f"-o {name!r} lies in {parent!r}, no directory; make it, or name another")
    if is_ours is None and (stands or name.endswith("/")):
        raise BadUse(f"-o {name!r} is a directory; name a file")
    if is_ours is None and there.exists() and not there.is_file():
        raise BadUse(f"-o {name!r} is a device, a pipe or a socket, which cannot be replaced; name a file")
    if is_ours is not None and there.exists() and not stands:
        raise BadUse(f"-o {name!r} is a file, and a directory of tables is to be written; name another, or remove it")
    if stands:
        _check_ours(place, place.path)
    return place


@contextmanager
def replacing(place: Place) -> Iterator[Path]:
    """Yield a path to write to, in a directory of its own; what is written takes its place when all went well, and is
    gone otherwise.

    Raises:
        BadUse: the file cannot be written, or a directory stands there by now that is not ours to replace.
    """
    room: Path | None = None
    try:
        with _told(place.name), _undisturbed():
            room = Path(tempfile.mkdtemp(prefix=ROOM, dir=place.path.parent))
        fresh = room / f"report{place.ending}"  # a plain name: DuckDB takes no ? in one, and cannot lengthen a long one
        with _told(place.name):
            yield fresh
            if place.is_private:
                _close(fresh)
            with _undisturbed():
                _put(fresh, place, room / FORMER)
    finally:
        with _undisturbed():
            if room is not None:
                shutil.rmtree(room, ignore_errors=True)


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Say what the system refuses, and what to do about it."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "name another file")
        raise BadUse(f"cannot write {name}: {error.strerror or error}; {advice}") from error


def _behind_links(name: str) -> Path:
    try:
        return Path(os.path.realpath(name))
    except OSError as error:
        raise BadUse(f"-o {name!r} is relative, and the current directory is gone; cd to another") from error


def _close(fresh: Path) -> None:
    """Let nobody else read it: a report holds arguments, variables and paths, as the events do that it is made of."""
    inside = list(fresh.iterdir()) if fresh.is_dir() else []
    for path in (*inside, fresh):
        with suppress(PermissionError):  # a file system without owners
            path.chmod(0o700 if path.is_dir() else 0o600)


def _put(fresh: Path, place: Place, former: Path) -> None:
    """Put what was written where it belongs. What stood there is in `former`, or back where it stood after an error."""
    if place.is_ours is None:
        fresh.replace(place.path)
        return
    try:
        fresh.rename(place.path)  # nothing stands there, or an empty directory
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        _check_ours(place, place.path)
        if _swap(fresh, place.path):
            fresh.rename(former)
        else:
            place.path.rename(former)
            _put_or_back(fresh, place.path, former)
        _check_swapped(place, former)


def _put_or_back(fresh: Path, path: Path, former: Path) -> None:
    try:
        fresh.rename(path)
    except OSError:
        with suppress(OSError):  # of two at once the other one's is there now, as new as ours
            former.rename(path)
        raise


def _check_swapped(place: Place, former: Path) -> None:
    """Put back what was put there, between the look at it and the exchange, by somebody else."""
    try:
        _check_ours(place, former)
    except BadUse:
        place.path.rename(former.with_name("refused"))
        former.rename(place.path)
        raise


def _swap(one: Path, other: Path) -> bool:
    """Exchange two directories at once, so that at no moment none stands there; False where the system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # no glibc of 2018 or later
        return False
    at_cwd, exchange = -100, 2
    done: int = rename(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange)
    return done == 0


def _check_ours(place: Place, path: Path) -> None:
    """Check that a directory holds tables of ours and nothing else; an empty one holds nothing that could be lost."""
    try:
        ours = place.is_ours is not None and (not any(path.iterdir()) or place.is_ours(path))
    except OSError as error:
        raise BadUse(f"-o {place.name!r} cannot be looked at: {error.strerror or error}; name another") from error
    if not ours:
        raise BadUse(f"-o {place.name!r} {NOT_OURS}")


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold back the signals that end a command until the end of the block, which takes no time worth naming."""
    came: list[int] = []
    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    known = {one: signal.getsignal(one) for one in wanted}
    held = [one for one, handler in known.items() if callable(handler)]
    if threading.current_thread() is not threading.main_thread():
        held = []  # it runs no handlers, and may set none
    for one in held:
        signal.signal(one, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for one in held:
            signal.signal(one, known[one])
        for number in came[:1]:
            signal.raise_signal(number)
