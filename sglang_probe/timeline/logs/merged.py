"""Events and a log of one run -> one Run: the events' exact figures stand, and what only the log knows is added.

What is added keeps the log's precision: `precision_bytes` of a step, the precisions of a budget. Nothing of the events
is replaced by the log's word; where the two disagree, `log_check` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sglang_probe.collect.logs.model import RANK_TOKENS, LogRun
from sglang_probe.timeline.log_model import LogCheck
from sglang_probe.timeline.logs.checked import checked
from sglang_probe.timeline.logs.figures import ranks_by_label
from sglang_probe.timeline.logs.same import Match
from sglang_probe.timeline.model import Missing, Process, Provenance, Run, Step, Worker
from sglang_probe.timeline.processes import ranks_of

_OPEN: Final = frozenset({"unknown", "starting"})
_TOLD: Final = frozenset({"ready", "failed", "died"})


class Told(NamedTuple):
    """A start read out of a log: what was read, and the run that it makes."""

    log: LogRun
    run: Run


def merged(run: Run, told: Told, found: Match) -> Run:
    """Return the run of both. `run` is of events, and may have taken in another node's log already."""
    log = told.run
    check = checked(told.log, run, log, found)
    extra = _extra(run, log)
    return msgspec.structs.replace(
        run,
        source="both",
        **_outcome(run, log),
        ready_s=run.ready_s if run.ready_s is not None else log.ready_s,
        provenance=_provenance(run.provenance, log.provenance),
        processes=_processes(run, log, extra),
        later=run.later + log.later,
        missing=_missing(run, extra),
        notes=(*run.notes, *(log.notes if extra else told.log.notes), *_notes(extra, told.log)),
        remarks=run.remarks + log.remarks,
        local_started=_of(min, run.local_started, log.local_started),
        local_ended=_of(max, run.local_ended, log.local_ended),
        log_check=check if run.log_check is None else _both(run.log_check, check),
    )


def _of(pick: Callable[[list[str]], str], *stamps: str | None) -> str | None:
    known = [stamp for stamp in stamps if stamp is not None]
    return pick(known) if known else None


def _both(one: LogCheck, other: LogCheck) -> LogCheck:
    """Return the checks of two logs of one run, as of two nodes."""
    return LogCheck(
        files=one.files + other.files,
        reasons=one.reasons + other.reasons,
        offset_s=one.offset_s if one.offset_s == other.offset_s else None,
        compared=one.compared + other.compared,
        agree=one.agree + other.agree,
        arguments_compared=one.arguments_compared + other.arguments_compared,
        explained=one.explained + other.explained,
        disagreements=one.disagreements + other.disagreements,
    )


def _outcome(run: Run, log: Run) -> dict[str, Any]:
    """Return what the log knows of the end, where the events do not; and the text of an error that no event has."""
    if run.outcome in _OPEN and log.outcome in _TOLD:
        return {
            "outcome": log.outcome,
            "outcome_reason": f"by its log: {log.outcome_reason or log.outcome}",
            "failed_phase": log.failed_phase,
            "failed_label": log.failed_label,
            "failure": run.failure if run.failure is not None else log.failure,
            "lost_peer": log.lost_peer if run.failure is None else run.lost_peer,
        }
    if run.outcome in {"failed", "died"} and run.failure is None and log.failure is not None:
        return {"failure": log.failure, "lost_peer": log.lost_peer}
    return {}


def _provenance(own: Provenance, theirs: Provenance) -> Provenance:
    """Complete what the events say; an argument that no event has is the log's."""
    effective = {**(theirs.effective or {}), **(own.effective or {})}
    versions = {**theirs.versions, **{name: known for name, known in own.versions.items() if known is not None}}
    return msgspec.structs.replace(
        own,
        sglang_version=own.sglang_version or theirs.sglang_version,
        versions=versions,
        effective=effective or None,
    )


def _extra(run: Run, log: Run) -> tuple[Process, ...]:
    """Return the ranks that the log speaks of and that wrote no events."""
    known = {(process.label or "").rpartition(":")[2] for process in ranks_of(run)}
    return tuple(process for process in ranks_of(log) if process.label not in known)


def _missing(run: Run, extra: Sequence[Process]) -> tuple[Missing, ...]:
    """Leave out the ranks that the log has: what is known of them stands among the processes."""
    kept = list(run.missing)
    for process in extra:
        tensor = None if process.rank is None or process.rank.tp is None else process.rank.tp.rank
        gone = next((one for one in kept if one.world_rank == tensor), kept[-1] if kept else None)
        if gone is not None:
            kept.remove(gone)
    return tuple(kept)


def _notes(extra: Sequence[Process], log: LogRun) -> Iterator[str]:
    if extra:
        names = ", ".join(process.label or "" for process in extra[:4]) + (" and more" if len(extra) > 4 else "")
        yield f"{names} wrote no events: what is known of them is what {log.name} has"


