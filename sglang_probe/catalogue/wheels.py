"""Wheels of SGLang: where they are kept, and how a missing one gets there.

A wheel is only read, never installed, so it need not fit this machine: from 0.5.11 on SGLang has one per CPython
version and platform, and each of them holds the same Python files. pip's own settings say which index is asked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeAlias

from sglang_probe.catalogue.errors import SourceError

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.10")
"""The CPythons that a wheel may be for, the likeliest first."""
_PLATFORMS: Final = ("manylinux2014_x86_64", *(f"manylinux_2_{minor}_x86_64" for minor in range(17, 51)))
_VERSION: Final = re.compile(r"v?(\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?(?:\+[a-z0-9.]+)?)")
Say: TypeAlias = Callable[[str], None]
"""Takes one line for a person who waits."""


def silent(line: str) -> None:
    """Say nothing."""


def version_in(text: str) -> str | None:
    """Return the version that `text` is as a whole, or None where it is something else, such as a path.

    >>> version_in("v0.5.3.post1"), version_in("./0.5.9")
    ('0.5.3.post1', None)
    """
    found = _VERSION.fullmatch(text)
    return found[1] if found else None


def wheels_directory() -> Path:
    """Return where wheels are kept: `SGLANG_PROBE_WHEELS`, else below the user's cache directory."""
    if given := os.environ.get("SGLANG_PROBE_WHEELS"):
        return Path(given).absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache).absolute() / "sglang-probe" / "wheels"


def kept_wheel(version: str) -> Path | None:
    """Return the wheel of `version` that is kept already, or None."""
    try:
        return min(wheels_directory().glob(f"sglang-{version}-*.whl"), default=None)
    except OSError as error:
        raise SourceError(_closed(error)) from error


def wheel_of(version: str, say: Say = silent) -> Path:
    """Return the wheel of `version`, downloading it where it is missing; `say` hears of that.

    Raises:
        SourceError: pip finds none, there is no pip, or the directory cannot be written.
    """
    wheel = kept_wheel(version)
    if wheel is not None:
        return wheel
    directory = wheels_directory()
    say(f"downloading the wheel of SGLang {version} (up to 40 MB) to {directory}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=directory) as part:
            (found,) = _downloaded(version, Path(part))
            return found.replace(directory / found.name)
    except OSError as error:
        raise SourceError(_closed(error)) from error


def index_versions() -> list[str]:
    """Return every version of SGLang on the index, pre-releases left out, in no order.

    Raises:
        SourceError: the index cannot be asked, or it has none.
    """
    found: set[str] = set()
    for python in PYTHONS:
        done = _pip("index", "versions", "sglang", *_for(python))
        listed = re.search(r"^Available versions:(.*)$", done.stdout, re.MULTILINE)
        if listed:
            found.update(name.strip() for name in listed[1].split(",") if name.strip())
    if not found:
        raise SourceError(f"pip lists no version of SGLang: {_last_error(done.stderr)}; look at its index settings")
    return list(found)


def _downloaded(version: str, directory: Path) -> list[Path]:
    tried = ""
    for python in PYTHONS:
        done = _pip("download", "--no-deps", "--dest", str(directory), *_for(python), f"sglang=={version}")
        if done.returncode == 0:
            return list(directory.glob("*.whl"))
        tried = done.stderr
        if "Retrying (" in tried:  # no answer from the index: another Python will get none either
            break
    raise SourceError(
        f"no wheel of SGLang {version!r} could be downloaded: {_last_error(tried)}; check the number and pip's index,"
        " or name a wheel or a source tree"
    )


def _for(python: str) -> Iterable[str]:
    platforms = (word for platform in _PLATFORMS for word in ("--platform", platform))
    return ("--only-binary", ":all:", "--implementation", "cp", "--python-version", python, *platforms)


def _pip(*words: str) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH may be what injects the probe, or shadow pip; the rest of the environment holds pip's settings.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    if "No module named pip" in done.stderr:
        raise SourceError(
            f"{sys.executable} has no pip to download with; run {sys.executable} -m ensurepip, or name a wheel"
        )
    return done


def _last_error(stderr: str) -> str:
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return errors[-1].removeprefix("ERROR: ") if errors else "pip gave no reason"


def _closed(error: OSError) -> str:
    return (
        f"the wheels' directory {str(wheels_directory())!r} cannot be used: {error.strerror};"
        " set SGLANG_PROBE_WHEELS to another"
    )
