"""What a file is that holds no probe event, so that a person is told what to do instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.files import Listing, first_stamp, listing
from sglang_probe.collect.records import BROKEN
from sglang_probe.figures import listed

HINT: Final = "give a run directory, a directory of runs, a .jsonl file of a run, or - for events on standard input"
PROBE_IT: Final = "start SGLang with `sglang-probe run -- python -m sglang.launch_server ...`, then give its run"
LOOKED_AT: Final = 16
"""Entries of a directory that are looked at for events further down."""
CONTROLS: Final = bytes(byte for byte in range(1, 32) if byte not in b"\t\n\v\f\r\b\x1b")
"""Control characters that no text holds."""

_MAGIC: Final = {
    b"\x1f\x8b": ("is compressed (gzip)", "decompress it first (gunzip)"),
    b"\x28\xb5\x2f\xfd": ("is compressed (zstd)", "decompress it first (unzstd)"),
    b"PK\x03\x04": ("is a zip archive", "unpack it first (unzip)"),
}
_SGLANG_LOG: Final = re.compile(
    rb"server_args=ServerArgs\(|Init torch distributed|Load weight (?:begin|end)|Memory pool end|Capture cuda graph"
    rb"|^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]+\d+)*\] ",
    re.MULTILINE,
)


def is_binary(head: bytes) -> bool:
    """Say whether a file that begins so is no text: control characters, or NUL bytes between others.

    A text file may hold a stretch of NUL bytes where a machine lost power, so they count only beside other signs.
    """
    if any(head.startswith(magic) for magic in _MAGIC):
        return True
    text = head.replace(b"\0", b"")
    if head and not text:
        return True
    controls = len(text) - len(text.translate(None, CONTROLS))
    return controls > len(text) // 50 or (b"\0" in head and b"\n" not in text) or _looks_utf16(head)


def refusal(name: str, head: bytes, *, torn: bool = False) -> InputError:
    """Return the error for an input without one whole event; `head` is its beginning."""
    if not head.strip():
        return InputError(f"{name} is empty", HINT)
    for magic, (what, hint) in _MAGIC.items():
        if head.startswith(magic):
            return InputError(f"{name} {what}", hint)
    if is_binary(head):
        return InputError(f"{name} is a binary file, not probe events", HINT)
    if torn:
        return InputError(
            f"{name} holds no whole event: its first line is cut off",
            "the process was ended while it wrote its first line; start the server again",
        )
    return _text_refusal(name, head)


def directories_below(there: Listing) -> list[Path]:
    """Return the directories that would have been read had they been given: deeper than one looks without being asked.

    Of each directory the first few entries are looked at, so that this takes no time in a large tree.
    """
    found = (_runs_in(directory) for directory in there.directories[:LOOKED_AT])
    return [directory for directory in found if directory is not None]


def look_below(directory: Path, what: str, below: list[Path]) -> InputError:
    """Return the error for a directory without events of its own, where there are some further down."""
    names = listed([str(path) for path in below], 3)
    return InputError(f"{directory} holds no probe events{what}, but a directory below it does", f"look in {names}")


def _runs_in(directory: Path) -> Path | None:
    """Return the directory if a run lies in it, or in one of its own; of these the first."""
    try:
        there = listing(directory)
        if _has_events(there):
            return directory
        inner = there.directories[:LOOKED_AT]
        return directory if any(_has_events(listing(one)) for one in inner) else None
    except OSError:
        return None


def _has_events(there: Listing) -> bool:
    files = [file for file in there.files if file.suffix == ".jsonl"]
    return any(first_stamp(file) is not None for file in files[:LOOKED_AT])


def _text_refusal(name: str, head: bytes) -> InputError:
    first = head.lstrip()[:1]
    if first == b"{" or (first == b"[" and not _SGLANG_LOG.search(head)):
        return InputError(f"{name} is JSON, but no probe events{_described(head)}", HINT)
    if _SGLANG_LOG.search(head):
        return InputError(f"{name} is a plain SGLang log, which this version cannot read", PROBE_IT)
    return InputError(f"{name} is text, but no probe events", HINT)


def _described(head: bytes) -> str:
    """Say whose JSON it may be: its schema, or its first keys."""
    for text in (head, head.lstrip().split(b"\n", 1)[0]):
        value = _json(text)
        if isinstance(value, dict):
            schema = value.get("schema")
            if isinstance(schema, str):
                return f" (its schema is {schema[:40]!r})"
            return f" (its keys: {', '.join(key[:40] for key in list(value)[:3])})" if value else " (an empty object)"
    found = re.search(rb'"schema"\s*:\s*"([^"\\]{1,40})"', head)
    if found:
        return f" (its schema is {found[1].decode('utf-8', 'replace')!r})"
    keys = re.findall(rb'"([A-Za-z_][A-Za-z0-9_.-]{0,39})"\s*:', head)[:3]
    return f" (its keys: {', '.join(key.decode() for key in keys)})" if keys else ""


def _json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except BROKEN:
        return None


def _looks_utf16(head: bytes) -> bool:
    return head.startswith((b"\xff\xfe", b"\xfe\xff"))
