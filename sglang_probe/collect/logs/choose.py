"""Which of the servers that logs tell of are shown: none that cannot be told apart, and of a directory the newest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sglang_probe.collect.logs.join import Server, Text
from sglang_probe.collect.refusal import mixed_servers
from sglang_probe.collect.report import Tally


def told_apart(found: Sequence[Server], tally: Tally, *, alone: bool) -> list[Server]:
    """Return the servers whose lines are their own. Raises InputError where none is, and there is nothing else."""
    clear = [server for server in found if not any(start.mixed for start in server.starts)]
    lines: dict[str, list[int]] = {}
    for server in found:
        for start in server.starts:
            if start.mixed:
                lines.setdefault(start.file, []).append(start.first_line)
    for name, begins in lines.items():
        if alone and not clear:
            raise mixed_servers(name, begins)
        tally.add("mixed_servers", name, begins[0])
    return clear


def newest(found: Sequence[Server], texts: Sequence[Text], run_directories: set[str], tally: Tally) -> list[Server]:
    """Keep, of what was found through a directory of runs or of logs, the newest start, and count the others.

    A log in the directory of a run that is shown (`run_directories`) comes before any other.
    """
    among = {text.name: text.among for text in texts}
    best: dict[str, Server] = {}
    for server in found:
        through = among[server.first.file]
        if through is not None:
            known = best.get(through, server)
            best[through] = max(known, server, key=lambda one: _rank(one, run_directories))
    kept = [server for server in found if among[server.first.file] is None or server in best.values()]
    tally.other_runs += len(found) - len(kept)
    return kept


def _rank(server: Server, run_directories: set[str]) -> tuple[bool, float]:
    start = server.first
    moment = start.first.get("stamp", start.first.get("ts", 0.0))
    return str(Path(start.file).parent) in run_directories, moment
