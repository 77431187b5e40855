"""What a file is that holds no probe event, so that a person is told what to do instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.files import Listing, first_stamp, listing
from sglang_probe.collect.logs.beside import event_at
from sglang_probe.collect.logs.owners import is_prefixed, program_of
from sglang_probe.collect.own_output import is_own_output
from sglang_probe.collect.records import BROKEN
from sglang_probe.figures import listed

HINT: Final = "give a run directory, a directory of runs, a .jsonl file of a run, a log of SGLang's, or - for stdin"
PROBE_IT: Final = "start SGLang with `sglang-probe run -- python -m sglang.launch_server ...`, then give its run"
OF_A_RUN: Final = "give what the report was made of: a run directory, a file of events, or a log"
LOOKED_AT: Final = 16
"""Entries of a directory that are looked at for events further down."""
CONTROLS: Final = bytes(byte for byte in range(1, 32) if byte not in b"\t\n\v\f\r\b\x1b")
"""Control characters that no text holds."""

WHOLE_LOG: Final = "give the log from the server's start on, such as `sglang serve ... 2>&1 | tee server.log` writes"
"""What holds what a log from the middle does not."""

_MAGIC: Final = {b"PK\x03\x04": ("is a zip archive", "unpack it first (unzip)")}
_TAR: Final = b"ustar"
_TAR_AT: Final = 257
_SGLANG_LOG: Final = re.compile(
    rb"server_args=(?:ServerArgs\(|\{)|Init torch distributed (?:begin|ends)\.|Init parallel begin\."
    rb"|(?:Load weight (?:begin|end)|Memory pool end|Capture [\w ]{0,40}graph (?:begin|end))\..{0,160}(?:mem|avail)[ =]"
    rb"|KV Cache is allocated\. |max_total_num_tokens=\d+, "
    rb"|^(?:[> \t]*|[^\n]{0,200}?[\]|:Z] ?)(?:\w+\.)*\w*(?:Error|Exception): (?:[^\n]{0,80}out of memory\. Tried to"
    rb"|Not enough memory\. Please try to|Loaded weights leave no GPU memory)"
    rb"|\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{3})?(?: [A-Z_]+\d+)*\] |^\[gpu=\d+\] "
    rb"|(?:Prefill|Decode) batch.{0,20}[.,] #",
    re.MULTILINE,
)
"""What lines of SGLang's are known by, with the figures that no other text gives them; their times, others have too."""


def looks_like_log(head: bytes) -> bool:
    """Say whether a text that begins so may be a log of SGLang's, or events and such a log; in UTF-16 too."""
    if is_own_output(head):
        return False
    if is_utf16(head):
        head = head.decode("utf-16", "replace").encode()
    if b'"schema"' in head:
        head = b"\n".join(line for line in head.split(b"\n") if event_at(line) is None)
    return _SGLANG_LOG.search(head) is not None


def is_binary(head: bytes) -> bool:
    """Say whether a file that begins so is no text: control characters, or NUL bytes between others.

    A text file may hold a stretch of NUL bytes where a machine lost power, so they count only beside other signs.
    """
    if any(head.startswith(magic) for magic in _MAGIC) or head[_TAR_AT:].startswith(_TAR):
        return True
    text = head.replace(b"\0", b"")
    if head and not text:
        return True
    controls = len(text) - len(text.translate(None, CONTROLS))
    return controls > len(text) // 50 or (b"\0" in head and b"\n" not in text) or is_utf16(head)


def said_of(name: str, head: bytes) -> str:
    """Say what a file in a directory without events is."""
    return f"{name} is a log of SGLang's" if looks_like_log(head) else refusal(name, head).message


def refusal(name: str, head: bytes, *, torn: bool = False, said: str = "") -> InputError:
    """Return the error for an input without one whole event; `head` is its beginning, `said` what a line of it says."""
    if not head.strip():
        return InputError(f"{name} is empty", HINT)
    for magic, (what, hint) in _MAGIC.items():
        if head.startswith(magic):
            return InputError(f"{name} {what}", hint)
    if head[_TAR_AT:].startswith(_TAR):
        return InputError(f"{name} is a tar archive", "unpack it first (tar -xf)")
    if is_binary(head):
        return InputError(f"{name} is a binary file, not probe events", HINT)
    if is_own_output(head):
        return InputError(f"{name} is a report that sglang-probe wrote, and no record of a run", OF_A_RUN)
    if torn:
        return InputError(
            f"{name} holds no whole event: its first line is cut off",
            "the process was ended while it wrote its first line; start the server again",
        )
    return _text_refusal(name, head, said)


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


def _text_refusal(name: str, head: bytes, said: str) -> InputError:
    first = head.lstrip()[:1]
    program = None if is_prefixed(head) else program_of(head)
    if program is not None or (said and not is_prefixed(head)):
        whose = f", {program} wrote it" if program else ""
        what = f"{name} is no log of SGLang's: no line of it is SGLang's own{whose}{f' ({said})' if said else ''}"
        return InputError(what, HINT)
    if first == b"{" or (first == b"[" and not _SGLANG_LOG.search(head)):
        return InputError(f"{name} is JSON, but no probe events{_described(head)}", HINT)
    if looks_like_log(head):
        return InputError(f"{name} is a log, but no line of it says anything of SGLang's memory or start", WHOLE_LOG)
    return InputError(f"{name} is text, but no probe events, and no line of it is of SGLang's log", HINT)


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


def mixed_servers(name: str, lines: list[int]) -> InputError:
    """Return the error for a text that two servers wrote at once; `lines` is where each begins."""
    return InputError(
        f"{name} was written by two servers at once (they begin at {' and '.join(f'line {line:,}' for line in lines)}),"
        " and nothing says which line is whose",
        "give each server's own log (docker compose logs NAME, kubectl logs POD), or one whose lines name the writer",
    )


def is_utf16(head: bytes) -> bool:
    """Say whether a text begins with the mark of UTF-16, which PowerShell writes."""
    return head.startswith((b"\xff\xfe", b"\xfe\xff"))
