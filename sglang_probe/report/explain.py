"""The findings as text for a person: the outcome, the cause with its arithmetic and what to do, then what else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.text import Text

from sglang_probe.explain.engine import as_printed
from sglang_probe.explain.model import Explanation, Finding, Lever, RunFindings
from sglang_probe.explain.phrases import signed
from sglang_probe.explain.titles import title_of
from sglang_probe.figures import number
from sglang_probe.report.footer import read_footer
from sglang_probe.report.header import STYLES, run_name
from sglang_probe.report.layout import WIDTH, Width, field, page, paragraph
from sglang_probe.report.outcome import headline
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Run, Timeline
from sglang_probe.timeline.processes import first_error, world_size

INDENT: Final = "  "
HANGING: Final = " " * 6
LONGEST_ERROR: Final = 160
"""Characters of SGLang's error that are shown: `timeline` has all of it."""
SEVERITY_STYLES: Final = {"error": "bold red", "warning": "yellow", "info": "bold"}
SEVERITY_WORDS: Final = {"error": "CAUSE", "warning": "WARNING", "info": "ALSO"}
"""An error is what explains the failure; what only informs stands below."""


def explain_text(
    explanation: Explanation,
    timeline: Timeline,
    width: Width = WIDTH,
    *,
    colour: bool = False,
    now: datetime | None = None,
) -> str:
    """Return the findings about each run of a timeline. Deterministic, and without `colour` free of escapes."""
    parts: list[Sequence[Text]] = []
    launches = Counter(run.run_id for run in timeline.runs)
    for run, findings in zip(timeline.runs, explanation.runs, strict=True):
        several = run.launch > 0 or launches[run.run_id] > 1
        parts.append(_head(run, width, now, several))
        size = world_size(run)
        with as_printed((run,)):
            parts += [_finding(finding, width, size) for finding in findings.findings]
        if not findings.findings:
            parts.append(paragraph(_nothing(findings), width))
    parts.append(read_footer(timeline.read, width))
    return page(parts, colour)


def _head(run: Run, width: Width, now: datetime | None, several: bool) -> list[Text]:
    lines = field("run", run_name(run, several), width, "bold")
    lines += field("outcome", headline(run, now), width, STYLES.get(run.outcome, "yellow"))
    if run.failure is not None:
        said = first_error(run.failure)
        lines += field("error", said if len(said) <= LONGEST_ERROR else f"{said[:LONGEST_ERROR]}...", width)
    return lines


def _finding(finding: Finding, width: Width, size: int) -> list[Text]:
    word = SEVERITY_WORDS[finding.severity]
    title = f"{word}: {title_of(finding)}{who(finding.ranks, size)} ({finding.confidence})"
    lines = paragraph(title, width, "", HANGING, SEVERITY_STYLES[finding.severity])
    lines += paragraph(finding.says, width, INDENT, INDENT)
    if finding.formula:
        for part in finding.formula.split("; "):
            lines += paragraph(part, width, INDENT * 2, HANGING + INDENT)
    for lead, lever in levers_of(finding):
        lines += paragraph(f"{lead} {lever_words(lever)}", width, INDENT, HANGING)
    for note in finding.notes:
        lines += paragraph(f"- {note}", width, INDENT, INDENT * 2)
    return lines


def who(ranks: Sequence[str], size: int) -> str:
    """Name the ranks of a finding, after a comma; nothing where it is about the run."""
    if not ranks:
        return ""
    if len(ranks) == size > 1:
        return ", both ranks" if size == 2 else f", all {size} ranks"
    return f", {named(ranks)}"


def levers_of(finding: Finding) -> Iterator[tuple[str, Lever]]:
    """Return what would help, the first thing to do first, each with the word that it begins with."""
    if finding.lever is not None:
        yield "do:", finding.lever
    for lever in finding.levers:
        yield "or:", lever


def lever_words(lever: Lever) -> str:
    """Return what to do, and what it gives."""
    flag = " ".join(str(word) for word in (lever.flag, lever.value) if word is not None)
    return f"{f'{flag}: ' if flag else ''}{lever.says}{_gain(lever)}"


def _gain(lever: Lever) -> str:
    """Say what a lever gives; of the fraction its words say it already."""
    gains = []
    if lever.gain_bytes and lever.flag != "--mem-fraction-static":
        gains.append(f"{signed(lever.gain_bytes)} GiB")
        gains += [f"{number(lever.gain_tokens)} tokens"] if lever.gain_tokens else []
        gains += [] if lever.enough is None else ["enough" if lever.enough else "not enough alone"]
    return f" ({', '.join(gains)})" if gains else ""


def _nothing(findings: RunFindings) -> str:
    return (
        "Nothing was found: no rule says anything about this run."
        if findings.outcome == "ready"
        else "Nothing was found yet."
    )
