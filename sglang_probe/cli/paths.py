"""Questions about a path that the user gave: where the system refuses an answer, that is said in one line."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from sglang_probe.cli.errors import BadUse


def is_there(what: str, path: str) -> bool:
    """Say whether a file or directory of that name exists; `what` names the argument.

    Raises:
        BadUse: it cannot be looked at: the name is too long, or a directory on the way is closed to this user.
    """
    return _status(what, path) is not None


def is_directory(what: str, path: str) -> bool:
    """Say whether a path is a directory; False where there is nothing. Raises as `is_there`."""
    found = _status(what, path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def absolute(what: str, path: str) -> Path:
    """Return a path from the root, links as they are.

    Raises:
        BadUse: it is relative, and the current directory is gone.
    """
    try:
        return Path(path).absolute()
    except OSError as error:
        raise BadUse(f"{what} {path!r} is relative, and the current directory is gone; cd to another") from error


def _status(what: str, path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return None
        raise BadUse(f"{what} {path!r} cannot be looked at: {error.strerror}; name another") from error
