"""The report as text, for a browser that runs no script: the terminal's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sglang_probe.explain.model import Explanation
from sglang_probe.report.explain import explain_text
from sglang_probe.report.text import timeline_text
from sglang_probe.timeline.model import Timeline

LONGEST: Final = 300_000
"""Characters; more nobody reads without a script, and a page must stay small."""
RULE: Final = f"\n{'-' * 80}\n\n"
CUT: Final = "\n... cut here; `sglang-probe timeline` prints all of it.\n"


def text_of(
    timeline: Timeline, explanation: Explanation, where: Sequence[Sequence[str]], now: datetime | None
) -> str:
    """Return what `explain` and `timeline` print, cut at the end of a line where it is too long."""
    findings = explain_text(explanation, timeline, now=now)
    return cut(findings + RULE + timeline_text(timeline, where, now=now))


def cut(text: str) -> str:
    """Return a text of a bearable length."""
    return text if len(text) <= LONGEST else text[: text.rfind("\n", 0, LONGEST)] + CUT
