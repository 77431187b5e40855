"""One run in a trace: a process of its own with its start-up and its findings, then launcher, ranks, others.

Arrows go to each rank from whoever started it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from sglang_probe.explain.model import Finding, RunFindings
from sglang_probe.report.names import clipped, rank_names
from sglang_probe.report.outcome import headline
from sglang_probe.report.series import NS, RunClock, categories, nanoseconds
from sglang_probe.report.trace.events import Event, Track, flow, instant, named, sliced
from sglang_probe.report.trace.process import LONGEST_TEXT, Drawn, Place, draw, names
from sglang_probe.report.trace.seats import Numbers
from sglang_probe.timeline.model import Process, Run


class RunTrace:
    """One run as it is drawn."""

    def __init__(self, run: Run, name: str, numbers: Numbers, now: datetime | None) -> None:
        self.clock = RunClock(run)
        self._run = run
        self._title = clipped(f"run {name}: {headline(run, now)}")
        self._numbers = numbers
        self._last_ns = self._last(now)
        self._ended_ns = self._last_ns if run.ready_s is None else round(run.ready_s * NS)
        self._track = Track(*[numbers.fresh()] * 2)

    def events(self, findings: RunFindings, prefix: str, order: int) -> Iterator[Event]:
        """Yield everything about the run; `prefix` stands before the names of its processes, `order` says where."""
        yield from names(self._track, self._title, "", order)
        about = {"outcome": self._run.outcome, "says": self._title}
        yield sliced(self._track, "start-up", "run", 0, self._ended_ns, about)
        yield from self._findings(findings)
        yield from self._later()
        shown = categories(self._run)
        drawn = []
        called = rank_names(self._run.processes)
        for position, (process, name) in enumerate(zip(self._run.processes, called, strict=True), order + 1):
            place = Place(f"{prefix}{name}", position)
            one = draw(process, place, self.clock, self._last_ns, self._numbers, shown)
            drawn.append(self._with_its_life(process, one))
        for one in drawn:
            yield from one.events
        yield from self._flows(drawn)

    def _last(self, now: datetime | None) -> int:
        """Return the last time that anything is known of the run, or now where it still starts."""
        is_local = self._run.started is None
        known = [self._since(self._run.local_ended if is_local else self._run.ended)]
        if now is not None and self._run.outcome == "starting" and not is_local:
            known.append(self._since(now.isoformat()))
        steps = ((process, step) for process in self._run.processes for step in process.steps)
        times = (time(process, step) for process, step in steps for time in (self.clock.begin_s, self.clock.end_s))
        known += [round(time * NS) for time in times if time is not None]
        return max((one for one in known if one is not None), default=0)

    def _since(self, stamp: str | None) -> int | None:
        """Return when a stamp was, since the run began."""
        at = nanoseconds(stamp)
        zero = self.clock.zero_ns
        return None if at is None or zero is None else max(at - zero, 0)

    def _findings(self, findings: RunFindings) -> Iterator[Event]:
        """Yield each finding on a row of its own: all hold of the same moment, the end of the start-up."""
        for finding in findings.findings:
            track = Track(self._track.pid, self._numbers.fresh())
            yield named(track, "thread_name", f"{finding.severity}: {finding.rule}")
            yield instant(track, finding.rule, "finding", self._ended_ns, _told(finding))

    def _later(self) -> Iterator[Event]:
        for later in self._run.later:
            at = self._since(later.ts)
            if at is not None:
                who = clipped(later.label or later.pid or "unknown")
                about = {"what": clipped(later.what, LONGEST_TEXT), "who": who}
                yield instant(self._track, clipped(f"later: {later.what}"), "later", at, about)

    def _with_its_life(self, process: Process, drawn: Drawn) -> Drawn:
        """Draw a process without steps as long as it wrote events."""
        first, last = self._since(process.first_ts), self._since(process.last_ts)
        if drawn.begin_ns is not None or first is None or last is None:
            return drawn
        last = max(first, last)
        life = sliced(drawn.track, "first to last event", "process", first, last, {"events": process.events})
        return Drawn([*drawn.events, life], drawn.track, first, last)

    def _flows(self, drawn: list[Drawn]) -> Iterator[Event]:
        """Yield an arrow to each rank from the process that started it, else from a launcher, else from the run."""
        pairs = list(zip(self._run.processes, drawn, strict=True))
        by_pid: dict[tuple[str | None, int | None], Drawn] = {}
        launchers: dict[str | None, Drawn] = {}
        for process, one in pairs:
            if one.begin_ns is not None and process.pid is not None:
                by_pid.setdefault((process.host, process.pid), one)
            if one.begin_ns is not None and process.role == "launcher":
                launchers.setdefault(process.host, one)
        whole = Drawn([], self._track, 0, self._ended_ns)
        for process, rank in pairs:
            if process.label is None or rank.begin_ns is None:
                continue
            launcher = launchers.get(process.host) or next(iter(launchers.values()), whole)
            source = by_pid.get((process.host, process.parent), launcher)
            if source is rank or source.begin_ns is None or source.begin_ns > rank.begin_ns:
                source = whole
            leaves = min(rank.begin_ns, source.end_ns)  # while it is there
            yield from flow(self._numbers.fresh(), "starts", (source.track, leaves), (rank.track, rank.begin_ns))


def _told(finding: Finding) -> Mapping[str, Any]:
    do = None if finding.lever is None else finding.lever.says
    said = {"says": finding.says, "formula": finding.formula, "do": do, "ranks": ", ".join(finding.ranks)}
    known = {key: clipped(value, LONGEST_TEXT) for key, value in said.items() if value}
    return {"severity": finding.severity, "confidence": finding.confidence, **known}
