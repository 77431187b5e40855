"""Judges of SGLang itself: which one an import would take, and whether the probe's targets have a home in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sglang_probe.catalogue.checkout import checkout
from sglang_probe.catalogue.errors import SourceError
from sglang_probe.catalogue.resolve import Row, homeless, homes, resolve
from sglang_probe.catalogue.sources import Source, from_tree
from sglang_probe.cli.checks.model import Check, Facts
from sglang_probe.events.names import ROLES
from sglang_probe.figures import counted, listed
from sglang_probe.report.plain import printable

GIT_TIMEOUT_S = 3


def judge_sglang(facts: Facts) -> list[Check]:
    """Return what is found, what shadows it, and what its targets are."""
    found = facts["sglang"]
    chosen = found["chosen"] if found else None
    if facts["interpreter"]["flags"]["no_site"] and chosen is None:
        return [Check("sglang", "unknown", "not looked for: -S hides what is installed")]
    if found is None:
        return [Check("sglang", "unknown", "not looked for: that Python is too old to run it")]
    if chosen is None or (not chosen["places"] and chosen["error"]):
        return [_absent(chosen, found)]
    package = next((place for place in chosen["places"] if Path(place, "srt").is_dir()), None)
    shadows = _shadow(found)
    if package is None:
        where = ", ".join(chosen["places"]) or chosen["file"]
        return shadows or [
            Check("sglang", "error", f"what an import takes, {where}, is no SGLang: it has no srt", _name())
        ]
    try:
        source = from_tree(Path(package))
    except SourceError as error:
        return [*shadows, Check("sglang", "error", printable(error), _name())]
    return [_found(found, source), *shadows, *_several(found, package), *_targets(resolve(source))]


def _name() -> str:
    return "name the Python that has it: sglang-probe doctor -- /path/to/python"


def _absent(chosen: Facts | None, found: Facts) -> Check:
    if chosen is not None:
        return Check("sglang", "error", f"cannot be looked up: {printable(chosen['error'])}", _name())
    listed_as = [one["version"] for one in found["installed"]]
    left = f"; of {', '.join(listed_as)} only the metadata is there" if listed_as else ""
    return Check("sglang", "error", f"none in that Python{left}: nothing would be recorded", _name())


def _found(found: Facts, source: Source) -> Check:
    beside = str(Path(source.path).parent)
    mine = [one for one in found["installed"] if one["at"] == beside or one["editable"]]
    version = source.version or (mine[0]["version"] if mine else None)
    editable = any(one["editable"] for one in mine) and f"{os.sep}site-packages{os.sep}" not in source.path
    commit, dirty = checkout(source.path, GIT_TIMEOUT_S)
    kind = "editable, " if editable else ""
    at = f" at commit {commit[:12]}{' with local changes' if dirty else ''}" if commit else ""
    details = {"version": version, "path": source.path, "editable": editable, "commit": commit, "dirty": dirty}
    return Check("sglang", "ok", f"{version or 'version unknown'}{at}, {kind}{source.path}", None, details)


def _shadow(found: Facts) -> list[Check]:
    """A directory `sglang` where the command starts stands before, or in the way of, the installed one."""
    chosen, elsewhere = found["chosen"], found["elsewhere"]
    if elsewhere is None or not elsewhere["places"] or chosen["places"] == elsewhere["places"]:
        return []
    here, other = ", ".join(chosen["places"]), ", ".join(elsewhere["places"])
    is_sglang = any(Path(place, "srt").is_dir() for place in chosen["places"])
    says = f"{here} shadows the installed one, {other}"
    do = "start SGLang from another directory"
    return [Check("sglang_shadow", "warning" if is_sglang else "error", says, do, {"taken": here, "hidden": other})]


def _several(found: Facts, package: str) -> list[Check]:
    others = [copy for copy in found["copies"] if copy != package]
    if not others:
        return []
    says = f"{counted(len(others), 'other sglang', 'other sglangs')} on sys.path, hidden: {listed(others, 3)}"
    return [
        Check("sglang_copies", "warning", says, "uninstall what is not wanted", {"taken": package, "hidden": others})
    ]


def _targets(rows: Sequence[Row]) -> list[Check]:
    """A role without a home is a hole in every report: of memory roles that is an error."""
    lost = homeless(rows)
    states = {state: sum(row.state == state for row in rows) for state in sorted({row.state for row in rows})}
    details: dict[str, Any] = {"homeless": lost, "states": states}
    total = len(ROLES)
    checks = []
    if lost:
        says = f"{total - len(lost)} of {total} memory roles have a home; none: {', '.join(lost)}"
        checks.append(
            Check("targets", "error", says, "see sglang-probe targets; a newer sglang-probe may know them", details)
        )
    else:
        checks.append(Check("targets", "ok", f"all {total} memory roles have a home", None, details))
    unread = [row for row in homes(rows, "kv.profile") if row.state == "unknown body"]
    if unread:
        names = [row.target.path for row in unread]
        says = f"kv.profile has a body that nobody has read, in {', '.join(names)}: its terms are recorded, unverified"
        prints = {row.target.name: row.fingerprint for row in unread}
        checks.append(
            Check("kv_formula", "warning", says, "a newer sglang-probe may know it", {"fingerprints": prints})
        )
    return checks
