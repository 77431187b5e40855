"""The tables of what explains a run: `findings`, and `levers`, what can be done."""

from __future__ import annotations

from typing import Final, NamedTuple

from sglang_probe.explain.model import Finding, Lever, RunFindings
from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, JSON, TEXT, WORD, WORDS
from sglang_probe.report.tables.spec import RUN, Column, Facts, Frame, Table

_FINDING: Final = Column(
    "finding", COUNT, "its place among the run's findings, from 0: the first leads", "index", required=True
)


class _Row(NamedTuple):
    run: RunFindings
    index: int
    finding: Finding


def _rows(facts: Facts) -> list[_Row]:
    runs = facts.material.explanation.runs
    return [_Row(run, index, finding) for run in runs for index, finding in enumerate(run.findings)]


FINDINGS: Final = Table(
    "findings",
    "what explains a run: `explain`, as rows",
    "a finding (`run_id`, `launch`, `finding` name it)",
    (
        *RUN,
        _FINDING,
        Column("rule", WORD, "the rule that found it", "finding.rule", required=True),
        Column("severity", WORD, "error, warning or info", "finding.severity", required=True),
        Column("confidence", WORD, "certain, likely or possible", "finding.confidence", required=True),
        Column("ranks", WORDS, "labels; empty: the run as a whole", "finding.ranks", required=True),
        Column("says", TEXT, "what it is, with figures in GiB", "finding.says", required=True),
        Column("numbers", JSON, "the same figures, by their names in `timeline`", "finding.numbers", required=True),
        Column("formula", TEXT, "with the values put in", "finding.formula"),
        Column("notes", WORDS, "what was checked, and what is not known", "finding.notes", required=True),
        Column("doc", TEXT, "where the rule is explained", "finding.doc", required=True),
    ),
    lambda facts: Frame(_rows(facts), facts),
)


class _LeverRow(NamedTuple):
    run: RunFindings
    index: int
    lever_index: int
    lever: Lever


def _levers(facts: Facts) -> Frame:
    rows = [
        _LeverRow(row.run, row.index, place, lever)
        for row in _rows(facts)
        for place, lever in enumerate((row.finding.lever, *row.finding.levers))
        if lever is not None
    ]
    return Frame(rows, facts)


LEVERS: Final = Table(
    "levers",
    "what can be done about a finding, and what it gives",
    "something to do (`run_id`, `launch`, `finding`, `lever` name it)",
    (
        *RUN,
        _FINDING,
        Column(
            "lever",
            COUNT,
            "0: the first thing to do; then what else would help, most first",
            "lever_index",
            required=True,
        ),
        Column("flag", WORD, "the flag that does it; NULL where it is none", "lever.flag"),
        Column("value", JSON, "what to set it to", "lever.value"),
        Column("gain_bytes", BYTES, "what it gives the tightest rank; NULL: unknown", "lever.gain_bytes"),
        Column("gain_tokens", COUNT, "the same in KV tokens", "lever.gain_tokens"),
        Column("enough", FLAG, "it alone would have let the run start; NULL: unknown", "lever.enough"),
        Column("basis", WORD, "given, measured, scaled, assumed or unknown", "lever.basis", required=True),
        Column("says", TEXT, "in one sentence", "lever.says", required=True),
    ),
    _levers,
)
