"""When an entry was written, on the clock that it names: SGLang's own, or its carrier's. The two are never compared."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from sglang_probe.collect.logs.model import Entry

DAY_S: Final = 86400.0
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (SGLang's times name no zone)


class Moment(NamedTuple):
    """A time in seconds on one clock."""

    clock: str
    """`stamp` (SGLang's local time), `day` (that of the oldest releases, without a date), `ts` (the carrier's, UTC)."""
    seconds: float


def moment_of(entry: Entry) -> Moment | None:
    """Return when an entry was written, by SGLang's own clock where it names one; None where nothing does."""
    if entry.stamp is not None:
        seconds = _seconds(entry.stamp)
        if seconds is not None:
            return Moment("stamp" if len(entry.stamp) > 12 else "day", seconds)
    if entry.ts is not None:
        seconds = _seconds(entry.ts.removesuffix("Z"))
        if seconds is not None:
            return Moment("ts", seconds)
    return None


@lru_cache(maxsize=64)
def _seconds(text: str) -> float | None:
    """Return the seconds since 1970, or since midnight where there is no date."""
    whole, _, fraction = text.replace("T", " ", 1).partition(".")
    try:
        moment = datetime.fromisoformat(whole if len(whole) > 8 else f"1970-01-01 {whole}")
    except ValueError:
        return None
    digits = fraction[:6]
    return (moment.replace(tzinfo=None) - _EPOCH).total_seconds() + (float(f"0.{digits}") if digits.isdigit() else 0.0)
