"""A run that failed before its budget: another run of the same server stands in, with this one's settings and tenants.

Its own settings are known from its arguments, and what others held on its cards from the lists of the cards' processes;
what it never came to are the weights and all after them, which are the same in another start of the same server.
"""

from __future__ import annotations

from typing import Final

from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.inputs import DEFAULT, FLAGS, Inputs, without_repeats
from sglang_probe.explain.plan.like import refuse_another_server
from sglang_probe.explain.plan.model import Change
from sglang_probe.explain.plan.server import server_of
from sglang_probe.explain.plan.tenants import held_by_others
from sglang_probe.explain.scaling import MOST_SIZES
from sglang_probe.explain.subject import Subject
from sglang_probe.explain.told import Told, largest_of
from sglang_probe.timeline.model import Run

PHASES: Final = {
    "server_args": "while its arguments were read",
    "dist.init": "while its ranks were connected",
    "weights.load": "while its weights were loaded",
    "kv.profile": "while the memory for its KV cache was computed",
}


def failed_early(run: Run) -> str:
    """Return in plain words where a run ended that has no budget."""
    if run.outcome in {"ready", "starting", "unknown"} or run.failed_phase is None:
        return f"run {run.run_id} ({run.outcome}) has not recorded how the memory for its KV cache was computed"
    where = PHASES.get(run.failed_phase)
    said = f"{where} ({run.failed_phase})" if where else f"in {run.failed_phase}"
    return f"run {run.run_id} {run.outcome} {said}, before it was known what the KV cache could have"


def settings_in(run: Run, like: Facts) -> Inputs:
    """Return what an early failure was started with, and who was on its cards, as far as it differs from `like`.

    Raises:
        CannotPlan: they are not starts of the same server.
    """
    refuse_another_server(run.run_id, server_of(run), like)
    told, subject = Told(run), Subject(run)
    fraction = told.effective.get("mem_fraction_static")
    asked = Inputs(
        mem_fraction_static=fraction if isinstance(fraction, float) and 0 < fraction < 1 else None,
        cuda_graph_max_bs=largest_of(told, ()),
        max_running_requests=told.count("max_running_requests") or DEFAULT,
        context_length=told.count("context_length") or (DEFAULT if like.context_given else None),
        chunked_prefill_size=told.count("chunked_prefill_size"),
        max_total_tokens=told.count("max_total_tokens") or DEFAULT,
        page_size=told.count("page_size", most=MOST_SIZES),
        custom_all_reduce=told.effective.get("disable_custom_all_reduce") is not True,
        tenants={rank: held.now for rank, held in held_by_others(subject).items() if held.now},
    )
    if not told.effective:
        asked = Inputs(tenants=asked.tenants)
    return without_repeats(like, asked)


def without_tenants(own: Inputs, asked: Inputs) -> Change | None:
    """Return that what others held on the cards of an early failure is asked to be given back; None: it is not."""
    held = max((own.tenants or {}).values(), default=0)
    if asked.tenants is None or not held:
        return None
    return Change(flag=FLAGS["tenants"], run=held, planned=max(asked.tenants.values(), default=0))


def with_own_tenants(changes: tuple[Change, ...], own: Change | None) -> tuple[Change, ...]:
    """Return the changes from the run that stands in, with those of others' memory from the failure itself."""
    return changes if own is None else (*(one for one in changes if one.flag != own.flag), own)
