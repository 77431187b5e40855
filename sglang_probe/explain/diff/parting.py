"""Where two runs part, of which one at least did not start for another reason than its budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sglang_probe.explain.diff.alike import brief
from sglang_probe.explain.diff.figures import NO_FACT, UNRECORDED, what_differs
from sglang_probe.explain.diff.links import name_of
from sglang_probe.explain.diff.model import Cause, Row
from sglang_probe.explain.diff.names import called
from sglang_probe.explain.diff.provenance import counted
from sglang_probe.explain.diff.ranks import Key, by_label, keyed_steps
from sglang_probe.explain.diff.shortage import pool_proof
from sglang_probe.explain.diff.sides import error_of
from sglang_probe.explain.diff.tenants import tenants_on
from sglang_probe.explain.diff.values import SAME_TENANT, is_tenants
from sglang_probe.explain.diff.wording import tenants_in_words, told
from sglang_probe.figures import gib
from sglang_probe.timeline.model import Process, Run, Step
from sglang_probe.timeline.processes import is_cpu, last_ledger

ENDED: Final = frozenset({"error", "died"})
"""Share by which what is missing may differ from what a tenant holds: NVML counts a process a little short."""


UNKNOWN_CAUSE: Final = f"{UNRECORDED}, so what made the difference is unknown"


class Proof(NamedTuple):
    """Numbers that a failure is made of, and whether the other side's tenants are the whole of it."""

    says: str
    tenants: bool


def phase_cause(
    runs: tuple[Run, Run], rows: Sequence[Row], names: Sequence[str], *, unknown: bool = False
) -> Cause | None:
    """Return where the runs part and what is known of the reason; None where both started. `unknown`: no fact that a
    person sets is known of both."""
    worse = _earlier(runs)
    if worse is None:
        return None
    failed, other = runs[worse], runs[1 - worse]
    where = _where(failed, other, called(names[worse]), called(names[1 - worse]))
    pool = pool_proof(failed, other, rows)
    if pool is not None:
        return Cause(
            side=names[1],
            part="phase",
            differences=pool.differences,
            explains=True,
            says=f"{where}; {pool.says}",
        )
    proof = _proof(failed, other)
    real = counted(rows)
    tenants = [row for row in real if row.group == "tenants"]
    says = [where, *([proof.says] if proof else [])]
    settled = proof is not None and proof.tenants and bool(tenants)
    if settled and tenants_in_words(tenants, worse):
        says.append(f"{tenants_in_words(tenants, worse)}, explains it")
    else:
        says.append(f"{UNKNOWN_CAUSE}{what_differs(runs)}" if unknown and not real else _blame(real))
    return Cause(
        side=names[1],
        part="phase",
        differences=tuple(name_of(row) for row in (tenants if settled else real)),
        explains=True if settled else None if real or unknown else False,
        says="; ".join(says),
    )


def parting(runs: tuple[Run, Run], names: Sequence[str]) -> Cause | None:
    """Return where the runs part, and no more: for where the reason is proven already."""
    worse = _earlier(runs)
    if worse is None:
        return None
    says = _where(runs[worse], runs[1 - worse], called(names[worse]), called(names[1 - worse]))
    return Cause(side=names[1], part="phase", explains=None, says=says)


def _blame(real: Sequence[Row]) -> str:
    if not real:
        return f"{NO_FACT}, as far as it counts, so what made the difference was not recorded"
    if len(real) == 1:
        return f"the only recorded difference that counts: {told(real[0])}"
    return f"which of {len(real)} recorded differences made it cannot be told from numbers"


def _earlier(runs: tuple[Run, Run]) -> int | None:
    """Return which of two runs ended first on its way; None where both started, or it is not known of either."""
    ended = [side for side, run in enumerate(runs) if run.outcome in {"failed", "died"}]
    if len(ended) < 2:
        return ended[0] if ended else None
    first, second = runs
    order = [step.phase for rank in by_label(second).values() for step in rank.steps]
    reached = (first.failed_phase, second.failed_phase)
    if None in reached or first.failed_phase not in order or second.failed_phase not in order:
        return 1
    return 0 if order.index(str(first.failed_phase)) < order.index(str(second.failed_phase)) else 1


