"""Releases of SGLang: their order, and many of them in few words."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

TO = ".."


def order(version: str) -> tuple[tuple[int, ...], int, int]:
    """Return a sorting key: numbers, then before or after the release they name.

    >>> sorted(["0.5.10", "0.5.9.post1", "0.5.9", "0.5.9rc1"], key=order)
    ['0.5.9rc1', '0.5.9', '0.5.9.post1', '0.5.10']
    """
    found = re.match(r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+)|\.(post|dev)(\d+))?", version)
    if not found:
        return (), 0, 0
    numbers = tuple(map(int, found[1].split(".")))
    stage = {"a": -3, "b": -2, "rc": -1, "dev": -4, "post": 1}.get(found[2] or found[4] or "", 0)
    return numbers, stage, int(found[3] or found[5] or 0)


def runs(some: Collection[str], releases: Sequence[str]) -> list[tuple[str, str]]:
    """Return the first and the last of each unbroken run of `some` among all `releases`, oldest first."""
    found: list[tuple[str, str]] = []
    before = None
    for release in releases:
        if release in some:
            first = found.pop()[0] if before in some and found else release
            found.append((first, release))
        before = release
    return found


def folded(some: Collection[str], releases: Sequence[str]) -> str:
    """Return `0.5.7..0.5.9, 0.5.11`."""
    return ", ".join(first if first == last else f"{first}{TO}{last}" for first, last in runs(some, releases))


def expanded(text: str, releases: Sequence[str]) -> list[str]:
    """Return the releases that `folded` named."""
    found: list[str] = []
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition(TO)
        found += releases[releases.index(first) : releases.index(last or first) + 1]
    return found


def phrase(some: Collection[str], releases: Sequence[str]) -> str:
    """Return `0.5.7 to 0.5.9, 0.5.11`, as text for a person."""
    return folded(some, releases).replace(TO, " to ")
