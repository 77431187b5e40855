"""SGLang's own prefix of every era, and what a terminal leaves in a line: colours, cursor codes, bare CRs.

Eras: none and `[gpu_id=0] ` (0.2.0), `[gpu=0] ` (0.2.9), `[12:00:00 TP0] ` (0.2.15), with the date (0.3.4),
milliseconds on request (0.5.6), and since 0.3.4 any order of the rank's tokens. Encoder processes say their name there.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sglang_probe.collect.logs.model import RANK_TOKENS
from sglang_probe.collect.logs.shape import QUOTES, is_users

_STAMPED: Final = (
    r"\[(?P<stamp>(?P<day>\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{3,6})?)"
    r"(?P<rank>(?: (?:[A-Za-z_]\w{0,40}(?:\[\d+\])?)){0,8})\] ?"
)
_OF_0_2: Final = r"\[gpu(?:_id)?=(?P<gpu>\d{1,6})\] ?"
PREFIX: Final = re.compile(f"{_STAMPED}|{_OF_0_2}")
_TOKEN: Final = re.compile(rf"\b({'|'.join(RANK_TOKENS)})(\d{{1,6}})\b", re.IGNORECASE)
_TERMINAL: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\](?:[^\x07\x1b]{0,256}(?:\x07|\x1b\\))?|[()*+][0-9A-Za-z]|[=>78cDEHMNOZ])"
)
"""Colours, titles, character sets."""
_UNSEEN: Final = "\ufeff\u200b\x0c\x0e\x0f\x07"
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u200b\ufeff]")
"""Within a text each may stand where a digit stood: taken out, it would leave another number."""
_LINE_ERASED: Final = re.compile(r"\x1b\[(?:\d*[ABEFGHf]|\d+;\d+[Hf]|2J)")
"""Cursor moves after which another text begins."""
_REQUEST: Final = re.compile(r"(?:Receive|Finish|Received|New generate request)\b[^\[]{0,40}(?:obj|rid|req|text)\s*=")
"""Logged requests hold what users wrote, and users write about SGLang's logs."""


class Prefix(NamedTuple):
    """What SGLang's prefix says."""

    stamp: str | None = None
    ranks: tuple[tuple[str, int], ...] = ()


class Part(NamedTuple):
    """One record of those on a line, or what stands before the first."""

    prefix: Prefix | None
    """None where SGLang's prefix does not stand before it."""
    text: str


def plain(text: str) -> str:
    """Return a text as a terminal shows it, but for bare CRs; cursor moves to another place become CRs."""
    if text.isprintable():
        return text
    if "\x1b" in text:
        text = _LINE_ERASED.sub("\r", text)
        text = _TERMINAL.sub("", text)
    return _CONTROLS.sub("\ufffd", text.strip(_UNSEEN))


def begins(text: str) -> bool:
    """Say whether SGLang's prefix stands at a text's beginning."""
    return text.lstrip(" \t>`").startswith("[") and PREFIX.match(text.lstrip(" \t>`")) is not None


def parts(text: str) -> list[Part]:
    """Cut a line into its records: at bare CRs, and where SGLang's prefix begins.

    Two processes that write at once leave `... GB[2025-06-01 12:00:00 TP1] Load weight end. ...`, a progress bar that a
    record ends leaves `18.35s/it][2025-...`. A logged request is not cut: a prefix in it is a user's.
    """
    found: list[Part] = []
    for piece in text.split("\r") if "\r" in text else (text,):
        _cut(piece, found)
    return found


def _cut(text: str, found: list[Part]) -> None:
    start = 0
    before: Prefix | None = None
    for match in PREFIX.finditer(text) if "[" in text else ():
        if match.start() and not _may_stand_within(match):
            continue
        if before is None and match.start() and is_users(text.lstrip(QUOTES)):
            break
        if before is not None and _REQUEST.match(text, start):
            break
        _add(found, before, text[start : match.start()])
        before, start = _read(match), match.end()
    _add(found, before, text[start:])


def _may_stand_within(match: re.Match[str]) -> bool:
    """A bare time in brackets is a prefix only at the beginning: bars and messages hold such."""
    return match["day"] is not None or bool(match["rank"]) or not match.string[: match.start()].strip(" \t>`")


def _add(found: list[Part], before: Prefix | None, text: str) -> None:
    if before is not None or text.strip(" \t>`"):
        found.append(Part(before, text))


def _read(match: re.Match[str]) -> Prefix:
    if match["gpu"] is not None:
        return Prefix(None, (("TP", int(match["gpu"])),))
    ranks = {name.upper(): int(number) for name, number in _TOKEN.findall(match["rank"])}
    ordered = tuple((name, ranks[name]) for name in RANK_TOKENS if name in ranks)
    return Prefix(match["stamp"].replace(",", "."), ordered)
