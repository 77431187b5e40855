"""Describe an exception of SGLang's that passes a hook: once in full, then by its id through the spans around it."""

from __future__ import annotations

import os
import threading
import traceback
from types import TracebackType
from typing import Any

from sglang_probe.events.names import MAX_MESSAGE_BYTES, MAX_STACKTRACE_BYTES
from sglang_probe.events.redact import redact_tail, redact_text

PASSTHROUGH = "sglang_probe_passthrough"


def describe(error: BaseException, local: threading.local) -> dict[str, Any]:
    """Return the envelope's `exception`; the text only where this thread sees the exception for the first time."""
    raised_in = _raised_in(error.__traceback__)
    # Not the exception itself: it would keep its frames alive, and the tensors in them.
    name = id(error), type(error), raised_in
    known = getattr(local, "exception", None)
    if known is not None and known[0] == name:
        return {**known[1], "message": None, "stacktrace": None}
    described = {
        "id": os.urandom(8).hex(),
        "type": _type_name(error),
        "message": redact_text(_text(error), MAX_MESSAGE_BYTES),
        "stacktrace": redact_tail(_stacktrace(error), MAX_STACKTRACE_BYTES),
        "raised_in": raised_in,
    }
    local.exception = (name, described)
    return described


def forget(local: threading.local) -> None:
    """Forget the exception: the host has caught it, since a span ended well, another began or the outermost closed."""
    local.exception = None


def _type_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:  # an exception whose text raises, or exits, is still an exception
        return f"<str() of it raised {type(broken).__name__}>"


def _stacktrace(error: BaseException) -> str:
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(line for line in lines if f", in {PASSTHROUGH}\n" not in line)


def _raised_in(trace: TracebackType | None) -> str | None:
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    module = trace.tb_frame.f_globals.get("__name__", "?")
    name = getattr(code, "co_qualname", code.co_name)  # 3.11 on
    return f"{module}:{name}:{trace.tb_lineno}"
