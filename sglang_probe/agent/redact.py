"""Take secrets out at the source: nothing that unlocks anything may reach a file.

Plural `tokens` is SGLang's unit of text, not a secret, so `max_total_tokens` stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MARK = "[redacted]"

_SECRET_NAME = re.compile(
    r"(?:^|[_\-.])(?:api_?keys?|keys?|key_?\d+|(?:access|secret)_?key_?id|token|secrets?|passwords?|passwd|pass|pwd"
    r"|passphrase|credentials?|auth|authorization)$",
    re.IGNORECASE,
)
_IN_TEXT = re.compile(
    r"(?P<url>[a-z][a-z0-9+.\-]*://)[^\s/@:]*:?[^\s/@]*@"
    r"|(?P<query>[?&](?:[a-z0-9_\-]*(?:token|key|secret|password|signature|sig))=)[^&\s\"']+"
    r"|(?P<bearer>\b(?:Bearer|Basic)\s+)[A-Za-z0-9._~+/\-]{8,}=*"
    r"|(?P<assigned>\b[\w\-]*(?:api[_\-]?key|access[_\-]?key(?:[_\-]?id)?|secret[\w\-]*|password|auth|(?<![a-z])token)[\"']?\s*[=:]\s*)[\"']?[^\s\"',)}&]{4,}[\"']?"
    r"|\b(?:hf_[A-Za-z0-9]{16,}|sk[-_][A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|xox[a-z]-[A-Za-z0-9\-]{10,}|AKIA[0-9A-Z]{16})\b",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Tell whether a variable, argument or key of this name holds a secret."""
    return _SECRET_NAME.search(name.replace("-", "_")) is not None


def redact_text(text: str) -> str:
    """Return `text` without user names and passwords in URLs, bearer tokens and well-known kinds of keys."""
    return _IN_TEXT.sub(_keep_what_names_it, text)


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


def _keep_what_names_it(match: re.Match[str]) -> str:
    kept = next((part for part in match.groupdict().values() if part), "")
    return f"{kept}{MARK}" + ("@" if match["url"] else "")
