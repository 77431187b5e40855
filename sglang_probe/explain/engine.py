"""Runs the rules over a timeline: causes first, in the order of the rules, then what else was found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import msgspec

from sglang_probe.collect.logs.owners import NO_LINE, WROTE_IT
from sglang_probe.explain.model import Explanation, Finding, RunFindings
from sglang_probe.explain.rules import LAST, RULES
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import decimals
from sglang_probe.timeline.model import Run, Timeline

DOC: Final = "docs/explain.md"
_RANK: Final = {"error": 0, "warning": 1, "info": 2}
_AFTER_WARNINGS: Final = 1.5
OF_A_LOG: Final = 2
"""Decimals of a GiB in SGLang's lines."""


def explain(timeline: Timeline, wanted_tokens: int = 0) -> Explanation:
    """Return the findings about every run. `wanted_tokens` is what the KV cache should hold at least.

    The first finding of a run leads. One of severity error explains the failure; the order among those is that of the
    rules, and it is the same among the others. Where it is unknown how a run ended, where its record ends
    comes before all that only informs.
    """
    runs = tuple(_findings(run, wanted_tokens) for run in timeline.runs)
    return Explanation(runs=runs, read=timeline.read)


def _is_another_s(run: Run) -> bool:
    """Say whether another program wrote a log: it has none of SGLang's flags."""
    return any(note.startswith(NO_LINE) and note.endswith(WROTE_IT) for note in run.notes)


def _without_flags(finding: Finding) -> Finding:
    levers = tuple(one for one in (finding.lever, *finding.levers) if one is not None and one.flag is None)
    return msgspec.structs.replace(finding, lever=levers[0] if levers else None, levers=levers[1:])


def _findings(run: Run, wanted_tokens: int) -> RunFindings:
    subject = Subject(run, wanted_tokens)
    with as_printed((run,)):
        found = [finding for rule in RULES for finding in rule(subject)]
        if not any(finding.severity == "error" for finding in found):
            found = [*LAST(subject), *found]
    if _is_another_s(run):
        found = [_without_flags(finding) for finding in found]
    if subject.is_log:
        precision = max(_precisions(run), default=None)
        found = [_with_precision(finding, precision) for finding in found]
    found.sort(key=lambda finding: _place(run, finding))
    return RunFindings(
        run_id=run.run_id,
        launch=run.launch,
        outcome=run.outcome,
        failed_phase=run.failed_phase,
        findings=tuple(msgspec.structs.replace(one, doc=f"{DOC}#{anchor(one)}") for one in found),
    )


def as_printed(runs: Iterable[Run]) -> AbstractContextManager[None]:
    """Print GiB as what is shown bears: with two decimals where one of the runs is a log's."""
    return decimals(OF_A_LOG) if any(run.source == "log" for run in runs) else nullcontext()


def _precisions(run: Run) -> Iterator[int]:
    for process in run.processes:
        yield from (step.precision_bytes for step in process.steps if step.precision_bytes is not None)


def _with_precision(finding: Finding, precision: int | None) -> Finding:
    """Add how far off the figures of a log may be, where its rule does not say it of a sum of them."""
    known = any(name.endswith("_bytes") and value is not None for name, value in finding.numbers.items())
    if not known or precision is None or finding.numbers.get("precision_bytes") is not None:
        return finding
    return msgspec.structs.replace(finding, numbers={**finding.numbers, "precision_bytes": precision})


def _place(run: Run, finding: Finding) -> float:
    """Return by what the findings are ordered, the least first."""
    answers = run.outcome in {"unknown", "starting"} and finding.rule == "unfinished"
    return min(_RANK[finding.severity], _AFTER_WARNINGS) if answers else _RANK[finding.severity]


def anchor(finding: Finding) -> str:
    """Return the anchor of a finding's rule in the documentation."""
    return finding.rule.replace("_", "-")


def to_json(explanation: Explanation) -> dict[str, Any]:
    """Return the findings as plain objects that any JSON writer takes; what is unknown is null."""
    shaped: dict[str, Any] = msgspec.to_builtins(explanation)
    return shaped
