"""Do a log and events belong to one run? By evidence: ranks, time, arguments, figures, pids; every answer has reasons.

SGLang's stamps name no zone and restart configurations print the same figures, so one kind of evidence is not enough.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from sglang_probe.collect.logs.model import RANK_TOKENS, LogRun
from sglang_probe.figures import counted, listed
from sglang_probe.timeline.logs.arguments import arguments_in, comparable, differing
from sglang_probe.timeline.logs.figures import figures_of, ranks_by_label
from sglang_probe.timeline.logs.moments import moments_of, offset_of
from sglang_probe.timeline.logs.seats import seats_of
from sglang_probe.timeline.model import Run
from sglang_probe.timeline.values import given_flag, integer

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
    time, offset = _time(log, run)
    evidence = (_ranks(log, run), time, _arguments(log, run), _seed(log, run), _figures(log, run), _pids(log, run))
    said = {one.kind: one.says for one in evidence}
    if "against" in said.values():
        verdict: Verdict = "not the same"
    elif said["ranks"] == "for" and _enough(said):
        verdict = "same"
    else:
        verdict = "cannot be told"
    return Match(verdict, evidence, offset)


def _enough(said: Mapping[str, Says]) -> bool:
    """Say whether what speaks for one run is more than two starts of one server would have in common."""
    if said["time"] == "for":
        return "for" in {said[kind] for kind in ("arguments", "seed", "figures", "pids")}
    return said["seed"] == "for" and said["figures"] == "for"


def _ranks(log: LogRun, run: Run) -> Evidence:
    theirs, own = ranks_by_label(run), [seat.label for seat in seats_of(log)[0] if seat.label is not None]
    both = [name for name in own if name in theirs]
    if not own or not theirs:
        return Evidence("ranks", "nothing", f"{'the log' if not own else 'the run'} names no rank")
    beyond = [name for name in own if name not in theirs and _is_beyond(name, run)]
    if beyond or not both:
        why = f"the log's {listed(beyond or own, MANY)} cannot be a rank of this run ({listed(list(theirs), MANY)})"
        return Evidence("ranks", "against", why)
    return Evidence("ranks", "for", f"the same ranks: {listed(both, MANY)}")


def _is_beyond(name: str, run: Run) -> bool:
    """Say whether a rank's number is more than the run has of its kind, or it has none of its kind."""
    sizes: dict[str, int] = {}
    for process in ranks_by_label(run).values():
        for token in RANK_TOKENS:
            part = getattr(process.rank, token.lower(), None)
            if part is not None:
                sizes[token] = part.size
    found = (re.fullmatch(r"([A-Z_]+)(\d+)", part) for part in name.split())
    return any(part is not None and int(part[2]) >= sizes.get(part[1], 0) for part in found)


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
    both = comparable(said, known)
    if not both:
        return Evidence("arguments", "nothing", "no argument is in both")
    return Evidence("arguments", "for", f"what tells servers apart among {counted(len(both), 'argument')} is equal")


def _seed(log: LogRun, run: Run) -> Evidence:
    """A seed that nobody gave is drawn anew at every start: the same one is no chance."""
    said, known = arguments_in(log) or {}, run.provenance.effective or {}
    drawn = run.provenance.given is not None and given_flag(run.provenance.given, "random_seed") is None
    seed = integer(said, "random_seed")
    if not drawn or seed is None or seed != integer(known, "random_seed"):
        return Evidence("seed", "nothing", "no seed that was drawn is in both")
    return Evidence("seed", "for", f"random_seed {seed}, drawn at this start, is in both")


def _of_another_start(names: Sequence[str], said: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    nodes = max(integer(said, "nnodes") or 1, integer(known, "nnodes") or 1)
    return [name for name in names if name in OWN and (nodes == 1 or name not in OWN_OF_A_NODE)]


def _figures(log: LogRun, run: Run) -> Evidence:
    found = [one for one in figures_of(log, run) if not one.moves]
    off = [one for one in found if not one.agrees and one.reason is None]
    if not found:
        return Evidence("figures", "nothing", "no figure is in both")
    of_all = f"of {counted(len(found), 'figure')}"
    if len(off) * 2 > len(found):
        return Evidence("figures", "against", f"{len(off)} {of_all} are not those of the events")
    return Evidence("figures", "for", f"{len(found) - len(off)} {of_all} are those of the events")


def _pids(log: LogRun, run: Run) -> Evidence:
    """A pid that is not there is no evidence: a carrier may count in another namespace."""
    theirs = {process.pid for process in run.processes if process.pid is not None}
    said = {fact.entry.pid for fact in log.facts} | {fact.count("pid") for fact in log.facts if fact.kind == "ended"}
    both = sorted(pid for pid in said if pid is not None and pid in theirs)
    if not both:
        return Evidence("pids", "nothing", "the log names no pid of the run")
    return Evidence("pids", "for", f"pid {listed(both, MANY)} is in both")


