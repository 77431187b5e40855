"""What is generated from the releases: the matrix of docs/compatibility.md, and the data of known bodies."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby
from typing import Final

from compat.releases import Release
from sglang_probe.catalogue.bodies import Bodies
from sglang_probe.catalogue.formulas import FORMULAS, WHAT
from sglang_probe.catalogue.releases import folded, phrase
from sglang_probe.catalogue.targets import TARGETS, Target
from sglang_probe.events.names import ROLES

BEGIN: Final = "<!-- made by compat/compat.py from here on -->"
END: Final = "<!-- made by compat/compat.py up to here -->"
OBSERVED: Final = "observed only (terms of the budget, and what a process is)"
_PREFIX: Final = "sglang.srt."


class PageError(Exception):
    """The page has no place for what is generated."""


def bodies_of(releases: Sequence[Release]) -> Bodies:
    """Return every body that every target has had, and in which releases, oldest first."""
    names = [release.version for release in releases]
    bodies: dict[str, dict[str, str]] = {}
    for target in sorted({target.name for target in TARGETS}):
        having: dict[str, list[str]] = {}
        for release in releases:
            fingerprint = release.cells[target].fingerprint
            if fingerprint:
                having.setdefault(fingerprint, []).append(release.version)
        bodies[target] = {fingerprint: folded(some, names) for fingerprint, some in having.items()}
    return {"releases": names, "bodies": bodies}


def bodies_text(bodies: Bodies) -> str:
    """Return the data as its file has it: a line for each body, so that a change reads well."""
    return json.dumps(bodies, indent=1) + "\n"


def matrix_text(releases: Sequence[Release]) -> str:
    """Return the generated part of the page, markers included."""
    parts = [_roles(releases), _budget(releases), *_homes(releases), _failed(releases)]
    return "\n\n".join([BEGIN, *filter(None, parts), END]) + "\n"


def replaced(page: str, generated: str) -> str:
    """Return the page with its generated part replaced. Raises PageError where the markers are not there."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END + "\n")
    if not begin or not end:
        raise PageError(f"docs/compatibility.md lacks the line {BEGIN!r} or {END!r}; put them where the matrix belongs")
    return before + generated + after


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _roles(releases: Sequence[Release]) -> str:
    def hooked(release: Release) -> list[int]:
        rows = (target for target in TARGETS if target.role)
        return [position for position, target in enumerate(rows) if release.cells[target.name].hooked]

    def count(release: Release, role: str) -> str:
        homes = sum(release.cells[target.name].hooked for target in TARGETS if target.role == role)
        return "**no home**" if role in release.homeless else str(homes)

    rows = []
    for _, run in groupby(releases, hooked):
        alike = list(run)
        rows.append([", ".join(one.version for one in alike), *(count(alike[0], role) for role in ROLES)])
    explained = (
        f"All {len(releases)} releases from {releases[0].version} to {releases[-1].version}. A figure is the number of"
        " homes that are hooked; releases in one row have\nthe very same homes."
    )
    return f"## Roles and releases\n\n{explained}\n\n{_table(['releases', *ROLES], rows)}"


def _budget(releases: Sequence[Release]) -> str:
    rows = []
    for target in TARGETS:
        if target.role == "kv.profile":
            for fingerprint, some in _having(releases, target).items():
                formula = FORMULAS.get(fingerprint, "**unknown**")
                rows.append([_phrase(some, releases), f"`{target.path}`", f"`{fingerprint}`", formula])
    rows.sort(key=lambda row: _position(row[0], releases))
    used = {row[3] for row in rows}
    meanings = "\n".join(f"- {name}: `{meaning}`" for name, meaning in WHAT.items() if name in used)
    return f"## The KV budget\n\n{_table(['releases', 'home', 'body', 'formula'], rows)}\n\n{meanings}"


def _homes(releases: Sequence[Release]) -> Iterator[str]:
    yield "## Homes"
    for role in (*ROLES, None):
        rows = [_home(target, releases) for target in TARGETS if target.role == role]
        yield f"### {role or OBSERVED}\n\n{_table(['home', 'hooked in', 'nested in', 'bodies'], rows)}"


def _home(target: Target, releases: Sequence[Release]) -> list[str]:
    hooked = [one.version for one in releases if one.cells[target.name].hooked]
    nested = [one.version for one in releases if one.cells[target.name].state == "nested"]
    name = f"`{target.module.removeprefix(_PREFIX)}` `{target.path}`"
    where = [_phrase(some, releases) or "-" for some in (hooked, nested)]
    return [name, *where, str(len(_having(releases, target)))]


def _failed(releases: Sequence[Release]) -> str:
    lines = [
        f"- {release.version}: `{name}`: {cell.reason}"
        for release in releases
        for name, cell in release.cells.items()
        if cell.state == "failed"
    ]
    return "\n".join(["## Homes that cannot be hooked", "", *lines]) if lines else ""


def _having(releases: Sequence[Release], target: Target) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for release in releases:
        fingerprint = release.cells[target.name].fingerprint
        if fingerprint:
            found.setdefault(fingerprint, []).append(release.version)
    return found


def _phrase(some: Collection[str], releases: Sequence[Release]) -> str:
    return phrase(some, [release.version for release in releases])


def _position(text: str, releases: Sequence[Release]) -> int:
    return [release.version for release in releases].index(text.partition(" ")[0].rstrip(","))
