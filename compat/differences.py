"""What moved between what is written down and what the wheels say, in lines for a person."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from compat.releases import Release
from sglang_probe.catalogue.bodies import Bodies
from sglang_probe.catalogue.formulas import FORMULAS
from sglang_probe.catalogue.releases import expanded, order, phrase
from sglang_probe.catalogue.targets import TARGETS

Known = Mapping[str, Mapping[str, str]]
"""Per release, per target, the fingerprint."""


def differences(written: Bodies, releases: Sequence[Release]) -> Iterator[str]:
    """Yield a line, or a few that belong together, for each difference; none where all is as it is written."""
    known = known_by_release(written)
    found = {release.version: release for release in releases}
    yield from _rows(written)
    for version, release in found.items():
        if version in known:
            moved = list(_moved(known[version], release, written))
            yield from ([f"{version}: not as written", *moved] if moved else [])
        else:
            yield from _new(release, known, written)
    gone = [version for version in known if version not in found]
    if gone:
        yield f"written, and not on the index any more: {phrase(gone, written['releases'])}"


def problems(releases: Sequence[Release]) -> Iterator[str]:
    """Yield what is wrong whatever is written: a role without a home, a budget that nobody has read."""
    homeless: dict[str, list[str]] = {}
    unread: dict[str, list[str]] = {}
    for release in releases:
        for role in release.homeless:
            homeless.setdefault(role, []).append(release.version)
        for target in TARGETS:
            fingerprint = release.cells[target.name].fingerprint
            if target.role == "kv.profile" and fingerprint and fingerprint not in FORMULAS:
                unread.setdefault(f"{target.name} ({fingerprint})", []).append(release.version)
    names = [release.version for release in releases]
    yield from (f"no home for {role} in {phrase(some, names)}" for role, some in homeless.items())
    yield from (f"a budget that nobody has read: {body} in {phrase(some, names)}" for body, some in unread.items())


def page_difference(name: str, written: str, found: str) -> list[str]:
    """Return the page's lines that differ, as `diff -u` shows them."""
    lines = difflib.unified_diff(
        written.splitlines(), found.splitlines(), f"{name} as written", f"{name} as found", lineterm="", n=0
    )
    return list(lines)


def known_by_release(written: Bodies) -> dict[str, dict[str, str]]:
    """Return the written bodies by release."""
    known: dict[str, dict[str, str]] = {release: {} for release in written["releases"]}
    for target, bodies in written["bodies"].items():
        for fingerprint, some in bodies.items():
            for release in expanded(some, written["releases"]):
                known[release][target] = fingerprint
    return known


def _rows(written: Bodies) -> Iterator[str]:
    table = {target.name for target in TARGETS}
    yield from (
        f"a row of the table that is not written yet: {name}" for name in sorted(table - set(written["bodies"]))
    )
    yield from (f"written, and no row of the table any more: {name}" for name in sorted(set(written["bodies"]) - table))


def _new(release: Release, known: Known, written: Bodies) -> Iterator[str]:
    before = max((version for version in known if order(version) < order(release.version)), key=order, default=None)
    if before is None:
        yield f"{release.version}: new"
        return
    moved = list(_moved(known[before], release, written))
    yield f"{release.version}: new; {f'against {before}:' if moved else f'every row as in {before}'}"
    yield from moved


def _moved(before: Mapping[str, str], release: Release, written: Bodies) -> Iterator[str]:
    for target in TARGETS:
        if target.name in written["bodies"]:  # a new row is told once, not for every release
            was, cell = before.get(target.name), release.cells[target.name]
            if was != cell.fingerprint:
                yield f"  {target.role or 'observed'}  {target.name}: {_step(was, cell.fingerprint, cell.said)}"


def _step(was: str | None, now: str | None, state: str) -> str:
    if was is None:
        return f"absent -> {state} ({now})"
    if now is None:
        return f"there ({was}) -> {state}"
    return f"another body, {was} -> {now}"
