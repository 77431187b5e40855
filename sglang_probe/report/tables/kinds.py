"""The kinds of columns: what each is in Arrow, what in SQL, and how Python values become one.

A value that a kind cannot hold (a number beyond 64 bits) is NULL; text that is not Unicode is spelt out (`\\udcff`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from sglang_probe.collect.report import unicode_only
from sglang_probe.report.series import nanoseconds

_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_REFUSED: Final = (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError)
"""What Arrow raises for a value that does not fit its column."""


class Kind(NamedTuple):
    """One row of the table of kinds."""

    unit: str
    arrow: Any
    sql: str
    mend: Callable[[Any], Any]
    """Makes a value fit that Arrow refused; never called with None."""
    made: Callable[[list[Any]], Any] | None = None
    """What makes the array, where Arrow does not take the values as they are."""


def array_of(kind: Kind, values: Iterable[Any]) -> Any:
    """Return Python values as an Arrow array."""
    found = list(values)
    try:
        return pa.array(found, kind.arrow) if kind.made is None else kind.made(found)
    except _REFUSED:
        return pa.array([None if value is None else kind.mend(value) for value in found], kind.arrow)


def _times(stamps: list[str | None]) -> Any:
    return pc.cast(pa.array(stamps, pa.string()), _NS).cast(_TIME, safe=False)


def _local_times(stamps: list[str | None]) -> Any:
    return pa.array([None if stamp is None else _microseconds(stamp) for stamp in stamps], _LOCAL_TIME)


def _objects(values: list[Any]) -> Any:
    return pa.array(list(map(json_text, values)), pa.string())


def json_text(value: Any) -> str | None:
    """Return a value as JSON text that every reader takes; None for None."""
    if value is None:
        return None
    try:
        return msgspec.json.encode(value).decode()
    except _REFUSED:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return _HALF_PAIR.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def _microseconds(stamp: str | None) -> int | None:
    found = nanoseconds(stamp)
    return None if found is None else found // 1000


def _text(value: Any) -> str:
    return unicode_only(value if isinstance(value, str) else str(value))


def _words(value: Any) -> list[str]:
    return [_text(one) for one in value]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None


def _real(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_NS: Final = pa.timestamp("ns", "UTC")
_TIME: Final = pa.timestamp("us", "UTC")
_LOCAL_TIME: Final = pa.timestamp("us")
TEXT: Final = Kind("", pa.string(), "VARCHAR", _text)
WORD: Final = Kind("", pa.dictionary(pa.int32(), pa.string()), "VARCHAR", _text)
"""Text that repeats: every distinct one is stored once."""
WORDS: Final = Kind("", pa.list_(pa.string()), "VARCHAR[]", _words)
JSON: Final = Kind("", pa.string(), "JSON", json_text, _objects)
WRITTEN: Final = Kind("", pa.string(), "JSON", _text)
"""JSON that is text already."""
COUNT: Final = Kind("", pa.int64(), "BIGINT", _whole)
BYTES: Final = Kind("bytes", pa.int64(), "BIGINT", _whole)
NANOSECONDS: Final = Kind("nanoseconds", pa.int64(), "BIGINT", _whole)
SECONDS: Final = Kind("seconds", pa.float64(), "DOUBLE", _real)
REAL: Final = Kind("", pa.float64(), "DOUBLE", _real)
FLAG: Final = Kind("", pa.bool_(), "BOOLEAN", _flag)
TIME: Final = Kind("UTC", _TIME, "TIMESTAMP WITH TIME ZONE", _microseconds, _times)
LOCAL_TIME: Final = Kind("no zone", _LOCAL_TIME, "TIMESTAMP", _microseconds, _local_times)
