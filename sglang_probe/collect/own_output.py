"""What this program wrote itself: a report beside the events that it was made of is neither events nor a log."""

from __future__ import annotations

import re
from typing import Final

GENERATOR: Final = '<meta name="generator" content="SGLang Probe">'
"""Stands in the head of every page that is written."""
_OURS: Final = re.compile(
    rb"\A\s*(?:\{\s*\"schema\"\s*:\s*\"(?:report|timeline|explain|diff|plan|watch)/\d+\.\d+\""
    rb"|(?:run {7}|run: )[^\n]*\n(?: {10}[^\n]*\n)*(?:outcome {3}|outcome: )"
    rb"|(?:diff {6}|diff: )[^\n]* -> |plan of(?: {3}|: )|watch {5}|waiting for (?:a run|the server's lines) in "
    rb"|(?:\+[^\n]{1,16}  )?watching [^\n]*\n *\+\d)"
)
"""How JSON and texts of ours begin."""


def is_own_output(head: bytes) -> bool:
    """Say whether a text that begins so is a report or an answer of sglang-probe's."""
    return _OURS.match(head) is not None or (b"<html" in head[:200] and GENERATOR.encode() in head[:1000])
