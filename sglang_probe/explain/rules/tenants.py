"""Rules about memory of others on our devices: a server, a left-over, a tenant, memory that no list names.

A tenant is a cause only where its memory would have made the difference: `counterfactual` gives it back and looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from sglang_probe.explain.counterfactual import given_back
from sglang_probe.explain.model import Confidence, Finding, Lever, Severity
from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.phrases import gpu, mib, older, signed
from sglang_probe.explain.rules.devices import is_server
from sglang_probe.explain.subject import Subject, label
from sglang_probe.figures import added, gib, number
from sglang_probe.timeline.model import Neighbour, Process

WORTH_SAYING: Final = 64 << 20
"""Bytes of a stranger below which nobody asks."""
UNLISTED: Final = 512 << 20
"""Bytes in use by nobody that are more than a driver keeps beside its reserve (3 to 10 MiB on the recorded H200)."""


class Held(NamedTuple):
    """A foreign process on the device of a rank."""

    process: Process
    tenant: Neighbour

    @property
    def bytes(self) -> int:
        """Return what it holds by the last list, or at most, where it is gone since."""
        known = self.tenant.peak_bytes if self.tenant.gone else self.tenant.bytes
        return known or self.tenant.peak_bytes or 0


class Effect(NamedTuple):
    """What memory of others did to the run."""

    severity: Severity
    says: str
    gain_bytes: int | None
    gain_tokens: int | None
    enough: bool | None
    formula: str | None = None


def two_servers(subject: Subject) -> Iterator[Finding]:
    """Another SGLang server lives on the same devices."""
    yield from _findings(subject, "two_servers", is_server, "another SGLang server that is running", _named_server)


def left_over(subject: Subject) -> Iterator[Finding]:
    """A process of an earlier SGLang server, whose launcher is gone, still holds memory."""

    def mine(tenant: Neighbour) -> bool:
        return tenant.kind == "foreign" and tenant.left_over

    yield from _findings(subject, "left_over", mine, "a left-over of an earlier server: its parent has ended", _end_it)


def foreign_tenant(subject: Subject) -> Iterator[Finding]:
    """Any other process holds memory on a device of the run."""

    def mine(tenant: Neighbour) -> bool:
        return tenant.kind == "foreign" and not tenant.left_over and not is_server(tenant)

    yield from _findings(subject, "foreign_tenant", mine, "no process of this run", _move_it)


def unlisted_memory(subject: Subject) -> Iterator[Finding]:
    """Memory was in use before the run began and no process list names who holds it."""
    found: dict[str, int] = {}
    for process in subject.ranks:
        way = process.pre_load
        if way is None or way.unlisted_bytes is None:
            continue
        size = way.unlisted_bytes - sum(Held(process, one).bytes for one in process.neighbours)
        if size >= UNLISTED:
            found[label(process)] = size
    if not found:
        return
    effect = effect_of(subject, found)
    who, size = max(found.items(), key=lambda pair: pair[1])
    yield Finding(
        rule="unlisted_memory",
        severity=effect.severity,
        ranks=tuple(found),
        says=f"{gib(size)} GiB of {who}'s device were in use before this run had a context there, and no process list"
        f" names a holder: a process of another container or pid namespace, or a driver that leaked. {effect.says}.",
        numbers={"unlisted_bytes": size, "unlisted_bytes_by_rank": found},
        formula=effect.formula,
        lever=Lever(
            gain_bytes=effect.gain_bytes,
            gain_tokens=effect.gain_tokens,
            enough=effect.enough,
            says="look from the host, outside the container: nvidia-smi --query-compute-apps=pid,used_memory"
            " --format=csv",
        ),
        confidence="likely",
    )


def cause_elsewhere(subject: Subject) -> str | None:
    """Return what is the cause instead of the budget's own terms, where memory of others is."""
    for rule in (two_servers, foreign_tenant, unlisted_memory, left_over):
        for finding in rule(subject):
            if finding.severity == "error":
                held: dict[str, int] = (
                    finding.numbers.get("foreign_by_rank") or finding.numbers.get("unlisted_bytes_by_rank") or {}
                )
                where = "one device" if len(held) == 1 else f"{len(held)} devices"
                return f"others hold {gib(max(held.values(), default=0))} GiB of {where}"
    return None


def _findings(
    subject: Subject, rule: str, mine: Callable[[Neighbour], bool], what: str, lever: Callable[[str], str]
) -> Iterator[Finding]:
    held = [one for process in subject.ranks for one in _held(process, mine) if one.bytes >= WORTH_SAYING]
    by_rank: defaultdict[str, int] = defaultdict(int)
    for one in held:
        by_rank[label(one.process)] += one.bytes
    if not held:
        return
    effect = effect_of(subject, by_rank)
    yield Finding(
        rule=rule,
        severity=effect.severity,
        ranks=tuple(by_rank),
        says=f"{'; '.join(_described(one) for one in held[:4])}{_more(held)}: {what}. {effect.says}.",
        numbers={
            "foreign": max(by_rank.values()),
            "foreign_by_rank": dict(by_rank),
            "processes": [
                {
                    "pid": one.tenant.pid,
                    "name": one.tenant.name,
                    "user": one.tenant.user,
                    "bytes": one.bytes,
                    "began_before_s": one.tenant.began_before_s,
                    "rank": label(one.process),
                }
                for one in held
            ],
        },
        formula=effect.formula,
        lever=Lever(
            gain_bytes=effect.gain_bytes,
            gain_tokens=effect.gain_tokens,
            enough=effect.enough,
            says=lever(_in_the_way(subject, held)),
        ),
        confidence=_sure(subject, effect),
    )


