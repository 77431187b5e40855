"""SGLang's runtime context, where it has one (from 0.5.15 on): settings in force, ranks, the device.

Its getters and attributes raise until SGLang has published them. None of them measures anything.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from sglang_probe.agent.calls import integer

_MODULE = "sglang.srt.runtime_context"


def published(getter: str) -> Any:
    """Return a part of the context (`get_parallel`, `get_device`, `get_schedule`), or None where there is none yet."""
    get = getattr(sys.modules.get(_MODULE), getter, None)
    try:
        return get() if callable(get) else None
    except Exception:
        return None


def read(source: Any, name: str) -> Any:
    """Return a value of a mapping or an attribute of an object; None where it is not there, or not published yet."""
    if isinstance(source, Mapping):
        return source.get(name)
    try:
        return getattr(source, name, None)
    except Exception:
        return None


def first_integer(name: str, *sources: Any) -> int | None:
    """Return the first integer that a source has under the name."""
    found = (integer(read(source, name)) for source in sources)
    return next((value for value in found if value is not None), None)
