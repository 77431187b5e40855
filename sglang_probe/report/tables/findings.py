"""The tables of what explains a run: `findings`, and `levers`, what can be done."""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from sglang_probe.explain.model import Finding, Lever
from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, JSON, TEXT, WORD, WORDS
from sglang_probe.report.tables.spec import RUN, Column, Facts, Frame, Part, Table, of, owners

_PLACE: Final = Column("finding", COUNT, "its place among the run's findings, from 0: the first leads", "number", True)


class _Placed(NamedTuple):
    number: int
    finding: Finding


def _findings(facts: Facts) -> Frame:
    runs = facts.whole.material.explanation.runs
    rows = list(chain.from_iterable(run.findings for run in runs))
    numbered = [_Placed(number, one) for run in runs for number, one in enumerate(run.findings)]
    return Frame(rows, {"owner": owners(runs, (len(run.findings) for run in runs)), "placed": Part(numbered)})


FINDINGS: Final = Table(
    "findings",
    "what explains a run: `explain`, as rows",
    "a finding (`run_id`, `launch`, `finding` name it)",
    (
        *RUN,
        *of("placed", _PLACE),
        Column("rule", WORD, "the rule that found it", required=True),
        Column("severity", WORD, "error, warning or info", required=True),
        Column("confidence", WORD, "certain, likely or possible", required=True),
        Column("ranks", WORDS, "labels; empty: the run as a whole", required=True),
        Column("says", TEXT, "what it is, with figures in GiB", required=True),
        Column("numbers", JSON, "the same figures, by their names in `timeline`", required=True),
        Column("formula", TEXT, "with the values put in"),
        Column("notes", WORDS, "what was checked, and what is not known", required=True),
        Column("doc", TEXT, "where the rule is explained", required=True),
    ),
    _findings,
)


class _PlacedLever(NamedTuple):
    number: int
    """Of its finding."""
    lever_number: int
    lever: Lever


def _levers(facts: Facts) -> Frame:
    runs = facts.whole.material.explanation.runs
    found = [
        [
            _PlacedLever(number, place, lever)
            for number, finding in enumerate(run.findings)
            for place, lever in enumerate((finding.lever, *finding.levers))
            if lever is not None
        ]
        for run in runs
    ]
    rows = list(chain.from_iterable(found))
    return Frame([one.lever for one in rows], {"owner": owners(runs, map(len, found)), "placed": Part(rows)})


LEVERS: Final = Table(
    "levers",
    "what can be done about a finding, and what it gives",
    "something to do (`run_id`, `launch`, `finding`, `lever` name it)",
    (
        *RUN,
        *of(
            "placed",
            _PLACE,
            Column("lever", COUNT, "0: the first thing to do; then what else helps, most first", "lever_number", True),
        ),
        Column("flag", WORD, "the flag that does it; NULL where it is none"),
        Column("value", JSON, "what to set it to"),
        Column("gain_bytes", BYTES, "what it gives the tightest rank; NULL: unknown"),
        Column("gain_tokens", COUNT, "the same in KV tokens"),
        Column("enough", FLAG, "it alone would have let the run start; NULL: unknown"),
        Column("basis", WORD, "given, measured, scaled, assumed or unknown", required=True),
        Column("says", TEXT, "in one sentence", required=True),
    ),
    _levers,
)
