"""Take secrets out: nothing that unlocks anything may reach a file, from an agent or out of a log.

Plural `tokens` is SGLang's unit of text, not a secret, so `max_total_tokens` stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sglang_probe.events.names import CUT_MARK, MAX_VALUE_BYTES

MARK = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:api_?keys?|keys?|key_?\d+|(?:access|secret)_?key_?id|token|secrets?|passwords?|passwd|pass|pwd"
    r"|passphrase|credentials?|auth|authorization)$",
    re.IGNORECASE,
)
_VALUE = (
    r"[\"']?(?:(?:Bearer|Basic)\s+)?(?:(?:[a-z][a-z0-9+.\-]{0,30}:)?//[^\s/]*@[^\s\"',)}&]*|[^\s\"',)}&]{4,})[\"']?"
)
_IN_TEXT = re.compile(
    # What stands before a name is kept anyway, so no pattern begins with a repeat: one would be tried at every letter.
    r"(?P<url>://)[^\s/]*@"
    r"|(?P<query>[?&][a-z0-9_\-]{0,64}(?:token|key|secret|password|signature|sig)=)[^&\s\"']+"
    r"|(?P<flag>--[a-z0-9_\-]{0,64}?(?:api[_\-]?key|token|secret|password|passphrase)[\"']?(?:\s*[=,]\s*|\s+)[\"']?)"
    r"(?!-)[^\s\"',)}\]]+"
    r"|(?P<bearer>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/\-]{8,}=*"
    r"|(?P<assigned>(?:api[_\-]?key|access[_\-]?key(?:[_\-]?id)?|secret[\w\-]{0,64}|password|auth|(?<![a-z])token)"
    rf"[\"']?\s*[=:]\s*){_VALUE}"
    r"|\b(?:hf_[A-Za-z0-9]{16,}|sk[-_][A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|xox[a-z]-[A-Za-z0-9\-]{10,}"
    rf"|AKIA[0-9A-Z]{{16}})\b(?:[\"']?\s*[=:]\s*{_VALUE})?",  # it may be a name after all: sk_production_api_key=...
    re.IGNORECASE,
)

_MARGIN = 4096
"""Characters read beyond a cut: more than a secret takes with its name, so that none is met by half."""


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, argument or key of this name holds a secret."""
    return _SECRET_NAME.search(name.replace("-", "_")) is not None


def redact_text(text: str, most: int = MAX_VALUE_BYTES) -> str:
    """Return the beginning of `text` in at most `most` bytes, without user names and passwords in URLs, bearer tokens
    and well-known kinds of keys. It is cut first: what a host's text costs us does not grow with it."""
    clean = _clean(text[: most + _MARGIN], 0, most)
    data = clean.encode("utf-8", "replace")
    if len(data) <= most and len(text) <= most:
        return clean
    return data[: most - len(CUT_MARK)].decode("utf-8", "ignore") + CUT_MARK


def redact_tail(text: str, most: int) -> str:
    """Return the end of `text` in at most `most` bytes, cleaned as by `redact_text`."""
    window = text[-(most + _MARGIN) :]
    clean = _clean(window, max(0, len(window) - most), len(window))
    data = clean.encode("utf-8", "replace")
    if len(data) <= most and len(text) <= most:
        return clean
    return CUT_MARK + data[max(0, len(data) - most + len(CUT_MARK)) :].decode("utf-8", "ignore")


def redact(value: Any, name: str = "") -> Any:
    """Return a JSON-ready copy of `value` without secrets; what JSON has no type for becomes its text."""
    if name and value not in (None, "", False, True) and is_secret_name(name):
        return MARK
    if isinstance(value, str):
        return redact_text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): redact(item, str(key)) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray)):
        return [redact(item) for item in value]
    return redact_text(str(value))


def redact_argv(argv: Sequence[str]) -> list[str]:
    """Return a command line without secrets, whether given as `--api-key VALUE` or `--api-key=VALUE`."""
    clean: list[str] = []
    hide_next = False
    for argument in argv:
        flag, equals, _ = argument.partition("=")
        secret = flag.startswith("-") and is_secret_name(flag.lstrip("-"))
        if hide_next:  # whatever it looks like: a secret may begin with dashes
            clean.append(MARK)
        elif secret and equals:
            clean.append(f"{flag}={MARK}")
        else:
            clean.append(redact_text(argument))
        hide_next = secret and not equals
    return clean


def _clean(window: str, start: int, stop: int) -> str:
    """Return `window[start:stop]` with a mark for each secret that lies in it, be it only in part."""
    parts: list[str] = []
    at = start
    for match in _IN_TEXT.finditer(window):
        if match.start() >= stop:
            break
        if match.end() > start:
            parts += (window[at : max(at, match.start())], _keep_what_names_it(match))
            at = match.end()
    return "".join([*parts, window[at:stop]])


def _keep_what_names_it(match: re.Match[str]) -> str:
    kept = next((part for part in match.groupdict().values() if part), "")
    return f"{kept}{MARK}" + ("@" if match["url"] else "")
