"""What the page says in words: the head of a run, its findings, its processes, what it was made of, what was lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.text import Text

from sglang_probe.collect.report import ReadReport
from sglang_probe.explain.engine import as_printed
from sglang_probe.explain.model import Finding, RunFindings
from sglang_probe.explain.titles import title_of
from sglang_probe.figures import UNKNOWN
from sglang_probe.report.explain import SEVERITY_WORDS, lever_words, levers_of, who
from sglang_probe.report.footer import read_footer, run_footer
from sglang_probe.report.header import run_header
from sglang_probe.report.layout import LABEL
from sglang_probe.report.outcome import process_name
from sglang_probe.report.plain import printable
from sglang_probe.timeline.model import Process, Provenance, Run
from sglang_probe.timeline.processes import world_size

ENDLESS: Final = 10_000_000
"""Columns of a page on which no line of the terminal's report is broken: the browser breaks them."""
HEAD: Final = ("run", "outcome", "why", "error")
"""Lines of the terminal's head that stand on their own in the page."""


def head_data(run: Run, where: Sequence[str], now: datetime | None, *, several: bool) -> dict[str, Any]:
    """Return the head of a run as the terminal has it: `facts` are its lines, `loud` what is wrong with the probe."""
    facts: dict[str, list[str]] = {}
    loud: list[str] = []
    for line in run_header(run, where, ENDLESS, now, several_launches=several):
        label, text = line.plain[:LABEL].rstrip(), line.plain[LABEL:]
        if label.endswith(":") or not line.plain[LABEL - 1 : LABEL].isspace():  # PROBE: and LOG: are no fields
            loud.append(line.plain)
        else:
            facts.setdefault(label, []).append(text)
    head: dict[str, str] = {label: facts[label][0] for label in HEAD if label in facts}
    rest = [[label, text] for label, texts in facts.items() if label not in HEAD for text in texts]
    return {**head, "facts": rest, "loud": loud}


def findings_data(run: Run, found: RunFindings) -> list[dict[str, Any]]:
    """Return the findings of a run, the leading one first, in the terminal's words."""
    with as_printed((run,)):
        return [_finding(finding, world_size(run)) for finding in found.findings]


def _finding(finding: Finding, size: int) -> dict[str, Any]:
    return {
        "severity": finding.severity,
        "word": SEVERITY_WORDS[finding.severity],
        "title": f"{title_of(finding)}{who(finding.ranks, size)}",
        "confidence": finding.confidence,
        "says": finding.says,
        "formula": finding.formula.split("; ") if finding.formula else [],
        "levers": [f"{lead} {lever_words(lever)}" for lead, lever in levers_of(finding)],
        "notes": list(finding.notes),
    }


def processes_data(run: Run) -> list[list[Any]]:
    """Return a row a process: who, role, host, pid, alive, GPU, its name, its uuid, its bytes, steps, events, lost."""
    return [_process(process) for process in run.processes]


PROCESS: Final = (
    "process", "role", "host", "pid", "alive", "device", "card", "uuid", "total", "steps", "events", "lost",
)  # fmt: skip
NEIGHBOUR: Final = ("seen by", "pid", "name", "whose", "user", "at last", "at most", "remarks")


def _process(process: Process) -> list[Any]:
    device = process.device
    index = None if device is None else "CPU" if device.kind == "cpu" else device.index
    alive = {True: "yes", False: "gone", None: None}[process.alive]
    card = [None] * 3 if device is None else [device.name, device.uuid, device.total_bytes]
    counts = [len(process.steps), process.events, process.lost_events]
    return [process_name(process), process.role, process.host, process.pid, alive, index, *card, *counts]


def neighbours_data(run: Run) -> list[list[Any]]:
    """Return a row for each other process that a rank saw on its device; strangers first."""
    rows = [
        (one.kind != "foreign", [process_name(process), one.pid, one.name, _whose(one.kind), one.user, one.bytes,
         one.peak_bytes, ", ".join(_remarks(one))])
        for process in run.processes
        for one in process.neighbours
    ]  # fmt: skip
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _whose(kind: str) -> str:
    return "of this run" if kind == "run" else "FOREIGN"


def _remarks(one: Any) -> Iterator[str]:
    if one.began_before_s is not None:
        yield f"began {abs(one.began_before_s):,.0f} s {'before' if one.began_before_s >= 0 else 'after'} this rank"
    if one.left_over:
        yield "left over: its parent has ended"
    if one.gone:
        yield "gone since"


def provenance_data(provenance: Provenance) -> list[dict[str, Any]]:
    """Return the tables of what a run was made of, those that hold anything."""
    own = {
        "SGLang": provenance.sglang_version,
        "its path": provenance.sglang_path,
        "its commit": provenance.sglang_commit,
        "local changes": {True: "yes", False: "no", None: None}[provenance.sglang_dirty],
        "allocator": provenance.allocator_config,
    }
    tables: list[tuple[str, Mapping[str, Any] | None]] = [
        ("SGLang", {name: value for name, value in own.items() if value is not None}),
        ("versions", provenance.versions),
        ("server arguments, as given", provenance.given),
        ("variables", provenance.environment),
        ("packages", provenance.distributions),
        ("functions of SGLang's that are hooked, by fingerprint", provenance.fingerprints),
        ("server arguments, in effect", provenance.effective),
    ]
    return [
        {"title": title, "rows": [[str(name), shown(value)] for name, value in table.items()]}
        for title, table in tables
        if table
    ]


def differs_data(provenance: Provenance) -> list[list[str]]:
    """Return a row for each fact in which processes of the run differ: what, the value, who says so."""
    return [[one.key, value, ", ".join(who)] for one in provenance.differs for value, who in one.values.items()]


def shown(value: Any) -> str:
    """Return a value of an argument or a variable as text."""
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def gaps_data(run: Run) -> list[dict[str, Any]]:
    """Return what is missing from a run, and how to read it: titles with their sentences, as the terminal has them."""
    found: list[dict[str, Any]] = []
    for line in run_footer(run, ENDLESS):
        if line.plain.startswith(" ") and found:
            found[-1]["lines"].append(line.plain.strip().removeprefix("- "))
        else:
            found.append({"title": line.plain, "lines": []})
    return found


def read_data(report: ReadReport) -> list[str]:
    """Return what was read, and what of it was lost."""
    return [line.plain.strip().removeprefix("- ") for line in read_footer(report, ENDLESS)]


def plain_lines(lines: Sequence[Text], indent: int) -> list[str]:
    """Return lines of the terminal's report without their indent."""
    return [line.plain[indent:] if line.plain[:indent].isspace() else line.plain for line in lines]


def cleaned(value: Any) -> Any:
    """Return plain objects in which no text holds a character that acts: each is spelt out, as in a terminal."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): cleaned(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [one if one is None or type(one) in {int, float} else cleaned(one) for one in value]
    return value
