"""The table of targets on one SGLang: which homes it has, without importing it. The agent's answer, before a start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sglang_probe.catalogue.bodies import is_known
from sglang_probe.catalogue.errors import Unreadable
from sglang_probe.catalogue.modules import Module
from sglang_probe.catalogue.namespace import NOTHING, Files, Found
from sglang_probe.catalogue.sources import Source
from sglang_probe.catalogue.targets import TARGETS, Target
from sglang_probe.events.names import ROLES, Role

State = Literal["applied", "absent", "nested", "unknown body", "failed"]
HOOKED: Final[frozenset[State]] = frozenset({"applied", "unknown body"})
"""States of a row that the agent hooks: an unknown body is hooked as well, but nobody has read it."""


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one target on one SGLang."""

    target: Target
    state: State
    fingerprint: str | None
    reason: str | None


def resolve(source: Source, targets: Sequence[Target] = TARGETS) -> list[Row]:
    """Return a row for every target, in the order of the table."""
    files = Files(source)
    return [_row(files, target) for target in targets]


def homes(rows: Iterable[Row], role: Role) -> list[Row]:
    """Return the rows of a role that are hooked."""
    return [row for row in rows if row.target.role == role and row.state in HOOKED]


def homeless(rows: Sequence[Row]) -> list[Role]:
    """Return the memory roles of which this SGLang has no home."""
    return [role for role in ROLES if not homes(rows, role)]


def _row(files: Files, target: Target) -> Row:
    try:
        module = files.module(target.module)
        if module is None:
            return Row(target, "absent", None, "no such module")
        found = files.find(module, target.path)
        instead = _find_home(files, target.unless, module) if target.unless else NOTHING
    except Unreadable as error:
        return Row(target, "failed", None, str(error))
    except RecursionError:
        return Row(target, "failed", None, f"{target.module} is nested too deeply to be followed")
    return _judged(target, found, instead)


def _find_home(files: Files, home: str, near: Module) -> Found:
    """Find a path of the module at hand, or `module:path` of another."""
    name, _, path = home.rpartition(":")
    module = files.module(name) if name else near
    return files.find(module, path) if module else NOTHING


def _judged(target: Target, found: Found, instead: Found) -> Row:
    if found.kind == "nothing":
        return Row(target, "absent", None, None)
    if instead.kind != "nothing":
        return Row(target, "nested", found.fingerprint, f"{target.unless} is hooked instead")
    if found.kind == "other":
        return Row(target, "failed", None, found.reason)
    known = found.fingerprint is not None and is_known(target, found.fingerprint)
    return Row(target, "applied" if known else "unknown body", found.fingerprint, found.reason)
