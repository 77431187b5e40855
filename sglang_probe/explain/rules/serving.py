"""Rules about a server that is ready: what it serves with; and about a record that is not complete."""

from __future__ import annotations

from collections.abc import Iterator

from sglang_probe.explain.feasible import at_least, interval_of
from sglang_probe.explain.model import Finding
from sglang_probe.explain.rules.log_cache import kv_cache_in_a_log
from sglang_probe.explain.rules.memory import SCARCE
from sglang_probe.explain.set_aside import end_of_start, rule_of_thumb
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import gib, number
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.model import Kv


def kv_cache(subject: Subject) -> Iterator[Finding]:
    """What the server serves with, and what limited it."""
    if subject.is_log:
        yield from kv_cache_in_a_log(subject, _limits(subject, _given(subject), _free(subject)))
        return
    if subject.run.outcome not in {"ready", "unknown"}:
        return
    kvs = [(process, worker) for process in subject.ranks for worker in process.workers
           if worker.worker == "target" and worker.kv is not None and worker.kv.tokens is not None]  # fmt: skip
    if not kvs:
        return
    _, worker = min(kvs, key=lambda pair: (pair[1].kv.tokens if pair[1].kv is not None else 0) or 0)
    kv = worker.kv
    if kv is None:
        return
    token = token_bytes(worker)
    size = "" if kv.bytes is None else f", {gib(kv.bytes)} GiB on each rank"
    each = "" if token is None else f" of {number(token)} B"
    free = _free(subject)
    spare = "" if free is None else f" {gib(free)} GiB stay free on the fullest device."
    yield Finding(
        rule="kv_cache",
        severity="info",
        says=f"The KV cache has {number(kv.tokens)} tokens{each}{size}.{spare} {_limit(subject, kv, free)}",
        numbers={
            "tokens": kv.tokens,
            "bytes": kv.bytes,
            "bytes_per_token": token,
            "limited_by": kv.limited_by,
            "profiled_tokens": kv.profiled_tokens,
            "free_bytes": free,
        },
        notes=tuple(_wanted(subject, kv)),
        confidence="certain" if kv.limited_by is not None else "likely",
    )


def _wanted(subject: Subject, kv: Kv) -> Iterator[str]:
    """Say whether the tokens that were asked for are there, and which fraction would give them."""
    wanted, seat = subject.wanted_tokens, subject.tightest
    if not wanted or kv.tokens is None:
        return
    if kv.tokens >= wanted:
        yield f"the {number(wanted)} tokens that you ask for fit"
        return
    interval = None if seat is None else interval_of(subject, seat, wanted)
    if interval is None:
        yield f"the {number(wanted)} tokens that you ask for do not fit"
    elif interval.lowest >= 1 or interval.empty_by_bytes is not None:
        short = gib(interval.empty_by_bytes or 0)
        yield (
            f"no fraction gives the {number(wanted)} tokens that you ask for: empty by {short} GiB (`plan` says"
            " what would)"
        )
    else:
        yield f"the {number(wanted)} tokens that you ask for need --mem-fraction-static {at_least(interval.lowest)}"


def incomplete(subject: Subject) -> Iterator[Finding]:
    """What was recorded is not all: findings may be missing, and none of them is wrong for it."""
    run = subject.run
    says = list(run.health.says)
    if run.unread_files:
        files = "1 file" if run.unread_files == 1 else f"{number(run.unread_files)} files"
        says.insert(0, f"{files} of this run lie beside and were not given")
    if says:
        yield Finding(
            rule="incomplete",
            severity="warning",
            says=f"The record is not complete: {'; '.join(says[:4])}. What is said here holds; there may be more.",
            numbers={"lost_events": run.health.lost_events, "missing": [one.world_rank for one in run.missing]},
            confidence="certain",
        )


def _limit(subject: Subject, kv: Kv, free: int | None) -> str:
    return _limits(subject, kv.max_total_tokens_given, free).get(kv.limited_by or "", "What limits it is not known.")


def _limits(subject: Subject, given: int | None, free: int | None) -> dict[str, str]:
    """Return what can limit the tokens, and how a person says it."""
    thumb = rule_of_thumb(subject)
    spare = free is not None and thumb is not None and free > thumb.bytes
    little = free is not None and thumb is not None and free < thumb.bytes * SCARCE
    more = ": a higher --mem-fraction-static gives more" if spare else ", and what is free is for serving's activations"
    more = "" if little else more  # the rule of the reserve says that it is too little
    return {
        "memory": f"Memory limits it{more}.",
        "max_total_tokens": f"--max-total-tokens {number(given)} limits it, not memory.",
        "pp_min": "The poorest pipeline stage limits it.",
        "target": "The target's number of tokens limits it.",
        "post_capture": "It was sized again from what the graphs left.",
    }


def _free(subject: Subject) -> int | None:
    """Return what was free at the end of the start on the fullest device."""
    return min((left for one in subject.ranks if (left := end_of_start(one)) is not None), default=None)


def _given(subject: Subject) -> int | None:
    kvs = (worker.kv for process in subject.ranks for worker in process.workers)
    return next((kv.max_total_tokens_given for kv in kvs if kv is not None and kv.max_total_tokens_given), None)