def _processes(run: Run, log: Run, extra: Sequence[Process]) -> tuple[Process, ...]:
    theirs = {process.label: process for process in ranks_of(log)}
    names = {id(process): name for name, process in ranks_by_label(run).items()}
    completed = [
        process if (found := theirs.get(names.get(id(process), ""))) is None else _completed(process, found)
        for process in run.processes
    ]
    before = [one for one in completed if one.label is None and one.role in {"launcher", "dp_controller"}]
    ranks = [one for one in completed if one.label is not None]
    after = [one for one in completed if one.label is None and one.role not in {"launcher", "dp_controller"}]
    ranks = sorted([*ranks, *extra], key=_order) if extra else ranks
    return (*before, *ranks, *after)


def _order(process: Process) -> tuple[int, ...]:
    numbers = dict(re.findall(r"([A-Z_]+)(\d+)", process.label or ""))
    return tuple(int(numbers.get(token, -1)) for token in RANK_TOKENS)


def _completed(process: Process, theirs: Process) -> Process:
    """Add to a rank what only its log has: steps of phases that no event is of, figures that no event gives."""
    steps = [_with_figures(step, _same(step, process.steps, theirs.steps)) for step in process.steps]
    return msgspec.structs.replace(
        process,
        steps=tuple(_with_phases(steps, theirs.steps)),
        workers=tuple(_workers(process.workers, theirs.workers)),
    )


def _same(step: Step, own: Sequence[Step], theirs: Sequence[Step]) -> Step | None:
    """Return the log's step that is this one; None where it is not the only one of its phase, on either side."""
    alike = [one for one in own if _key(one) == _key(step) and one.detail == step.detail]
    found = [one for one in theirs if _key(one) == _key(step)]
    exact = [one for one in found if one.detail == step.detail] or [one for one in found if one.detail is None]
    return exact[0] if len(alike) == len(exact) == 1 else None


def _key(step: Step) -> tuple[str, bool, int]:
    return step.phase, step.worker == "draft", step.draft_index or 0


def _with_figures(step: Step, told: Step | None) -> Step:
    """Give a step the figures that the probe could not read. One that has a figure of its own keeps it exact, and the
    log's stand among its attributes."""
    if told is None:
        return step
    lacking = {name: getattr(told, name) for name in _FIGURES if getattr(step, name) is None}
    lacking = {name: value for name, value in lacking.items() if value is not None}
    if not lacking:
        return step
    if all(getattr(step, name) is None for name in _FIGURES):
        return msgspec.structs.replace(step, **lacking, null_reason=None, precision_bytes=told.precision_bytes)
    said = {f"log_{name}": value for name, value in lacking.items() if name != "delta_bytes"}
    attributes = {**step.attributes, **said, "log_precision_bytes": told.precision_bytes, "log_place": _place(told)}
    return msgspec.structs.replace(step, attributes=attributes) if said else step


_FIGURES: Final = ("free_before_bytes", "free_bytes", "delta_bytes", "cost_bytes")


def _place(step: Step) -> str:
    """Return file:line of a log's step, whose id begins with them."""
    match = re.match(r"(.*?:\d+):", step.id)
    return match[1] if match else step.id


def _with_phases(own: list[Step], theirs: Sequence[Step]) -> list[Step]:
    """Add the log's outermost steps of phases that no event is of, where the order of the text puts them."""
    have = {_key(step) for step in own}
    root = next((step for step in own if step.parent is None and step.phase == "scheduler.init"), None)
    order = [step.phase for step in theirs]
    found = list(own)
    for step in theirs:
        if _key(step) in have or (step.parent is None and root is not None):
            continue
        later = set(order[order.index(step.phase) + 1 :]) - {step.phase}
        place = next((at for at, one in enumerate(found) if one.depth <= 1 and one.phase in later), len(found))
        parent = step.parent if root is None else root.id if step.depth <= 1 else step.parent
        found.insert(place, msgspec.structs.replace(step, parent=parent))
    return found


def _workers(own: Sequence[Worker], theirs: Sequence[Worker]) -> Iterator[Worker]:
    table = {(one.worker, one.draft_index or 0): one for one in theirs}
    for worker in own:
        told = table.pop((worker.worker, worker.draft_index or 0), None)
        yield worker if told is None else _worker(worker, told)
    yield from table.values()


def _worker(worker: Worker, told: Worker) -> Worker:
    """Complete a model. A budget of which no term was seen is the log's as a whole: terms of two sources do not mix."""
    lacking = worker.weights_bytes is None and told.weights_bytes is not None
    unseen = worker.budget is None or worker.budget.step is None
    return msgspec.structs.replace(
        worker,
        weights_bytes=told.weights_bytes if lacking else worker.weights_bytes,
        weights_precision_bytes=told.weights_precision_bytes if lacking else worker.weights_precision_bytes,
        weights_reason=None if lacking else worker.weights_reason,
        model_class=worker.model_class or told.model_class,
        budget=told.budget if unseen and told.budget is not None else worker.budget,
        kv=worker.kv if worker.kv is not None else told.kv,
    )
