"""Lines that are JSON: docker's json-file, journald, Google's and other clouds' exports, fluent-bit, structured logs.

What is not whole JSON is searched for its message alone: an object printed over several lines, or a cut-off one.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from sglang_probe.collect.logs.carriers import Carried, from_epoch, from_labels, utc

_MESSAGE_KEYS: Final = ("log", "textPayload", "MESSAGE", "message", "msg", "line", "event")
_TIME_KEYS: Final = ("time", "timestamp", "@timestamp", "ts", "asctime")
_INSIDE: Final = ("jsonPayload", "_source", "record", "fields", "result")
"""Objects of the carrier that hold the message one level down."""
_SALVAGE: Final = re.compile(rf'"(?:{"|".join(_MESSAGE_KEYS)})"\s{{0,8}}:\s{{0,8}}"')
_STRING: Final = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*')
_SCAFFOLD: Final = re.compile(r'\s*(?:"[^"\\]{1,200}": .*|[\[\]{}]{1,2},?\s*)$', re.DOTALL)
_SALVAGE_WITHIN: Final = 4096
_TAGGED: Final = re.compile(
    r"(?P<source>[\w.\-/]{1,200}): \[(?P<epoch>\d{1,12}\.\d{1,9}), (?P<json>\{.*\})\]$", re.DOTALL
)
"""fluent-bit's file output."""
_DOCKER_CHUNK: Final = 1 << 14
"""docker cuts a longer line into several objects; all but the last lack its newline."""

_decode = msgspec.json.Decoder().decode


def from_json(text: str) -> Carried | None:
    """Return the message of a line that is JSON; None where it is none, or one without a message."""
    bare = text.strip().rstrip(",")
    tagged = _TAGGED.match(bare) if bare.endswith("}]") else None
    if tagged is not None:
        bare = tagged["json"]
    if bare[:1] not in ("{", '"'):
        return None
    try:
        value = _decode(bare) if bare[0] == "{" else None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    carried = _from_object(value) if isinstance(value, dict) else _salvaged(bare)
    if carried is not None and tagged is not None:
        carried.source = carried.source or tagged["source"]
        carried.ts = carried.ts or from_epoch(tagged["epoch"])
    return carried


def is_scaffold(text: str) -> bool:
    """Say whether a line is one of an object printed over several lines, and not its message."""
    return _SCAFFOLD.match(text) is not None


def _salvaged(text: str) -> Carried | None:
    key = _SALVAGE.search(text, 0, _SALVAGE_WITHIN)
    string = _STRING.match(text, key.end()) if key else None
    if string is None:
        return None
    try:
        message = msgspec.json.decode(f'"{string[0]}"', type=str)
    except (msgspec.DecodeError, UnicodeError):
        message = string[0]
    return Carried(message.removesuffix("\n"), spread_out=text.startswith('"') and text.endswith('"'))


def _from_object(value: dict[str, Any], depth: int = 0) -> Carried | None:
    for key in _INSIDE:
        inner = value.get(key)
        if isinstance(inner, dict) and depth < 3:
            carried = _from_object(inner, depth + 1)
            if carried is not None:
                return _said(carried, value)
    for key in _MESSAGE_KEYS:
        message = _text(value.get(key))
        if message is not None:
            part = _is_part(key, value, message)
            return _said(Carried(message.removesuffix("\n").removesuffix("\r"), part=part), value)
    return None


def _text(message: object) -> str | None:
    """Return a message; journald writes one with bytes that do not print as numbers."""
    if isinstance(message, str):
        return message
    if isinstance(message, list) and message and all(isinstance(one, int) and 0 <= one < 256 for one in message):
        return bytes(message).decode("utf-8", "replace")
    return None


def _is_part(key: str, value: dict[str, Any], message: str) -> bool:
    if value.get("logtag") == "P" or value.get("partial_message") == "true":
        return True
    if str(value.get("CONTAINER_PARTIAL_MESSAGE", "")).lower() == "true":
        return True
    cut = not message.endswith("\n") and "stream" in value and "logtag" not in value
    return key == "log" and cut and len(message.encode("utf-8", "replace")) >= _DOCKER_CHUNK


def _said(carried: Carried, value: dict[str, Any]) -> Carried:
    """Add what the object says of time and place, where the message's own object did not."""
    carried.ts = carried.ts or _time(value)
    carried.stream = carried.stream or _string(value.get("stream"))
    carried.source = carried.source or _source(value)
    carried.host = carried.host or _string(value.get("_HOSTNAME")) or _string(_in(value, "kubernetes").get("host"))
    pid = value.get("_PID", value.get("pid"))
    if carried.pid is None and isinstance(pid, (str, int)) and str(pid).isdecimal():
        carried.pid = int(str(pid)[:18])
    return carried


def _source(value: dict[str, Any]) -> str | None:
    for labels in (value, _in(value, "kubernetes"), _in(_in(value, "resource"), "labels"), _in(value, "labels")):
        strings = {str(key): one for key, one in labels.items() if isinstance(one, str)}
        found = from_labels(strings)
        if found is not None:
            return found
    for key in ("CONTAINER_NAME", "_SYSTEMD_UNIT", "SYSLOG_IDENTIFIER", "container_id", "tag"):
        name = _string(value.get(key))
        if name:
            return name.removeprefix("/")
    return None


def _time(value: dict[str, Any]) -> str | None:
    micros = _string(value.get("__REALTIME_TIMESTAMP"))
    if micros is not None and micros.isdecimal() and len(micros) > 6:
        return from_epoch(f"{micros[:-6]}.{micros[-6:]}")
    for key in _TIME_KEYS:
        said = value.get(key)
        if isinstance(said, str):
            return utc(said)
        if isinstance(said, (int, float)) and not isinstance(said, bool) and 1e9 <= said < 1e14:
            return from_epoch(f"{said / 1000 if said > 1e11 else said:.3f}")
    return None


def _in(value: dict[str, Any], key: str) -> dict[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None