def _where(failed: Run, other: Run, name: str, other_name: str) -> str:
    phase = failed.failed_phase or "a phase that is not known"
    reason = f" ({brief(error)})" if (error := error_of(failed)) else ""
    if other.outcome == failed.outcome and other.failed_phase == failed.failed_phase:
        return f"both {'end' if failed.outcome == 'died' else 'fail'} in {phase}{reason}"
    who = f" on {failed.failed_label}" if failed.failed_label else ""
    verb = "dies" if failed.outcome == "died" else "fails"
    if other.outcome == "unknown" and not _passed(other, failed.failed_phase):
        return f"{name} {verb} in {phase}{who}{reason}, and how {other_name} ended is not known"
    passed = "passed it" if _passed(other, failed.failed_phase) else "did not end there"
    return f"they part in {phase}: {name} {verb} there{who}{reason}, {other_name} {passed}"


def _passed(run: Run, phase: str | None) -> bool:
    return any(step.phase == phase and step.state == "ok" for rank in by_label(run).values() for step in rank.steps)


def _proof(failed: Run, other: Run) -> Proof | None:
    """Return the memory that was missing, on the rank where it was, if any was."""
    mine, others = by_label(failed), by_label(other)
    label = failed.failed_label
    if label in mine and label in others:
        proof = _short(mine[label], others[label], str(label))
        if proof is not None:
            return proof
    found = (_less_free(mine[name], others[name], name) for name in mine if name in others)
    return next((proof for proof in found if proof is not None), None)


def _short(failed: Process, other: Process, label: str) -> Proof | None:
    """Return by how much the step that failed was short of what the same step took on the other side.

    Worked example: 4.004 GiB free before it, it took 4.250 on the other side; a tenant holds 135.793: without, 139.797.
    """
    step, same = _failed_step(failed, other)
    if step is None or same is None or step.free_before_bytes is None or same.cost_bytes is None or is_cpu(failed):
        return None
    missing = same.cost_bytes - step.free_before_bytes
    if missing <= 0:
        return None
    held = _held(failed) - _held(other)
    hold = f"other processes hold {gib(max(held, 0))} GiB more of its card"
    if tenants_on(failed) is None and held <= 0:
        hold = "who holds the rest of its card was not recorded"
    says = (
        f"{label} had {gib(step.free_before_bytes)} GiB free before {step.phase}, which takes"
        f" {gib(same.cost_bytes)} on the other side; {hold}"
    )
    return Proof(says, held >= missing)


def _failed_step(failed: Process, other: Process) -> tuple[Step | None, Step | None]:
    theirs = keyed_steps(other)
    ended = [(key, step) for key, step in keyed_steps(failed).items() if step.state in ENDED and key.phase in _ROLES]
    if not ended:
        return None, None
    key, step = max(ended, key=lambda one: one[1].depth)
    # What a step was for is said at its end: one that failed may not have come to it.
    alike = [one for their, one in theirs.items() if their._replace(detail=key.detail) == key and one.state == "ok"]
    return step, theirs.get(key) or next(iter(alike), None)


_ROLES: Final = frozenset({"weights.load", "kv.pool", "attention.init", "graph.capture", "allreduce.buffers"})
"""Phases that take memory."""


def _less_free(failed: Process, other: Process, label: str) -> Proof | None:
    """Return how much less was free on a rank at its last reading than on the other side at the same step."""
    if is_cpu(failed):
        return None
    theirs = keyed_steps(other)
    mine = [(key, step) for key, step in keyed_steps(failed).items() if _is_read(key, step, theirs)]
    if not mine:
        return None
    key, step = mine[-1]
    missing = (theirs[key].free_bytes or 0) - (step.free_bytes or 0)
    if missing < SAME_TENANT:
        return None
    held = _held(failed) - _held(other)
    pool = _pool(failed) - _pool(other)
    kept = f"its KV pool is {gib(pool)} GiB larger" if pool > held else f"others hold {gib(held)} GiB more of its card"
    hold = f": {kept}" if max(held, pool) >= SAME_TENANT else ""
    hold = "; who holds it was not recorded" if not hold and tenants_on(failed) is None else hold
    says = f"after {key.phase} {label} has {gib(missing)} GiB less free than on the other side{hold}"
    return Proof(says, is_tenants(held, missing))


def _is_read(key: Key, step: Step, theirs: dict[Key, Step]) -> bool:
    return step.free_bytes is not None and key in theirs and theirs[key].free_bytes is not None


def _held(rank: Process) -> int:
    return sum(one["bytes"] or 0 for one in tenants_on(rank) or ())


def _pool(rank: Process) -> int:
    step = last_ledger(rank)
    return (step.ledger.kv_pool if step is not None and step.ledger is not None else None) or 0
