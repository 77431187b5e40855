"""Entry -> Facts: which of SGLang's lines it is, of any release from 0.2.0 on, and the values it holds.

A row is found by its words alone, never by a version: two releases that print the same say the same.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from sglang_probe.collect.logs import server_args
from sglang_probe.collect.logs.exceptions import TRACEBACK, caught, exceptions_in, is_survived, memory_in
from sglang_probe.collect.logs.figures import figures_in
from sglang_probe.collect.logs.format import Format
from sglang_probe.collect.logs.formats_graphs import ALLREDUCE, GRAPHS
from sglang_probe.collect.logs.formats_serving import ADJUSTED, ENDS, SERVING
from sglang_probe.collect.logs.formats_start import START
from sglang_probe.collect.logs.model import Entry, Fact
from sglang_probe.collect.logs.not_memory import HARMLESS, NOT_MEMORY, looks
from sglang_probe.collect.logs.secrets import clean
from sglang_probe.collect.logs.shape import ACCESS, QUOTES, is_record, is_users

FORMATS: Final[tuple[Format, ...]] = (*SERVING, *START, *GRAPHS, *ALLREDUCE, *ADJUSTED, *ENDS)
"""In the order in which they are asked; the first that matches is it."""
_GPU: Final = re.compile(r"\[gpu(?:_id)?=\d+\] ")
"""0.2 wrote the rank into the message."""
MAX_TEXT: Final = 1 << 20
"""Characters of one entry that are looked at."""


Said: TypeAlias = tuple[str, dict[str, Any]]
"""A kind, and its values."""


def facts_of(entry: Entry, *, ignored: bool = False) -> tuple[Fact, ...]:
    """Return what an entry says, in the order in which it says it; nothing for a line of another kind.

    `ignored`: the line before says that Python goes on from the exception.
    """
    text = _message(entry.text)
    if is_users(text):
        return ()
    said = _said(text, entry.prefixed)
    said = caught(said) if ignored else said
    shown = clean(entry, said) if said else entry
    return tuple(Fact(kind=kind, entry=shown, values=values) for kind, values in said)


def is_whole(text: str) -> bool:
    """Say whether a text is one known line from its beginning to its end: nothing of it was wrapped away."""
    text = _message(text).rstrip()
    if server_args.BEGIN.match(text):
        return server_args.is_complete(text)
    read = _read(text)
    return read is not None and read[2] >= len(text)


def _message(text: str) -> str:
    text = text[:MAX_TEXT].strip()
    return _GPU.sub("", text, count=1) if text.startswith("[gpu") else text.lstrip(QUOTES)


def _said(text: str, prefixed: bool) -> list[Said]:
    if ACCESS.match(text):
        return [one for one in looks(text) if one[1]["what"] in _OF_REQUESTS]
    arguments = server_args.arguments_in(text)
    if arguments is not None:
        return [("server_args", {"arguments": arguments})]
    found = exceptions_in(text, prefixed)
    if found:
        inner = _read(text.partition(TRACEBACK)[0].strip()) or _read(found[0][1]["message"])
        found += [inner[:2]] if inner is not None and inner[0] in _ALSO else []
    else:
        read = _read(text)
        said = read is None and is_record(text, prefixed)
        found = memory_in([text], raised=False) if said else [] if read is None else [read[:2]]
        if said and is_survived(text):
            found = caught(found)
        if read is not None and read[0] not in _ALSO:
            return found
    if not any(kind in _MEMORY for kind, _ in found):
        found += looks(text)
    if not found and prefixed:
        figures = figures_in(text)
        found = [] if figures is None else [("figures", figures)]
    return found


_OF_REQUESTS: Final = frozenset({"http", "not_ready_yet"})
"""What a line of a request can say; its address holds what users wrote."""
_ALSO: Final = frozenset({"ended", "imbalance"})
"""Kinds whose lines may say more than themselves, and may be an exception's message."""
_MEMORY: Final = frozenset({"no_memory", "out_of_memory"})


def _read(text: str) -> tuple[str, dict[str, Any], int] | None:
    for row in FORMATS:
        read = row.read(text)
        if read is not None:
            return row.kind, *read
    return None


_WORDS: Final = (
    *(
        # starts, pools, capture, arguments
        "mem", "Mem", "Init ", "Load weight", "profiled value", "KV ", "SWAKVPool", "Update weights",
        "max_total_num_tokens", "Capture ", "cuda graph addresses", "llreduce", "ll Reduce", "ServerArgs(",
        "server_args=", "GB", "GiB", "MiB", "MB",
        # serving, arguments that change, ends
        " batch", "retract", "fired up", "nccl", "sglang version", "igquit", "SIG", "xit code", "igterm", "Graceful",
        "scheduler is dead", "Shutting down", "nitialization failed", "Killed", "atchdog", "prefill size",
        "prefill-size", "max_running_requests", "swa_full_tokens_ratio",
        # failures
        "Traceback", "Error", "Exception", "Logging error", " space ", "CUBLAS_", "fault", "OOM", "leaked",
    ),
    *(needle for one in (*NOT_MEMORY, *HARMLESS) for needle in one.needles),
)  # fmt: skip
NEEDLES: Final[tuple[bytes, ...]] = tuple(
    word.encode() for word in dict.fromkeys(_WORDS) if not any(part in word and part != word for part in _WORDS)
)
"""A line that holds none of them says nothing of all this; one that holds a longer word holds the shorter in it."""
