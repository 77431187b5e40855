"""Rules about runs that only a log tells of: what its lines add up to, and what they do not say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sglang_probe.explain.implied import Fraction, Implied, fraction_of, implied_of, looks_given
from sglang_probe.explain.log_tokens import pool_step
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.oom_message import shown
from sglang_probe.explain.phrases import signed
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import counted, fraction, gib, number
from sglang_probe.timeline.model import Process, Remark, Step

ESTIMATE: Final = "it was read after this rank's communicator existed, SGLang's own before: an estimate"
UNTOLD: Final = "what lies between is not in the text: an estimate"
"""Of a server of one rank, which has no communicator."""


def printed_memory(subject: Subject) -> Iterator[Finding]:
    """What the lines of a log add up to on each rank, and which ranks do not say."""
    if not subject.is_log:
        return
    weights = [worker.weights_bytes for process in subject.ranks for worker in process.workers
               if worker.worker == "target" and worker.weights_bytes is not None]  # fmt: skip
    pools = _costs(pool_step(process) for process in subject.ranks)
    graphs = _costs(_graph(process) for process in subject.ranks)
    parts = [("weights", weights), ("KV pools", pools), ("graphs", graphs)]
    known = [f"{name} {_span(sizes)} GiB{_each(len(sizes), len(subject.ranks))}" for name, sizes in parts if sizes]
    silent = f" {'print' if len(subject.ranks) > 1 else 'prints'} no cost" if subject.ranks else " in the text"
    shown = f": {', '.join(known)}" if known else silent
    yield Finding(
        rule="printed_memory",
        severity="info",
        says=f"{counted(len(subject.ranks), 'rank')}{shown}. What a rank did not print is unknown, not zero.",
        numbers={
            "ranks": len(subject.ranks),
            "weights_bytes": min(weights, default=None),
            "weights_most_bytes": max(weights, default=None),
            "kv_pool_bytes": min(pools, default=None),
            "graphs_bytes": min(graphs, default=None),
        },
        notes=subject.run.notes,
        confidence="certain",
    )


def _costs(steps: Iterable[Step | None]) -> list[int]:
    return [step.cost_bytes for step in steps if step is not None and step.cost_bytes is not None]


def _graph(process: Process) -> Step | None:
    return next((step for step in process.steps if step.phase == "graph.capture" and step.state == "ok"), None)


def _span(sizes: list[int]) -> str:
    least, most = gib(min(sizes)), gib(max(sizes))
    return least if least == most else f"{least} to {most}"


def _each(known: int, ranks: int) -> str:
    if ranks == 1:
        return ""
    return " each" if known == ranks else f" on {known} of them"


def implied_pre_load(subject: Subject) -> Iterator[Finding]:
    """What SGLang's tokens say of the pre-load memory, which no log prints as SGLang measured it."""
    implied = implied_of(subject)
    if subject.failed or implied is None or implied.tokens <= 0 or looks_given(implied.tokens):
        return
    told = fraction_of(subject, implied)
    if told is None:
        yield _by_fraction(implied)
        return
    means, off = implied.pre_load(told.value), implied.pre_load_off(told.value)
    apart = abs(means - implied.printed) > off + implied.precision
    if not apart:
        return  # the printed one gives these tokens: nothing is to be said
    if not implied.can_be(told.value):
        yield _no_pre_load(implied, told)
    elif means > implied.printed:  # of less than was printed later a cap may be the reason
        yield _finding(implied, told, means, off, ESTIMATE if len(subject.ranks) > 1 else UNTOLD)


def _no_pre_load(implied: Implied, told: Fraction) -> Finding:
    """No pre-load memory near the printed one gives these tokens: it is another term that is wrong."""
    kv = implied.seat.worker.kv
    capped = "" if kv is not None and kv.limited_by == "memory" else ", or --max-total-tokens limited them"
    slack = f"{gib(implied.printed)} x {fraction(1 - told.value)}"
    return Finding(
        rule="implied_pre_load",
        severity="info",
        says=f"With {fraction(told.value)} the KV budget would be {signed(implied.budget(told.value))} GiB by the"
        f" printed lines, and it was {gib(implied.rest)}: {number(implied.tokens)} tokens of"
        f" {number(implied.token.bytes)} B. No pre-load memory near the printed {gib(implied.printed)} GiB explains"
        f" that: a term of the budget is not in the text, or another fraction was in force (about"
        f" {implied.fraction:.3f}){capped}.",
        numbers={
            "implied_fraction": implied.fraction,
            "implied_fraction_precision": implied.fraction_off,
            "pre_load_printed_bytes": implied.printed,
            "available_bytes": implied.available,
            "rest_bytes": implied.rest,
            "mem_fraction_static": told.value,
            "bytes_per_token": implied.token.bytes,
            "precision_bytes": implied.precision,
        },
        formula=f"budget = {gib(implied.available)} - {slack} = {signed(implied.budget(told.value))} GiB;"
        f" observed = {number(implied.tokens)} x {number(implied.token.bytes)} B = {gib(implied.rest)} GiB;"
        f" 1 - ({gib(implied.available)} - {gib(implied.rest)}) / {gib(implied.printed)} ="
        f" {implied.fraction:.4f} +- {implied.fraction_off:.4f}",
        notes=(
            f"mem_fraction_static {fraction(told.value)}: {told.says}",
            f"a token takes {implied.token.says}",
        ),
        confidence="possible",
    )


