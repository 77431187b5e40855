"""Writing files that a user names: whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sglang_probe.cli.errors import BadUse
from sglang_probe.cli.paths import is_directory as is_a_directory

OURS: Final = ".parquet"
MARK: Final = "about.parquet"
"""A directory of tables that this program wrote holds that file and others of that ending; no other is replaced, and
a data set of somebody's, which may be Parquet files too, is none."""


@contextmanager
def replacing(name: str, *, is_directory: bool = False) -> Iterator[Path]:
    """Yield a path beside `name` to write to; it takes that name's place when all went well, and is gone otherwise.

    Raises:
        BadUse: the file cannot be written, or a directory stands there that is not ours to replace.
    """
    target = Path(name)
    check_place(name, is_directory=is_directory)
    try:
        room = Path(tempfile.mkdtemp(prefix=f".{target.name[:100]}.", dir=target.parent))
    except OSError as error:
        raise BadUse(f"cannot write {name}: {error.strerror}; name a file in a directory that you may write") from error
    try:
        fresh = room / target.name
        yield fresh
        if is_directory and target.is_dir():
            target.rename(room / "former")
        fresh.replace(target)
    except OSError as error:
        raise BadUse(f"cannot write {name}: {error.strerror or error}; make room, or name another file") from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def check_place(name: str, *, is_directory: bool = False) -> None:
    """Check, before anything long is done, that a file, or a directory of tables, may come to stand there.

    Raises:
        BadUse: it may not.
    """
    target = Path(name)
    stands = is_a_directory("-o", name)
    if not is_a_directory("-o", os.fspath(target.parent)):
        raise BadUse(f"-o {name!r} lies in {os.fspath(target.parent)!r}, no directory; make it, or name another")
    if not is_directory and stands:
        raise BadUse(f"-o {name!r} is a directory; name a file")
    if is_directory and target.exists() and not stands:
        raise BadUse(f"-o {name!r} is a file, and a directory of tables is to be written; name another, or remove it")
    if is_directory and stands and not _is_ours(name):
        raise BadUse(f"-o {name!r} is a directory that holds more than tables; name another, or remove it")


def _is_ours(name: str) -> bool:
    """Say whether a directory holds tables of ours and nothing else; an empty one holds nothing that could be lost."""
    try:
        found = list(Path(name).iterdir())
        alone = all(one.name.endswith(OURS) and one.is_file() and not one.is_symlink() for one in found)
    except OSError as error:
        raise BadUse(f"-o {name!r} cannot be looked at: {error.strerror}; name another") from error
    return not found or (alone and any(one.name == MARK for one in found))
