"""The KV budget of a worker: the terms of `kv.profile`, with what lies around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang_probe.timeline.model import Budget, Step
from sglang_probe.timeline.values import as_number, flag, given_flag, integer, number, table, text


def budget_of(steps: Sequence[Step], worker: str, index: int | None, given: dict[str, Any] | None) -> Budget | None:
    """Return a worker's budget; None where neither its profile nor (for a target) its pre-load memory is known.

    `steps` are those of the process. A draft without a profile of its own has none: its target's pool decides.
    """
    own = [step for step in steps if step.worker == worker and step.draft_index == index]
    profile = next((step for step in reversed(own) if step.phase == "kv.profile"), None)
    inits = (step for step in reversed(steps) if step.phase == "dist.init" and step.state == "ok")
    init = next((step for step in inits if step.worker in (worker, None)), None)  # a draft has one too
    if profile is None and (init is None or worker != "target"):
        return None
    terms = {} if profile is None else profile.attributes
    said = {} if init is None else init.attributes
    pre_load = integer(terms, "pre_load_bytes")
    return Budget(
        pre_load_bytes=integer(said, "pre_load_bytes") if pre_load is None else pre_load,
        available_bytes=integer(terms, "available_bytes"),
        pre_load_local_bytes=None if init is None else init.free_bytes,
        available_local_bytes=integer(terms, "available_local_bytes"),
        mem_fraction_static=number(terms, "mem_fraction_static"),
        mem_fraction_static_given=as_number(given_flag(given, "mem_fraction_static")),
        static_budget_bytes=integer(terms, "static_budget_bytes"),
        slack_bytes=integer(terms, "slack_bytes"),
        deductions={name: taken for name, taken in table(terms, "deductions").items() if isinstance(taken, int)},
        rest_bytes=integer(terms, "rest_bytes"),
        bytes_per_token=integer(terms, "bytes_per_token"),
        result=integer(terms, "result"),
        result_unit=text(terms, "result_unit"),
        minimum_viable_fraction=number(terms, "minimum_viable_fraction"),
        minimum_viable_fraction_reason=_why_no_minimum(profile, terms),
        minimum_viable_fraction_printed=number(terms, "minimum_viable_fraction_printed"),
        verified=flag(terms, "verified"),
        verified_reason=text(terms, "verified_reason") or ("kv.profile never began" if profile is None else None),
        formula=text(terms, "formula"),
        state=None if profile is None else profile.state,
        step=None if profile is None else profile.id,
    )


def _why_no_minimum(profile: Step | None, terms: dict[str, Any]) -> str | None:
    if number(terms, "minimum_viable_fraction") is not None:
        return None
    if profile is None:
        return "kv.profile never began"
    return text(terms, "minimum_viable_fraction_reason") or "the event does not say"
