"""Rules about memory of others on our devices: a server, a left-over, a tenant, memory that no list names.

A tenant is a cause only where its memory would have made the difference: `effects` gives it back and looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from sglang_probe.explain.counterfactual import before_weights
from sglang_probe.explain.effects import Effect, effect_of
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.others import Burden, Held, burden_of, held, joined, lists_of
from sglang_probe.explain.phrases import gpu, older
from sglang_probe.explain.poorer import poorer_in_short
from sglang_probe.explain.rules.devices import is_server, is_stray, shared_device, stray_context
from sglang_probe.explain.subject import Subject, label
from sglang_probe.figures import gib
from sglang_probe.timeline.model import Neighbour, Process

WORTH_SAYING: Final = 64 << 20
"""Bytes of strangers on one device, together, below which nobody asks."""
UNLISTED: Final = 512 << 20
"""Bytes in use by nobody that are more than a driver keeps beside its reserve (3 to 10 MiB on the recorded H200)."""
MANY: Final = 4
"""Processes that are described in one sentence."""
Meant = Callable[[Neighbour], bool]


class Tenancy(NamedTuple):
    """A foreign process on the device of a rank, and what it held there when it mattered."""

    process: Process
    tenant: Neighbour
    held: Held


class Kind(NamedTuple):
    """One rule about tenants."""

    rule: str
    what: str
    meant: Meant
    lever: Callable[[str], str]


def two_servers(subject: Subject) -> Iterator[Finding]:
    """Another SGLang server lives on the same devices."""
    yield from _findings(subject, _SERVERS)


def left_over(subject: Subject) -> Iterator[Finding]:
    """A process of an earlier SGLang server, whose launcher is gone, still holds memory."""
    yield from _findings(subject, _LEFT_OVERS)


def foreign_tenant(subject: Subject) -> Iterator[Finding]:
    """Any other process holds memory on a device of the run."""
    yield from _findings(subject, _TENANTS)


def unlisted_memory(subject: Subject) -> Iterator[Finding]:
    """Memory was in use before the run began and no process list names who holds it."""
    found = _unlisted(subject)
    if not found:
        return
    effect = effect_of(subject, before_weights(found), everybody(subject))
    who, size = max(found.items(), key=lambda pair: pair[1])
    yield Finding(
        rule="unlisted_memory",
        severity=effect.severity,
        ranks=tuple(found),
        says=f"{gib(size)} GiB of {who}'s device were in use before this run had a context there, and no process list"
        f" names a holder: a process of another container or pid namespace, or a driver that leaked. {effect.says}.",
        numbers={"unlisted_bytes": size, "unlisted_bytes_by_rank": found},
        formula=effect.formula,
        lever=_lever(
            effect,
            "look from the host, outside the container: nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
        ),
        confidence="likely",
    )


def everybody(subject: Subject) -> Burden:
    """Return what all others together hold that is not of this run or not where it belongs, listed or not."""
    listed = burden_of(subject, lambda process, one: one.kind == "foreign" or is_stray(subject, process, one))
    return joined(listed, before_weights(_unlisted(subject)))


def cause_elsewhere(subject: Subject) -> str | None:
    """Return what is the cause instead of the budget's own terms, where memory of others is."""
    for rule in (shared_device, stray_context, two_servers, foreign_tenant, unlisted_memory, left_over):
        for finding in rule(subject):
            if finding.severity == "error":
                return _in_short(finding)
    return poorer_in_short(subject)


def _in_short(finding: Finding) -> str:
    by_rank: Mapping[str, int] = (
        finding.numbers.get("foreign_by_rank") or finding.numbers.get("unlisted_bytes_by_rank") or {}
    )
    if not by_rank:
        return "the run's own processes hold memory where they do not belong"
    where = "one device" if len(by_rank) == 1 else f"{len(by_rank)} devices"
    return f"others hold {gib(max(by_rank.values()))} GiB of {where}"


