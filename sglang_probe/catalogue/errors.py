"""What the catalogue raises when an SGLang cannot be read."""

from __future__ import annotations


class SourceError(Exception):
    """No SGLang can be read from what was named. The text is one line: what happened, the value, what to do."""


class Unreadable(Exception):
    """One file of an SGLang cannot be read or does not parse; the others can. The text is the reason."""
