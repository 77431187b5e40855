"""Whose a text is: SGLang's, by a line that only SGLang writes, or another program's, and which."""

from __future__ import annotations

import re
from typing import Final

from sglang_probe.collect.logs.model import Fact
from sglang_probe.collect.logs.shape import ACCESS
from sglang_probe.events.redact import redact_text

NO_LINE: Final = "no line is SGLang's own"
"""How the note begins of a text that is read for torch's message alone."""
WROTE_IT: Final = "wrote it"
"""How it ends where another program is known to have written the text: SGLang's flags are no advice for it."""
_ANYBODYS: Final = frozenset({"exception", "not_memory", "harmless", "ended", "version", "figures", "out_of_memory"})
"""Kinds that other programs' lines make, too."""
_NAMES: Final = re.compile(r"sglang|\bsgl[_-]", re.IGNORECASE)
_PREFIXED: Final = re.compile(
    rb"^[^\n]{0,300}?(?:\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:\.\d{3})?(?: [A-Z_]+\d+){0,6}\] |\[gpu(?:_id)?=\d+\] )",
    re.MULTILINE,
)
_SHOWN: Final = 120
_PROGRAMS: Final = (
    ("vLLM", re.compile(rb"\bvLLM API server|\bvllm[/.]\w|\bINFO \d\d-\d\d [\d:.]+ \[(?:[\w/]+\.py):\d+\]|\bvLLM\b")),
    ("TensorRT-LLM", re.compile(rb"\[TensorRT-LLM\]|\btensorrt_llm[/.]")),
    ("text-generation-inference", re.compile(rb"\btext_generation_(?:launcher|router|server)\b")),
    ("llama.cpp", re.compile(rb"^(?:llama_|llm_load_|ggml_)\w+: ", re.MULTILINE)),
    ("the kernel", re.compile(rb"^(?:[^\n]{0,80}kernel: )?\[ *\d+\.\d{6}\] ", re.MULTILINE)),
)


def is_own(fact: Fact) -> bool:
    """Say whether nobody but SGLang writes such a line."""
    return fact.entry.prefixed or fact.kind not in _ANYBODYS or _NAMES.search(fact.entry.text) is not None


def is_prefixed(head: bytes) -> bool:
    """Say whether a line of a text's beginning has SGLang's prefix."""
    return _PREFIXED.search(head) is not None


def program_of(head: bytes) -> str | None:
    """Return the program other than SGLang that wrote a text which begins so; None where it is not known."""
    if any(ACCESS.match(line.decode("utf-8", "replace")) for line in head.split(b"\n", 8)[:8]):
        return "a web server"
    return next((name for name, words in _PROGRAMS if words.search(head)), None)


def note_of(head: bytes) -> str:
    """Return the note of a text of another's that holds a message of torch's that memory ran out."""
    program = program_of(head)
    return f"{NO_LINE}: {f'{program} {WROTE_IT}' if program else 'it holds a message of torch alone'}"


def said_by(fact: Fact) -> str:
    """Return what a line says, shortly, with its number, and without secrets."""
    said = str(fact.values.get("message") or fact.entry.text).strip().splitlines()[:1]
    return f"line {fact.entry.line:,}: {redact_text(said[0], _SHOWN)}" if said else ""