def effect_of(subject: Subject, by_rank: Mapping[str, int]) -> Effect:
    """Say what memory of others did: label -> bytes that would have been free without them."""
    if subject.budget_failed:
        return _on_budget(subject, by_rank)
    shortage = shortage_of(subject)
    if shortage is not None and shortage.short_bytes is not None:
        size, short = by_rank.get(shortage.label, 0), shortage.short_bytes
        if size > short:
            says = f"Without it the {mib(shortage.wanted_bytes)} that {shortage.label} asked for would have been there"
            return Effect("error", says, size, None, True)
        says = f"Without it {shortage.label} would still have been short by {mib(short - size)}"
        return Effect("warning", says, size or None, None, False)
    if subject.failed:
        return _on_spread(subject, by_rank)
    outcome = given_back(subject, by_rank)
    if outcome is None:
        return Effect("warning", "What it cost this run is not known: no budget was recorded", None, None, None)
    tokens = "" if not outcome.gain_tokens else f", {number(outcome.gain_tokens)} KV tokens"
    says = f"It cost this run {gib(outcome.gain_bytes)} GiB of KV budget{tokens}"
    return Effect("warning", says, outcome.gain_bytes, outcome.gain_tokens, None)


def _on_budget(subject: Subject, by_rank: Mapping[str, int]) -> Effect:
    outcome, seat = given_back(subject, by_rank), subject.tightest
    if outcome is None or seat is None or seat.budget.rest_bytes is None or outcome.proves_nothing:
        return Effect(
            "warning", "Whether that is the cause cannot be told: a term of the budget is unknown", None, None, None
        )
    rest, gain = seat.budget.rest_bytes, outcome.gain_bytes
    after = added(rest, gain)
    formula = f"rest without it = {gib(rest)} {signed(gain)[0]} {gib(abs(gain))} = {after} GiB"
    if outcome.starts:
        return Effect("error", "Without it this server would have started", gain, outcome.gain_tokens, True, formula)
    says = f"It is not the cause: without it the budget would still be {after} GiB"
    return Effect("warning", says, gain, outcome.gain_tokens, False, formula)


def _on_spread(subject: Subject, by_rank: Mapping[str, int]) -> Effect:
    """Of a run that SGLang refused because its ranks differ: would they have been alike?"""
    free = {label(process): size for process in subject.ranks if (size := free_before_weights(process)) is not None}
    refused = subject.run.failed_phase == "dist.init" and len(free) > 1
    if refused and min(free.values()) < BALANCED * max(free.values()):
        back = {who: size + by_rank.get(who, 0) for who, size in free.items()}
        if min(back.values()) >= BALANCED * max(back.values()):
            return Effect(
                "error", "Without it the ranks would have been alike, and SGLang would have gone on", None, None, True
            )
    return Effect("warning", "Nothing shows that it is why this run failed", None, None, None)


BALANCED: Final = 0.9
"""SGLang refuses ranks of which the least free has less than this part of the most. Source: its imbalance check."""


def free_before_weights(process: Process) -> int | None:
    """Return what was free on a rank when its distributed init ended or failed."""
    inits = [step for step in process.steps if step.phase == "dist.init" and step.free_bytes is not None]
    return inits[0].free_bytes if inits else None


def _held(process: Process, mine: Callable[[Neighbour], bool]) -> list[Held]:
    return [Held(process, tenant) for tenant in process.neighbours if mine(tenant)]


def _described(one: Held) -> str:
    tenant = one.tenant
    facts = [fact for fact in (tenant.user, older(tenant.began_before_s), "gone since" if tenant.gone else "") if fact]
    about = f" ({', '.join(facts)})" if facts else ""
    verb = "held" if tenant.gone else "holds"
    return (
        f"pid {tenant.pid} {tenant.name or ''}".rstrip() + f"{about} {verb} {gib(one.bytes)} GiB of {gpu(one.process)}"
    )


def _more(held: list[Held]) -> str:
    return f"; and {len(held) - 4} more" if len(held) > 4 else ""


def _sure(subject: Subject, effect: Effect) -> Confidence:
    return "certain" if effect.enough is not None or not subject.failed else "possible"


def _in_the_way(subject: Subject, held: list[Held]) -> str:
    """Return the pids to look at: those on the device that ran out of memory, else all of them, for SGLang takes the
    minimum over the ranks."""
    shortage = shortage_of(subject)
    asked = [one for one in held if shortage is not None and label(one.process) == shortage.label] or held
    return ",".join(dict.fromkeys(str(one.tenant.pid) for one in asked))


def _end_it(pids: str) -> str:
    ended = f"end {'them' if ',' in pids else 'it'} (kill {pids.replace(',', ' ')})"
    return f"{_look(pids)} and, if {'they are' if ',' in pids else 'it is'} yours, {ended}; we never do"


def _named_server(pids: str) -> str:
    return f"use other devices, or lower both fractions so that they fit together; {_look(pids)}"


def _move_it(pids: str) -> str:
    return f"{_look(pids)} and move one of the two to another device"


def _look(pids: str) -> str:
    return f"look at {'all of them' if ',' in pids else 'it'} (ps -o pid,ppid,user,lstart,cmd -p {pids})"
