"""Figures and names as a person reads them: units, unknowns, counts.

Standard library only: the command line uses it before it knows whether an extra is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import floor, log10
from typing import Final

GIB: Final = 1 << 30
UNKNOWN: Final = "-"
"""Printed for None; the reason stands in a note."""

LEAST_OF_SIX: Final = 0.0000005
"""Below it six decimals are all zero."""
TINY: Final = 1e-12
"""Below it no decimals are read any more: 1e-15."""
_DECIMALS: Final[ContextVar[int]] = ContextVar("decimals of a GiB", default=3)


@contextmanager
def decimals(count: int) -> Iterator[None]:
    """Print GiB with so many decimals inside: two for what was read from a log that has no more."""
    token = _DECIMALS.set(count)
    try:
        yield
    finally:
        _DECIMALS.reset(token)


def gib(count: int | None, precision: int | None = None) -> str:
    """Return bytes as GiB with three decimals (see `decimals`), without the unit; a zero has no sign.

    `precision`: how far off they may be, in bytes; then with as many decimals as that bears: two where a log printed
    two, also after a few sums of such figures.
    """
    if count is None:
        return UNKNOWN
    places = _DECIMALS.get()
    if precision and precision * 1000 > GIB:
        places = 2 if precision * 20 <= GIB else 1
    text = f"{count / GIB:.{places}f}"
    return text.lstrip("-") if float(text) == 0 else text


def seconds(duration: float | None) -> str:
    """Return seconds without the unit, in five columns: three decimals under ten seconds, fewer above."""
    if duration is None:
        return UNKNOWN
    places = next((d for d, limit in ((3, 9.9995), (2, 99.995), (1, 999.95)) if abs(duration) < limit), 0)
    return f"{duration:.{places}f}"


def fraction(value: float | None) -> str:
    """Return a fraction with three decimals, or as many as it has, up to six; a small one with as many as show it."""
    if value is None:
        return UNKNOWN
    if value and abs(value) < LEAST_OF_SIX:
        return f"{value:.3g}" if abs(value) < TINY else f"{value:.{2 - floor(log10(abs(value)))}f}".rstrip("0")
    whole, _, part = f"{value:.6f}".partition(".")
    return f"{whole}.{part.rstrip('0').ljust(3, '0')}"


def number(value: int | None) -> str:
    """Return a count with thousands marked."""
    return UNKNOWN if value is None else f"{value:,}"


def listed(names: Sequence[object], most: int) -> str:
    """Return the first `most` names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(map(str, names[:most]))}{more}"


def exception_type(name: str | None) -> str:
    """Return the type of an exception as a person writes it."""
    return (name or "exception of unknown type").removeprefix("builtins.")


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return "1 file" or "2 files"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def added(*counts: int) -> str:
    """Return the sum of bytes as it comes out of the figures that `gib` prints: -20.603 + 0.020 is -20.583."""
    return gib(round(sum(float(gib(count)) for count in counts) * GIB))


def shares(parts: Sequence[int], start: int, end: int) -> list[str]:
    """Return parts of bytes as GiB whose figures add up: those of `start` less those of `parts` are those of `end`.

    `start` - the sum of `parts` is `end` but for what is not known; the last decimal of a part may be off by one.
    Worked example: 139.797 - 0.512 - 0.092 - 0.883 - 0.033 + 0.002 is 138.279, and 138.280 is left: 0.882 is printed.
    """
    per_gib = 10 ** _DECIMALS.get()
    cut = [count * per_gib // GIB for count in parts]
    rest = last_places(start) - last_places(end) - sum(cut)
    by_remainder = sorted(range(len(parts)), key=lambda place: -(parts[place] * per_gib % GIB))
    for place in by_remainder[: max(rest, 0)]:
        cut[place] += 1
    return [of_last_places(one) for one in cut]


def last_places(count: float) -> int:
    """Return bytes as units of the last decimal that `gib` prints, rounded as it rounds: thousandths of a GiB."""
    places = _DECIMALS.get()
    return round(float(f"{count / GIB:.{places}f}") * 10.0**places)


def of_last_places(units: int) -> str:
    """Return such units as `gib` prints them: 1234 is `1.234`."""
    places = _DECIMALS.get()
    return f"{units / 10**places:.{places}f}"