def _findings(subject: Subject, kind: Kind) -> Iterator[Finding]:
    found = list(_tenancies(subject, kind.meant))
    if not found:
        return
    burden = burden_of(subject, lambda _, one: one.kind == "foreign" and kind.meant(one))
    effect = effect_of(subject, burden, everybody(subject))
    by_rank = {who: size.most for who, size in burden.items()}
    more = f"; and {len(found) - MANY} more" if len(found) > MANY else ""
    yield Finding(
        rule=kind.rule,
        severity=effect.severity,
        ranks=tuple(by_rank),
        says=f"{'; '.join(_described(subject, one) for one in found[:MANY])}{more}: {kind.what}. {effect.says}.",
        numbers={
            "foreign": max(by_rank.values()),
            "foreign_by_rank": by_rank,
            "processes": [_told(one) for one in found],
        },
        formula=effect.formula,
        lever=_lever(effect, kind.lever(_in_the_way(found))),
        confidence=effect.confidence,
    )


def _tenancies(subject: Subject, meant: Meant) -> Iterator[Tenancy]:
    """Return the processes that are meant and held something when it mattered, where that is worth saying."""
    for process in subject.ranks:
        foreign = [one for one in process.neighbours if one.kind == "foreign" and meant(one)]
        if not foreign:
            continue
        lists = lists_of(process)
        here = [Tenancy(process, one, held(process, one, lists)) for one in foreign]
        if sum(one.held.most for one in here) >= WORTH_SAYING:
            yield from (one for one in here if one.held.most)


def _unlisted(subject: Subject) -> dict[str, int]:
    """Return what was in use before a rank had a context and what its first list does not account for."""
    found: dict[str, int] = {}
    for process in subject.ranks:
        way = process.pre_load
        if way is None or way.unlisted_bytes is None:
            continue
        older_ones = _listed_first(process) if process.neighbours else 0
        if way.unlisted_bytes - older_ones >= UNLISTED:
            found[label(process)] = way.unlisted_bytes - older_ones
    return found


def _listed_first(process: Process) -> int:
    """Return what the others in a rank's first list held."""
    lists = lists_of(process)
    return sum(
        lists.tables[0].get((one.pid, one.start_ticks), 0) if lists.tables else held(process, one, lists).pre_load
        for one in process.neighbours
    )


def _lever(effect: Effect, says: str) -> Lever:
    return Lever(gain_bytes=effect.gain_bytes, gain_tokens=effect.gain_tokens, enough=effect.enough, says=says)


def _told(one: Tenancy) -> dict[str, object]:
    tenant = one.tenant
    return {
        "pid": tenant.pid,
        "name": tenant.name,
        "user": tenant.user,
        "bytes": one.held.most,
        "began_before_s": tenant.began_before_s,
        "gone": tenant.gone,
        "rank": label(one.process),
    }


def _described(subject: Subject, one: Tenancy) -> str:
    tenant = one.tenant
    came = "" if one.held.pre_load or not one.held.most else "came after the pre-load memory was read"
    facts = [
        fact for fact in (tenant.user, older(tenant.began_before_s), came, "gone since" if tenant.gone else "") if fact
    ]
    about = f" ({', '.join(facts)})" if facts else ""
    verb = "held" if tenant.gone else "holds"
    where = gpu(one.process, subject)
    return f"{f'pid {tenant.pid} {tenant.name or str()}'.rstrip()}{about} {verb} {gib(one.held.most)} GiB of {where}"


def _in_the_way(found: list[Tenancy]) -> str:
    """Return the pids to look at: all of them, for SGLang takes the minimum over the ranks and refuses unlike ones."""
    return ",".join(str(pid) for pid in Counter(one.tenant.pid for one in found))


def _end_it(pids: str) -> str:
    ended = f"end {'them' if ',' in pids else 'it'} (kill {pids.replace(',', ' ')})"
    return f"{_look(pids)} and, if {'they are' if ',' in pids else 'it is'} yours, {ended}; we never do"


def _use_others(pids: str) -> str:
    return f"use other devices, or lower both fractions so that they fit together; {_look(pids)}"


def _move_it(pids: str) -> str:
    if "," in pids:
        return f"{_look(pids)} and move those processes, or this server, to other devices"
    return f"{_look(pids)} and move it, or this server, to another device"


def _look(pids: str) -> str:
    return f"look at {'all of them' if ',' in pids else 'it'} (ps -o pid,ppid,user,lstart,cmd -p {pids})"


_SERVERS: Final = Kind("two_servers", "another SGLang server that is running", is_server, _use_others)
_LEFT_OVERS: Final = Kind(
    "left_over", "a left-over of an earlier server: its parent has ended", lambda one: one.left_over, _end_it
)
_TENANTS: Final = Kind(
    "foreign_tenant", "no process of this run", lambda one: not one.left_over and not is_server(one), _move_it
)
