"""The private structlog pipeline: fields in, one line of JSON (or several parts of one object) out.

structlog's global configuration belongs to the host and is neither read nor changed: every part is passed explicitly.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Protocol

import structlog

from sglang_probe.events.envelope import WholeEvent
from sglang_probe.events.names import CUT_MARK, MAX_LINE_BYTES, MAX_VALUE_BYTES, SCHEMA_VERSION

ORDER: tuple[str, ...] = tuple(WholeEvent.__annotations__)

_FREE_TEXT = frozenset({"stacktrace"})  # has a limit of its own, applied where it is made


class Sink(Protocol):
    """Where lines go."""

    def write(self, line: bytes) -> object:
        """Write one line."""


class Pipeline:
    """Stamps, orders, cuts and renders events, and hands their lines to a sink."""

    def __init__(self, sink: Sink, identity: Callable[[], Mapping[str, Any]]) -> None:
        self._sink = sink
        self._identity = identity
        self.restart()

    def restart(self) -> None:
        """Begin a new sequence: at the start and in a forked child."""
        self._seq = itertools.count()
        self._logger = structlog.wrap_logger(
            _Lines(self._sink),
            processors=[self._stamp, _render],
            wrapper_class=structlog.BoundLogger,
            context_class=dict,
            cache_logger_on_first_use=False,
        ).bind()

    def emit(self, level: str, event: str, **fields: Any) -> None:
        """Write one event; missing fields of the envelope become null."""
        getattr(self._logger, level)(event, **fields)

    def _stamp(self, _: Any, level: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        now, mono = time.time_ns(), time.monotonic_ns()
        stamped = dict.fromkeys(ORDER)
        stamped.update(self._identity())
        stamped.update(fields)
        stamped.update(schema=SCHEMA_VERSION, ts=_rfc3339(now), mono_ns=mono, level=level, seq=next(self._seq))
        stamped["degraded"] = stamped["degraded"] or []
        stamped["attributes"] = stamped["attributes"] or {}
        return stamped


class _Lines:
    """The logger at the end of the chain: takes rendered lines."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def _take(self, lines: list[bytes]) -> None:
        for line in lines:
            self._sink.write(line)

    info = warning = error = _take


def _rfc3339(ns: int) -> str:
    seconds, nanoseconds = divmod(ns, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"


def _render(_: Any, __: str, fields: MutableMapping[str, Any]) -> tuple[tuple[list[bytes]], dict[str, Any]]:
    line = dumps(fields)
    if len(line) <= MAX_VALUE_BYTES:  # nothing in it can be too long
        return ([line],), {}
    cut = _cut(fields)
    line = dumps(cut)
    return ([line] if len(line) <= MAX_LINE_BYTES else _split(cut),), {}


def _cut(value: Any, name: str = "") -> Any:
    """Return `value` with every string over the limit cut and marked."""
    if isinstance(value, str) and name not in _FREE_TEXT and len(value.encode("utf-8", "replace")) > MAX_VALUE_BYTES:
        kept = value.encode("utf-8", "replace")[: MAX_VALUE_BYTES - len(CUT_MARK)]
        return kept.decode("utf-8", "ignore") + CUT_MARK
    if isinstance(value, Mapping):
        return {key: _cut(item, str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cut(item) for item in value]
    return value


def _split(fields: MutableMapping[str, Any]) -> list[bytes]:
    """Split an object over the line limit by whole keys of its attributes, two levels deep, into numbered parts."""
    envelope = _with_room({**fields, "attributes": {}, "part": 0, "parts": 0})
    room = MAX_LINE_BYTES - len(dumps(envelope)) - 16
    parts: list[dict[str, Any]] = [{}]
    used = 0
    for path, value in _leaves(fields["attributes"]):
        size = len(dumps(value)) + sum(len(key) + 8 for key in path)
        if used + size > room and parts[-1]:
            parts.append({})
            used = 0
        _place(parts[-1], path, value if size <= room else CUT_MARK)
        used += size
    count = len(parts)
    return [dumps({**envelope, "attributes": part, "part": i, "parts": count}) for i, part in enumerate(parts, 1)]


def _with_room(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return the envelope with its texts short enough to leave room for an attribute: escapes take up to six bytes."""
    for limit in (MAX_VALUE_BYTES, MAX_VALUE_BYTES // 4, MAX_VALUE_BYTES // 32):
        if len(dumps(envelope)) <= MAX_LINE_BYTES - MAX_VALUE_BYTES:
            break
        exception = {key: _shortened(text, limit) for key, text in (envelope.get("exception") or {}).items()}
        envelope |= {"exception": exception or None, "message": _shortened(envelope.get("message"), limit)}
    return envelope


def _shortened(text: Any, limit: int) -> Any:
    """Return a text with its middle left out where it takes more than `limit` bytes in a line."""
    size = len(dumps(text))
    if not isinstance(text, str) or size <= limit:
        return text
    half = len(text) * limit // size // 2
    return f"{text[:half]}{CUT_MARK}{text[len(text) - half :]}"


def _leaves(attributes: Mapping[str, Any]) -> list[tuple[tuple[str, ...], Any]]:
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for key, value in attributes.items():
        if isinstance(value, Mapping) and value:
            leaves.extend(((key, str(inner)), item) for inner, item in value.items())
        else:
            leaves.append(((key,), value))
    return leaves


def _place(part: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for key in path[:-1]:
        part = part.setdefault(key, {})
    part[path[-1]] = value


def dumps(value: Any) -> bytes:
    """Serialise to one line of JSON: with orjson where SGLang brought it, else with the standard library."""
    orjson = sys.modules.get("orjson")
    if orjson is not None:
        try:
            rendered: bytes = orjson.dumps(value, default=str)
            return rendered
        except Exception:  # lone surrogates, integers over 64 bits: the standard library takes them
            pass
    try:
        return _encode(value)
    except ValueError:  # NaN and infinities are no JSON
        return _encode(_finite(value))


def _encode(value: Any) -> bytes:
    encoded = json.dumps(value, default=str, separators=(",", ":"), allow_nan=False)
    if "\\ud" in encoded:  # half of a surrogate pair stands for a byte that was no UTF-8; strict readers refuse it
        encoded = json.dumps(_printable(json.loads(encoded)), separators=(",", ":"))
    return encoded.encode("ascii")


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return value


def _finite(value: Any) -> Any:
    """Return `value` with NaN and infinities, which are no JSON, as null."""
    if isinstance(value, float):
        return value if value - value == 0.0 else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
