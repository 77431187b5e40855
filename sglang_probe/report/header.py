"""The head of a run: what it was, how it ended, who was there."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.text import Text

from sglang_probe.figures import UNKNOWN, counted
from sglang_probe.report.layout import Width, field, paragraph
from sglang_probe.report.log_check import log_head
from sglang_probe.report.outcome import headline, why
from sglang_probe.report.plain import printable
from sglang_probe.timeline.health import MISSING
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Later, Provenance, Run
from sglang_probe.timeline.processes import first_error, ranks_of, world_size

VERSIONS = {"torch": "torch", "cuda": "CUDA", "nccl": "NCCL", "driver": "driver", "python": "Python"}
STYLES = {"ready": "green", "failed": "bold red", "died": "bold red"}


def run_header(
    run: Run, where: Sequence[str], width: Width, now: datetime | None = None, *, several_launches: bool = False
) -> list[Text]:
    """Return the head of one run; `where` names the directories of its files."""
    lines = field("run", run_name(run, several_launches or run.launch > 0), width, "bold")
    lines += field("outcome", headline(run, now), width, STYLES.get(run.outcome, "yellow"))
    reason = why(run)
    lines += field("why", reason, width, "bold") if reason is not None else []
    if run.failure is not None:
        lines += field("error", first_error(run.failure), width)
    for what, who in _later(run):
        lines += field("later", f"{named(who)}: {what}", width)
    versions = _versions(run.provenance, everything=run.source != "log")
    lines += field("versions", versions, width) if versions else []
    if run.provenance.command:
        lines += field("command", shlex.join(run.provenance.command), width)
    lines += field("when", _when(run), width)
    lines += field("ranks", _ranks(run), width)
    for path in where:
        lines += field("files", path, width)
    lines += log_head(run, width)
    loudly = [] if run.health.ok else [said for said in run.health.says if not said.startswith(MISSING)]
    for loud in loudly:  # which ranks are missing the foot says, with the reason
        style = "bold red" if _is_blind(run) else "yellow"
        lines += paragraph(f"PROBE: {loud}", width, hanging=" " * 7, style=style)
    return lines


def _is_blind(run: Run) -> bool:
    """Say whether memory was not seen at all, of the run or of a rank, or could not be written down."""
    health = run.health
    return not health.memory_roles or health.dropped_events > 0 or any(one.no_memory_role for one in run.processes)


def run_name(run: Run, several_launches: bool) -> str:
    """Return how a run is called: its id, which launch of it, and the ids that are the same run."""
    launch = f", launch {run.launch + 1}" if several_launches else ""
    others = [other for other in run.joined_run_ids if other != run.run_id]
    joined = f" (joined with {', '.join(others)})" if others else ""
    return f"{run.run_id}{launch}{joined}"


def _later(run: Run) -> list[tuple[str, list[str]]]:
    """Return what happened after the run was ready, and to whom; the headline says which processes are gone."""
    found: dict[str, list[str]] = {}
    for later in (later for later in run.later if later.kind != "gone"):
        found.setdefault(later.what, []).append(later.label or _unnamed(later))
    return list(found.items())


def _unnamed(later: Later) -> str:
    return "a process" if later.pid is None else f"pid {later.pid} on {later.host}"


def _versions(provenance: Provenance, *, everything: bool) -> str:
    """Return the versions that decide memory; with `everything` those too that are not known."""
    commit = f" (commit {provenance.sglang_commit[:12]}{_dirty(provenance)})" if provenance.sglang_commit else ""
    known = {"SGLang": f"{provenance.sglang_version or UNKNOWN}{commit}"}
    known |= {shown: str(provenance.versions.get(name) or UNKNOWN) for name, shown in VERSIONS.items()}
    return ", ".join(f"{name} {version}" for name, version in known.items() if everything or version != UNKNOWN)


def _dirty(provenance: Provenance) -> str:
    return ", with local changes" if provenance.sglang_dirty else ""


def _when(run: Run) -> str:
    if run.started is None and run.local_started is not None:
        until = f" to {run.local_ended}" if run.local_ended not in {None, run.local_started} else ""
        return f"{run.local_started}{until}, by the server's own clock (the log names no zone)"
    if run.started is None:
        return UNKNOWN
    lasted = _between(run.started, run.ended)
    return f"{_second(run.started)}{f', last event {lasted:.1f} s later' if lasted is not None else ''}"


def _second(ts: str) -> str:
    return f"{ts[:19].replace('T', ' ')} UTC"


def _between(start: str, end: str | None) -> float | None:
    """Return the seconds between two of the probe's timestamps; datetime knows microseconds, and ours have ns."""
    try:
        first, last = (datetime.fromisoformat(ts.rstrip("Z")[:26]) for ts in (start, end or ""))
        return (last - first).total_seconds()
    except (ValueError, TypeError):  # no timestamp of ours: another form, or one of the two with a zone
        return None


def _ranks(run: Run) -> str:
    seen = ranks_of(run)
    placed = any(process.rank and (process.rank.world or run.source == "log") for process in seen)
    size = str(world_size(run)) if placed else "unknown"
    others = Counter(process.role for process in run.processes if process.label is None)
    hosts = len({process.host for process in run.processes} - {None})
    parts = [f"{len(seen)} of {size} seen" + (f" on {counted(hosts, 'host')}" if hosts else "")]
    if not seen and run.source == "log":
        return "none is named in the log"  # nor is any other process: who raised it, its lines do not say
    parts += [f"also {', '.join(_others(others))}"] if others else []
    return "; ".join(parts)


def _others(roles: Counter[str]) -> Iterator[str]:
    for role, count in sorted(roles.items()):
        yield printable(role) if count == 1 else f"{count} x {printable(role)}"
