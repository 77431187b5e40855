"""What is true of a run as a whole, as samples of metrics: how it ended, why, and how well the probe did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, get_args

from sglang_probe.explain.model import RunFindings
from sglang_probe.figures import exception_type
from sglang_probe.report.metrics import catalogue
from sglang_probe.report.metrics.cards import driver_version
from sglang_probe.report.metrics.catalogue import Sample
from sglang_probe.report.metrics.ranks import ROOT, shown_categories
from sglang_probe.report.names import clipped
from sglang_probe.report.series import NS, nanoseconds
from sglang_probe.timeline.kv_model import State
from sglang_probe.timeline.model import Health, Run, RunOutcome
from sglang_probe.timeline.processes import first_step, last_ledger, ranks_of

STATES: Final = (*get_args(State), "none", "missing")


def run_samples(run: Run, name: str, findings: RunFindings) -> Iterator[Sample]:
    """Yield what is known of a run; of its health only where the probe was there, which in a log it was not."""
    yield Sample(catalogue.RUN_INFO, (name, *_made_of(run)), 1)
    for outcome in get_args(RunOutcome):
        yield Sample(catalogue.OUTCOME, (name, outcome), outcome == run.outcome)
    yield from _failure(run, name)
    yield Sample(catalogue.READY, (name,), run.ready_s)
    for metric, stamp in ((catalogue.BEGAN, run.started), (catalogue.LAST_EVENT, run.ended)):
        at = nanoseconds(stamp)
        yield Sample(metric, (name,), None if at is None else at / NS)
    yield from _ranks(run, name)
    yield from _findings(findings, name)
    if run.source != "log":
        yield from _health(run.health, name)
    yield from _unknowns(run, name)


def _made_of(run: Run) -> tuple[str, ...]:
    made = run.provenance
    versions = [clipped(made.versions.get(one) or "") for one in ("torch", "cuda", "nccl")]
    others = [clipped(made.versions.get(one) or "") for one in ("python", "probe")]
    dirty = "" if made.sglang_dirty is None else str(made.sglang_dirty).lower()
    model = clipped((made.effective or {}).get("model_path") or "")
    sglang = (clipped(made.sglang_version or ""), clipped(made.sglang_commit or ""), dirty)
    return (run.source, model, *sglang, *versions, driver_version(run), *others)


def _failure(run: Run, name: str) -> Iterator[Sample]:
    if run.outcome in {"failed", "died"}:
        kind = "" if run.failure is None else exception_type(run.failure.type)
        labels = (name, *(clipped(one or "") for one in (run.failed_phase, run.failed_label, kind)))
        yield Sample(catalogue.FAILURE_INFO, labels, 1)


def _ranks(run: Run, name: str) -> Iterator[Sample]:
    """Count the ranks by state: every state is there, for none of them is unknown."""
    roots = [first_step(process, ROOT) for process in ranks_of(run)]
    counts = Counter("none" if root is None else root.state for root in roots)
    counts["missing"] = len(run.missing)
    for state in STATES:
        yield Sample(catalogue.RANKS, (name, state), counts[state])


def _findings(findings: RunFindings, name: str) -> Iterator[Sample]:
    counts = Counter((finding.rule, finding.severity) for finding in findings.findings)
    for (rule, severity), count in counts.items():
        yield Sample(catalogue.FINDINGS, (name, rule, severity), count)
    for leading in findings.findings[:1]:
        yield Sample(catalogue.LEADING_INFO, (name, leading.rule, leading.severity, leading.confidence), 1)


def _health(health: Health, name: str) -> Iterator[Sample]:
    yield Sample(catalogue.HEALTHY, (name,), health.ok)
    yield Sample(catalogue.LOST_EVENTS, (name,), health.lost_events)
    yield Sample(catalogue.DROPPED_EVENTS, (name,), health.dropped_events)
    yield Sample(catalogue.FAILED_HOOKS, (name,), len(health.failed_targets))
    for is_hooked, roles in ((False, health.absent_roles), (True, health.memory_roles)):
        for role in roles:
            yield Sample(catalogue.ROLE_HOOKED, (name, clipped(role)), is_hooked)
    degraded: Counter[tuple[str, str]] = Counter()
    for one in health.degraded:
        degraded[clipped(one.source), clipped(one.reason)] += one.count
    for (source, reason), count in degraded.items():
        yield Sample(catalogue.DEGRADATIONS, (name, source, reason), count)


def _unknowns(run: Run, name: str) -> Iterator[Sample]:
    """Count what is not known, and with it not in this report."""
    rows: Counter[tuple[str, str]] = Counter()
    steps: Counter[str] = Counter()
    for process in run.processes:
        steps.update(clipped(step.phase) for step in process.steps if step.self_delta_bytes is None)
        last = last_ledger(process)
        if last is not None and last.ledger is not None:
            unknown = (key for key in shown_categories(process) if getattr(last.ledger, key) is None)
            rows.update((key, clipped(last.ledger_reasons.get(key) or "not read")) for key in unknown)
    for (category, reason), count in rows.items():
        yield Sample(catalogue.UNKNOWN_MEMORY, (name, category, reason), count)
    for phase, count in steps.items():
        yield Sample(catalogue.UNKNOWN_COST, (name, phase), count)
