"""Do a log and events belong to one run? By evidence: ranks, time, arguments, figures, pids; every answer has reasons.

SGLang's stamps name no zone and restart configurations print the same figures, so one kind of evidence is not enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from sglang_probe.collect.logs.model import LogRun
from sglang_probe.figures import counted, listed
from sglang_probe.timeline.logs.arguments import arguments_in, differing
from sglang_probe.timeline.logs.figures import figures_of, ranks_by_label
from sglang_probe.timeline.logs.moments import moments_of, offset_of
from sglang_probe.timeline.logs.seats import seats_of
from sglang_probe.timeline.model import Run
from sglang_probe.timeline.values import integer

Verdict = Literal["same", "not the same", "cannot be told"]
Says = Literal["for", "against", "nothing"]
MANY: Final = 3
OWN: Final = ("random_seed", "model_path", "tp_size", "pp_size", "dp_size", "ep_size", "port")
"""Arguments that no rank changes: where they differ, it is another start. A seed that nobody gave is drawn anew."""
OWN_OF_A_NODE: Final = frozenset({"random_seed", "port"})


class Evidence(NamedTuple):
    """What one kind of evidence says."""

    kind: str
    says: Says
    why: str


class Match(NamedTuple):
    """Whether a log and events are of one run, and why."""

    verdict: Verdict
    evidence: tuple[Evidence, ...]
    offset_s: float | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return what decided: what is against it, else what is for it, else all that was asked."""
        side = {"same": "for", "not the same": "against"}.get(self.verdict, "")
        return tuple(one.why for one in self.evidence if one.says == side or not side)


def match(log: LogRun, run: Run) -> Match:
    """Return whether a log and events are of one run."""
    ranks = ranks_by_label(run)
    time, offset = _time(log, run)
    evidence = (_ranks(log, run), time, _arguments(log, run), _figures(log, run), _pids(log, run))
    said = {one.kind: one.says for one in evidence}
    if "against" in said.values():
        verdict: Verdict = "not the same"
    elif said["ranks"] != "for" or not ranks:
        verdict = "cannot be told"
    else:
        others = [said[kind] for kind in ("arguments", "figures", "pids")].count("for")
        enough = others >= 1 if said["time"] == "for" else said["figures"] == "for" and others >= 2
        verdict = "same" if enough else "cannot be told"
    return Match(verdict, evidence, offset)


def _ranks(log: LogRun, run: Run) -> Evidence:
    theirs, own = ranks_by_label(run), [seat.label or "" for seat in seats_of(log)[0]]
    both = [name for name in own if name in theirs]
    if not own or not theirs:
        return Evidence("ranks", "nothing", f"{'the log' if not own else 'the run'} names no rank")
    beyond = [name for name in own if name not in theirs and _is_beyond(name, run)]
    if beyond or not both:
        names = listed(beyond or own, MANY)
        return Evidence("ranks", "against", f"the log's {names} cannot be a rank of this run ({listed(list(theirs), MANY)})")
    return Evidence("ranks", "for", f"the same ranks: {listed(both, MANY)}")


def _is_beyond(name: str, run: Run) -> bool:
    """Say whether a rank's number is more than the run has of its kind."""
    sizes: dict[str, int] = {}
    for process in ranks_by_label(run).values():
        for token in ("dp", "pp", "attn_cp", "moe_dp", "tp", "ep"):
            part = getattr(process.rank, token, None)
            if part is not None:
                sizes[token.upper()] = part.size
    parts = (part.rstrip("0123456789") for part in name.split())
    numbers = [int(part[len(token) :] or 0) for token, part in zip(parts, name.split(), strict=True)]
    tokens = [part.rstrip("0123456789") for part in name.split()]
    return any(number >= sizes.get(token, number + 1) for token, number in zip(tokens, numbers, strict=True))


def _time(log: LogRun, run: Run) -> tuple[Evidence, float | None]:
    found = offset_of(moments_of(log, ranks_by_label(run)))
    if found.why_not is not None:
        return Evidence("time", "against", f"no zone puts the log's times beside the events': {found.why_not}"), None
    if found.seconds is None:
        return Evidence("time", "nothing", "the log has no time that could be compared"), None
    what = f"{counted(found.moments, 'moment')} of the log fit the events' times"
    zone = "" if not found.seconds else f", with its clock {found.seconds / 3600:+g} h from UTC"
    return Evidence("time", "for", f"{what}{zone}{'' if found.dated else ', which have no date'}"), found.seconds


def _arguments(log: LogRun, run: Run) -> Evidence:
    said, known = arguments_in(log), run.provenance.effective
    if said is None or known is None:
        return Evidence("arguments", "nothing", "not both have the server's arguments")
    other = _of_another_start(differing(said, known), said, known)
    if other:
        told = ", ".join(f"{name} {known[name]} in the events and {said[name]} in the log" for name in other[:MANY])
        return Evidence("arguments", "against", f"another start's arguments: {told}")
    both = [name for name in said if name in known]
    if not both:
        return Evidence("arguments", "nothing", "no argument is in both")
    seed = ", random_seed among them" if "random_seed" in both else ""
    return Evidence("arguments", "for", f"what tells starts apart among {len(both)} arguments is equal{seed}")


def _of_another_start(names: Sequence[str], said: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    nodes = max(integer(said, "nnodes") or 1, integer(known, "nnodes") or 1)
    return [name for name in names if name in OWN and (nodes == 1 or name not in OWN_OF_A_NODE)]


def _figures(log: LogRun, run: Run) -> Evidence:
    found = [one for one in figures_of(log, run) if not one.moves]
    off = [one for one in found if not one.agrees and one.reason is None]
    if not found:
        return Evidence("figures", "nothing", "no figure is in both")
    if len(off) * 2 > len(found):
        return Evidence("figures", "against", f"{len(off)} of {counted(len(found), 'figure')} are not those of the events")
    return Evidence("figures", "for", f"{len(found) - len(off)} of {counted(len(found), 'figure')} are those of the events")


def _pids(log: LogRun, run: Run) -> Evidence:
    """A pid that is not there is no evidence: a carrier may count in another namespace."""
    theirs = {process.pid for process in run.processes if process.pid is not None}
    said = {fact.entry.pid for fact in log.facts} | {fact.count("pid") for fact in log.facts if fact.kind == "ended"}
    both = sorted(pid for pid in said if pid is not None and pid in theirs)
    if not both:
        return Evidence("pids", "nothing", "the log names no pid of the run")
    return Evidence("pids", "for", f"pid {listed(both, MANY)} is in both")


