"""The foot: what was lost, not read or not hooked, so that no gap in the picture is silent."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from sglang_probe.collect.report import Loss, Place, ReadReport
from sglang_probe.events.names import NOT_YET_REASONS
from sglang_probe.figures import counted, listed, number
from sglang_probe.report.layout import Width, paragraph
from sglang_probe.report.legend import legend
from sglang_probe.report.log_check import log_gaps
from sglang_probe.report.outcome import process_name
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Degradation, Process, Run

MANY = 8
"""Processes named in one line."""
MANY_ALIKE = 3
"""Hosts named whose clocks are alike."""


def run_footer(run: Run, width: Width) -> list[Text]:
    """Return what is missing from one run or does not fit together, or nothing."""
    parts = (("Gaps and differences", _gaps(run)), ("How to read it", legend(run)))
    lines: list[Text] = []
    for title, said in parts:
        found = [text for line in said for text in paragraph(line, width, "  - ", "    ")]
        lines += [Text(title, style="bold"), *found] if found else []
    return lines


def read_footer(report: ReadReport, width: Width) -> list[Text]:
    """Return what reading the files found, said even when it is nothing."""
    events = f"{counted(report.events, 'event')} in {counted(report.files, 'file')}"
    logs = f"{counted(report.log_lines, 'line')} of {counted(report.log_files, 'log')}"
    read = " and ".join([events] * bool(report.files or not report.log_files) + [logs] * bool(report.log_files))
    if report.clean:
        whole = "every line was a whole event" if not report.log_files else "nothing was cut off or had to be mended"
        lines = paragraph(f"Read {read}; {whole}.", width)
    else:
        lines = paragraph(f"Read {read}, and found", width, style="bold")
    for loss in report.losses:
        lines += paragraph(_loss(loss), width, "  - ", "    ")
    if report.other_runs:
        more = ", ..." if report.other_runs > len(report.beside) else ""
        names = f" ({', '.join(report.beside)}{more})" if report.beside else ""
        beside = counted(report.other_runs, f"other run{names} lies", f"other runs{names} lie")
        own = "directory, or its log," if report.log_files else "directory"
        newest = ", which began last" if report.beside else ""
        lines += paragraph(f"{beside} beside what is shown{newest}; give a run's own {own} to see it.", width)
    return lines


def _gaps(run: Run) -> Iterator[str]:
    yield from run.notes
    partial = run.outcome == "starting" or run.unread_files > 0 or run.source == "log"  # notes say what it lacks
    if run.unread_files and run.outcome != "unknown":  # then the headline says it
        given = len(run.processes)
        were = "was" if given == 1 else "were"
        yield f"only {number(given)} of the run's {number(given + run.unread_files)} files {were} given"
    for (size, reason), ranks in ({} if partial else _missing(run)).items():
        are = "rank {} of {} is" if len(ranks) == 1 else "ranks {} of {} are"
        yield f"{are.format(named(ranks), size)} missing: {reason}"
    yield from _lost(run)
    for target in run.health.failed_targets:
        yield f"hook {target.state}: {target.target}{f' ({target.reason})' if target.reason else ''}"
    loaded = {target.role for process in run.processes for target in process.targets}
    absent = [role for role in run.health.absent_roles if role in loaded or not loaded]
    if absent and not partial:  # a module that was not loaded, yet or ever, says nothing of its hooks
        yield f"no hook for: {', '.join(absent)}"
    for degraded in run.health.degraded:
        if degraded.reason not in NOT_YET_REASONS:  # said beside the values that it cost, and over by itself
            yield _degradation(degraded)
    for difference in run.provenance.differs:
        values = "; ".join(f"{value} ({named(who)})" for value, who in difference.values.items())
        yield f"processes differ in {difference.key}: {values}"
    yield from log_gaps(run)
    for (said, sure), hosts in _skews(run).items():
        clocks = f"the clock of {hosts[0]} is" if len(hosts) == 1 else f"the clocks of {listed(hosts, MANY_ALIKE)} are"
        yield f"{clocks} {said}{sure}"


def _lost(run: Run) -> Iterator[str]:
    """Name who lost events; of many, who are alike together."""
    found: dict[tuple[int, int], list[Process]] = {}
    for process in run.processes:
        if process.lost_events:
            found.setdefault((process.lost_events, process.dropped_events), []).append(process)
    for (lost, unwritten), who in found.items():
        dropped = f", {number(unwritten)} of them not written" if unwritten else ""
        names = named([process_name(process) for process in who])
        of = f"{names} (pid {who[0].pid})" if len(who) == 1 else f"each of {names}"
        yield f"{counted(lost, 'event')} of {of} lost{dropped}"


def _skews(run: Run) -> dict[tuple[str, str], list[str]]:
    """Return what is said of the hosts' clocks, and of which: hundreds of hosts on one clock are a line."""
    found: dict[tuple[str, str], list[str]] = {}
    for skew in run.skew:
        sure = f", give or take {skew.uncertainty_s:.3f}" if skew.uncertainty_s is not None else ""
        found.setdefault((f"{skew.seconds:+.3f} s against {skew.against}'s", sure), []).append(skew.host)
    return found


def _missing(run: Run) -> dict[tuple[int, str], list[int]]:
    found: dict[tuple[int, str], list[int]] = {}
    for missing in run.missing:
        found.setdefault((missing.world_size, missing.reason), []).append(missing.world_rank)
    return found


def _degradation(degraded: Degradation) -> str:
    detail = f" ({degraded.detail})" if degraded.detail else ""
    return f"{degraded.source}: {degraded.reason}{detail}, {number(degraded.count)} x"


def _loss(loss: Loss) -> str:
    where = "; ".join(map(_place, loss.examples))
    more = "; ..." if loss.count > len(loss.examples) else ""
    return f"{'LOST: ' if loss.lost else ''}{number(loss.count)} x {loss.says}{f' ({where}{more})' if where else ''}"


def _place(place: Place) -> str:
    """Name the file without its directory, which stands in the head of the run."""
    name = place.file.rsplit("/", 1)[-1]
    line = f" line {number(place.line)}" if place.line else ""
    return f"{name}{line}: {place.text}" if place.text and not place.line else f"{name}{line}"
