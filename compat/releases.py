"""Every release of the range: which there are, its wheel, and what `sglang-probe targets` says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sglang_probe.catalogue.errors import SourceError
from sglang_probe.catalogue.releases import order
from sglang_probe.catalogue.wheels import index_versions, wheel_of

ROOT: Final = Path(__file__).resolve().parents[1]
FIRST: Final = "0.4.3"
"""The oldest release that the probe promises to work with; the newest is whatever the index has."""
DOWNLOADS: Final = 4
"""Wheels that are downloaded at once."""


@dataclass(frozen=True)
class Cell:
    """One target in one release."""

    state: str
    fingerprint: str | None
    reason: str | None

    @property
    def hooked(self) -> bool:
        """Whether the agent puts a hook there; an unknown body is hooked too."""
        return self.state in {"applied", "unknown body"}

    @property
    def said(self) -> str:
        """The state in a report: whether a body is a known one is what a report is about, and not part of it."""
        return "applied" if self.hooked else self.state


ABSENT: Final = Cell("absent", None, None)


@dataclass(frozen=True)
class Release:
    """What `targets` says of one release."""

    version: str
    cells: dict[str, Cell]
    """By the target's name, in the order of the table."""
    homeless: list[str]
    """The memory roles that have no home."""


def versions() -> list[str]:
    """Return the releases from FIRST on that the index has now, oldest first. Raises SourceError."""
    found = sorted((version for version in index_versions() if order(version) >= order(FIRST)), key=order)
    if not found:
        raise SourceError(f"pip lists no release of SGLang from {FIRST} on; look at its index settings")
    return found


def read_all(names: Iterable[str], say: Callable[[str], None]) -> list[Release]:
    """Return every release's answer, downloading the wheels that are missing. Raises SourceError."""
    with ThreadPoolExecutor(DOWNLOADS) as pool:
        wheels = list(pool.map(lambda version: wheel_of(version, say), names))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(_read, wheels))


def _read(wheel: Path) -> Release:
    # The command as a user has it; without PYTHONPATH, or the doorbell would ring in it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "sglang_probe", "targets", "--sglang", str(wheel), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in {0, 1}:
        raise SourceError(f"`targets` ended with {done.returncode} on {wheel.name}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    cells = {row["target"]: Cell(row["state"], row["fingerprint"], row["reason"]) for row in found["targets"]}
    homeless = [role for role, said in found["roles"].items() if said["state"] == "no home"]
    return Release(found["sglang"]["version"], cells, homeless)