def _finding(implied: Implied, told: Fraction, means: int, off: int, apart: str) -> Finding:
    verdict = (
        f"The pre-load memory that SGLang used was about {gib(means)} GiB (+- {gib(off)}), not the printed"
        f" {gib(implied.printed)}: {apart}"
    )
    slack = f"{gib(implied.printed)} x {fraction(1 - told.value)}"
    return Finding(
        rule="implied_pre_load",
        severity="info",
        says=f"The KV budget would be {gib(implied.budget(told.value))} GiB by the printed lines, and it was"
        f" {gib(implied.rest)}: {number(implied.tokens)} tokens of {number(implied.token.bytes)} B. {verdict}.",
        numbers={
            "pre_load_bytes": means,
            "pre_load_printed_bytes": implied.printed,
            "available_bytes": implied.available,
            "rest_bytes": implied.rest,
            "mem_fraction_static": told.value,
            "bytes_per_token": implied.token.bytes,
            "precision_bytes": off,
        },
        formula=f"budget = {gib(implied.available)} - {slack} = {gib(implied.budget(told.value))} GiB;"
        f" observed = {number(implied.tokens)} x {number(implied.token.bytes)} B = {gib(implied.rest)} GiB;"
        f" pre-load = ({gib(implied.available)} - {gib(implied.rest)}) / {fraction(1 - told.value)} = {gib(means)}"
        f" +- {gib(off)} GiB",
        notes=(
            f"mem_fraction_static {fraction(told.value)}: {told.says}",
            f"a token takes {implied.token.says}",
            f"each figure is good to half of its last decimal; dividing by {fraction(1 - told.value)} multiplies that",
        ),
        confidence="possible" if told.assumed else "likely",
    )


def _by_fraction(implied: Implied) -> Finding:
    return Finding(
        rule="implied_pre_load",
        severity="info",
        says=f"The log does not name mem_fraction_static. {number(implied.tokens)} tokens of"
        f" {number(implied.token.bytes)} B are {gib(implied.rest)} GiB: of the printed {gib(implied.printed)} GiB"
        f" before the weights that is a fraction of about {implied.fraction:.3f}, or somewhat more, for what SGLang"
        " measured before the communicator existed is larger.",
        numbers={
            "implied_fraction": implied.fraction,
            "pre_load_printed_bytes": implied.printed,
            "available_bytes": implied.available,
            "rest_bytes": implied.rest,
            "precision_bytes": implied.precision,
        },
        formula=f"1 - ({gib(implied.available)} - {gib(implied.rest)}) / {gib(implied.printed)} ="
        f" {implied.fraction:.4f} +- {implied.fraction_off:.4f}",
        notes=(
            f"a token takes {implied.token.says}",
            "it holds where memory, and not --max-total-tokens, gave the tokens",
            "`--assume mem_fraction_static=...` names the fraction, where you know the command",
        ),
        confidence="possible",
    )


def named_tenant(subject: Subject) -> Iterator[Finding]:
    """Another process on the card that an out-of-memory error in a log names: a log lists no processes otherwise."""
    shortage = shortage_of(subject) if subject.is_log else None
    if shortage is None or not shortage.said.others:
        return
    said, short = shortage.said, shortage.short_bytes
    held = sum(size for _, size in said.others)
    names = ", ".join(f"pid {pid} holds {shown(size)}" for pid, size in said.others[:4])
    card = "the card" if said.device is None else f"GPU {said.device}"
    cause = short is not None and 0 < short <= held
    would = f" Without it the {shown(shortage.wanted_bytes)} wanted would have been there." if cause else ""
    yield Finding(
        rule="foreign_tenant",
        severity="error" if cause else "warning",
        ranks=shortage.ranks,
        says=f"{names} of {card}, as the error says: another process, and no rank of one server shares a card with"
        f" another.{would}",
        numbers={
            "processes": [{"pid": pid, "bytes": size} for pid, size in said.others],
            "held_bytes": held,
            "short_by_bytes": short,
            "precision_bytes": said.precision("wanted", "free"),
        },
        formula=f"{shown(short)} short <= {shown(held)} held by others" if cause and short is not None else None,
        lever=Lever(gain_bytes=held, enough=cause, says="find out whose it is (nvidia-smi), or leave that card out"),
        confidence="likely",
    )


def retractions(subject: Subject) -> Iterator[Finding]:
    """The KV cache was full while serving, and SGLang took requests back: no error, and slower."""
    full = [remark for remark in subject.run.remarks if remark.kind == "retract"]
    ended = [remark for remark in subject.run.remarks if remark.kind == "retract_abort"]
    if not full and not ended:
        return
    times, aborted = _once(full, lambda remark: remark.count), _once(ended, lambda remark: remark.count)
    requests = _once(full, lambda remark: remark.values.get("retracted"))
    parts = [f"The KV cache was full {counted(times, 'time')} while serving: {counted(requests, 'request')} retracted"]
    parts += [f"{counted(aborted, 'request')} aborted for it"] if aborted else []
    yield Finding(
        rule="retractions",
        severity="warning" if aborted else "info",
        ranks=tuple(dict.fromkeys(one.label for one in (*full, *ended) if one.label is not None)),
        says=f"{', and '.join(parts)}. That is the cache's size, not the device's memory: no allocation failed.",
        numbers={"times": times, "retracted": requests, "aborted": aborted},
        lever=Lever(
            flag="--max-running-requests",
            says="fewer requests at once, or more tokens (`plan` says at which fraction)",
        ),
        confidence="certain",
    )


def _once(lines: Iterable[Remark], count: Callable[[Remark], object]) -> int:
    """Return a sum over data-parallel replicas: the ranks of one replica say the same, each for itself."""
    most: dict[str, int] = {}
    for remark in lines:
        replica = next((word for word in (remark.label or "").split() if word.startswith("DP")), "")
        size = count(remark)
        most[replica] = max(most.get(replica, 0), size if isinstance(size, int) else 0)
    return sum(most.values())
