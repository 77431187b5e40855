"""Which of the servers that logs tell of are shown: none that cannot be told apart, and of a directory the newest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sglang_probe.collect.errors import InputError
from sglang_probe.collect.logs.join import SHOWN, Server, Text
from sglang_probe.collect.logs.model import LogRun
from sglang_probe.collect.logs.start import Start
from sglang_probe.collect.refusal import mixed_servers
from sglang_probe.collect.report import Tally
from sglang_probe.figures import listed


def told_apart(found: Sequence[Server], tally: Tally, *, alone: bool) -> list[Server]:
    """Return the servers whose lines are their own. Raises InputError where none is, and there is nothing else."""
    clear = [server for server in found if not any(start.mixed for start in server.starts)]
    mixed: dict[str, list[Start]] = {}
    for server in found:
        for start in server.starts:
            if start.mixed:
                mixed.setdefault(start.file, []).append(start)
    for name, starts in mixed.items():
        launched = [start for start in starts if start.arguments is not None]
        begins = [start.first_line for start in (launched if len(launched) > 1 else starts)[:2]]
        if alone and not clear:
            raise mixed_servers(name, begins)
        tally.add("mixed_servers", name, begins[0])
    return clear


def wanted(runs: Sequence[LogRun], texts: Sequence[Text]) -> tuple[LogRun, ...]:
    """Return, of each file of which single starts were named, those. Raises InputError where it has no such start."""
    left_out: set[str] = set()
    for text in texts:
        mine = [run.name for run in runs if run.files[0] == text.name] if text.wanted else []
        for title in text.wanted:
            if not any(title in _titles(name, mine) for name in mine):
                held = listed(mine, SHOWN) or "no start that can be told apart"
                raise InputError(f"{text.name} has no start {title}: it holds {held}", "name one of these behind the #")
        left_out |= {name for name in mine if not _titles(name, mine) & set(text.wanted)}
    return tuple(run for run in runs if run.name not in left_out)


def _titles(name: str, mates: list[str]) -> set[str]:
    """Return what a start may be called behind its file's name: its number, or its writer, or both."""
    number = name.partition("#")[2]
    several = len({mate.partition("#")[0] for mate in mates}) > 1
    return {name} if several else {name, number or "1"}


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
