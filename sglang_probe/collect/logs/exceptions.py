"""Tracebacks and bare exception lines -> the exception that ended it, with what it says of memory beside it.

A chain ("During handling of the above exception ...") ends in the exception that left the process; each of its members
may have been the one that ran out of memory.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from sglang_probe.collect.logs.memory_words import is_out_of_memory, no_memory
from sglang_probe.collect.logs.model import Entry
from sglang_probe.events.names import MAX_STACKTRACE_BYTES
from sglang_probe.events.redact import redact_tail, redact_text

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Messages are kept whole; this bounds what is none."""
TRACEBACK: Final = "Traceback (most recent call last):"
ERRORS: Final = frozenset({"exception", "no_memory", "out_of_memory"})
_NAME: Final = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Empty|Refused|Timeout)"
_RAISED: Final = re.compile(rf"(?P<type>{_NAME})(?::(?: (?P<message>.*))?)?$", re.DOTALL)
_ANY_RAISED: Final = re.compile(r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?::(?: (?P<message>.*))?)?$", re.DOTALL)
_LINKS: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_FATAL: Final = re.compile(
    r"(?:\w+ )?(?:hit an exception|[Ee]xception in (?:ModelTpServer|run_tp_server|Controller\w+|TokenizerManager"
    r"|Detokenizer\w*)|Initialization failed|crashed)"
)
"""What SGLang writes before a traceback that ends a process of its own."""
_FRAME: Final = re.compile(r"^  File \"(?P<file>[^\"\n]*)\", line \d+, in (?P<name>\S+)", re.MULTILINE)
_IGNORED: Final = re.compile(
    r"Exception ignored (?:in|while|on)\b|--- Logging error ---|(?:ERROR: +)?Exception in ASGI application"
)
"""What is written before a traceback that is gone on from: by Python of a finalizer, a callback or a log's own handler,
by uvicorn of one request."""
_NEAR: Final = 2
"""Lines: what is ignored may take two."""
_SURVIVED: Final = re.compile(
    r"\bautotun|\bwhile (?:profiling|tuning)\b|\bskipping tactic|Multimodal processing failed"
    r"|\bfall(?:ing|s)?[ -]?back to\b",
    re.IGNORECASE,
)
"""What a line of a library's or of SGLang's says beside an error that it goes on from."""


class Raised(NamedTuple):
    """One exception of a chain."""

    type: str
    message: str


def exceptions_in(text: str, prefixed: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return (kind, values): `exception` first, then what its messages say of memory; nothing where there is none."""
    head, found, rest = text.partition(TRACEBACK)
    chain = _chain(rest) if found else _bare(text)
    if not chain:
        return []
    last = chain[-1]
    values: dict[str, Any] = {"type": last.type, "message": redact_text(last.message, MAX_MESSAGE_BYTES)}
    if found:
        values["stacktrace"] = redact_tail(f"{TRACEBACK}{rest}".strip("\n"), MAX_STACKTRACE_BYTES)
        logged = prefixed and head.strip() and not _FATAL.search(head)
        if logged or _IGNORED.match(head.strip()) or _is_aside(rest):
            values["caught"] = True
    memory = memory_in([f"{one.type}: {one.message}" for one in chain])
    return caught([("exception", values), *memory]) if values.get("caught") else [("exception", values), *memory]


def caught(found: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Return what a record says as of an error that SGLang, a library or Python went on from."""
    return [(kind, {**values, "caught": True} if kind in ERRORS else values) for kind, values in found]


def follows_ignored(entry: Entry, before: Entry) -> bool:
    """Say whether an entry is the traceback that the one before it announces as ignored by Python."""
    near = 0 < entry.line - before.line <= _NEAR and (entry.source, entry.host) == (before.source, before.host)
    return near and entry.text.startswith(TRACEBACK) and _IGNORED.match(before.text.strip()) is not None


def is_survived(text: str) -> bool:
    """Say whether a line that is no exception itself tells of an error that its writer goes on from."""
    return _SURVIVED.search(text) is not None


def ends_process(text: str) -> bool:
    """Say whether a record is SGLang's own word before a process of it ends."""
    return _FATAL.search(text.partition(TRACEBACK)[0]) is not None


def _is_aside(rest: str) -> bool:
    """Say whether a traceback is of a finalizer, which nobody calls, or of Python's logging, which goes on."""
    frames = [(match["file"], match["name"]) for match in _FRAME.finditer(rest)]
    if not frames:
        return False
    logs = [file.endswith(("logging/__init__.py", "logging/handlers.py")) and name in _EMITS for file, name in frames]
    return frames[0][1] == "__del__" or any(logs)


_EMITS: Final = frozenset({"emit", "flush"})


def memory_in(messages: list[str], *, raised: bool = True) -> list[tuple[str, dict[str, Any]]]:
    """Return what messages say of memory: each kind once, in the words of the first that has it."""
    found: list[tuple[str, dict[str, Any]]] = []
    short = next((said for message in messages if (said := no_memory(message))), None)
    if short is not None:
        found.append(("no_memory", short))
    if any(is_out_of_memory(message, raised=raised) for message in messages):
        found.append(("out_of_memory", {}))
    return found


def _bare(text: str) -> list[Raised]:
    match = _RAISED.match(text.strip("\n"))
    return [Raised(match["type"], (match["message"] or "").strip())] if match else []


def _chain(rest: str) -> list[Raised]:
    """Return the exceptions of a chain in the order in which they were raised."""
    found: list[Raised] = []
    block: list[str] = []
    for part in rest.split("\n"):
        if part.strip() == TRACEBACK or part.strip() in _LINKS:
            found += _raised(block)
            block = []
        else:
            block.append(part)
    return found + _raised(block)


def _raised(block: list[str]) -> list[Raised]:
    """Return the exception that a block of a traceback ends in: what follows its last frame."""
    frames = [at for at, part in enumerate(block) if part.startswith("  ")]
    start = next((at for at in range((frames[-1] + 1) if frames else 0, len(block)) if block[at].strip()), None)
    for at, part in enumerate(block):  # a message may be indented itself: the first line that is at the margin counts
        if part[:1].strip() and _ANY_RAISED.match(part) and (not frames or at > frames[0]):
            start = at
            break
    if start is None:
        return []
    match = _ANY_RAISED.match("\n".join(block[start:]).strip("\n"))
    return [Raised(match["type"], (match["message"] or "").strip())] if match else []
