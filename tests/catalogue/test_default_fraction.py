"""The default fractions of old releases: the table says what the releases' own sources say."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import pytest

from sglang_probe.catalogue.default_fraction import ERAS, defaults, releases_with
from sglang_probe.catalogue.releases import order

# Read when pytest collects: the session's own fixture takes every SGLANG_PROBE_* away before the first test.
WHEELS = Path(
    os.environ.get("SGLANG_PROBE_WHEELS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang-probe" / "wheels"
)
FIRST_UNKNOWN = "0.5.2"
"""The fraction hung on the card long before: later releases need no look."""
STEP = re.compile(r"(?:if \w+(?:\.\w+)* >= (\d+)|else):\n\s+self\.mem_fraction_static = (0\.\d+)\n")


def kept_releases() -> dict[str, Path]:
    """Return the wheels of the releases that may have the table, by version, oldest first."""
    found = {path.name.split("-")[1]: path for path in WHEELS.glob("sglang-*.whl")}
    return {name: found[name] for name in sorted(found, key=order) if order(name) < order(FIRST_UNKNOWN)}


def table_in(wheel: Path) -> tuple[tuple[int, float], ...]:
    """Return (from this tp on, fraction) as a release's `server_args.py` has them; empty where it has no such table."""
    with zipfile.ZipFile(wheel) as packed:
        source = packed.read("sglang/srt/server_args.py").decode()
    steps = [(int(least or 0), float(value)) for least, value in STEP.findall(source)]
    ends = [at for at, (least, _) in enumerate(steps) if not least]
    return tuple(steps[: ends[0] + 1]) if ends and ends[0] else ()


def test_every_release_that_is_at_hand_has_the_table_of_its_era_or_none() -> None:
    kept = kept_releases()
    if not kept:
        pytest.skip(f"no wheel of an old SGLang in {WHEELS}: SGLANG_PROBE_WHEELS names another directory")

    expected = {
        name: next((era.by_tp for era in ERAS if order(era.first) <= order(name) <= order(era.last)), ())
        for name in kept
    }
    assert expected == {name: table_in(wheel) for name, wheel in kept.items()}


def test_the_eras_are_in_order_and_their_fractions_fall_with_tp() -> None:
    borders = [border for era in ERAS for border in (era.first, era.last)]
    assert sorted(borders, key=order) == borders
    for era in ERAS:
        fractions = [era.fraction(tp) for tp in (1, 2, 4, 8, 16)]
        assert sorted(fractions, reverse=True) == fractions
    assert (0.84, 0.83, 0.82, 0.81) == defaults(8)


def test_a_fraction_names_its_releases() -> None:
    assert "0.2.7 to 0.3.5.post2" == releases_with(8, 0.83)
    assert "0.2.7 to 0.4.7" == releases_with(4, 0.85)
    assert releases_with(8, 0.5) is None
