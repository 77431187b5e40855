"""What the runs were made of, fact by fact, in the order in which a person asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from sglang_probe.explain.diff.arguments import argument_rows, following
from sglang_probe.explain.diff.launchers import is_launchers, lack_of, not_compared
from sglang_probe.explain.diff.model import GROUPS, Row
from sglang_probe.explain.diff.nature import natural
from sglang_probe.explain.diff.tenants import card_rows, fact, tenant_rows
from sglang_probe.explain.diff.values import NO_VARIABLES, NOT_RECORDED, same
from sglang_probe.timeline.model import Run
from sglang_probe.timeline.processes import is_cpu, ranks_of

VISIBLE: Final = frozenset({"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"})
TOLD_APART: Final = frozenset({"sglang", "driver"})
"""Versions that stand in a group of their own."""
MOVED: Final = "moved, absent, or not loaded on the other side"


def provenance_rows(runs: Sequence[Run]) -> tuple[Row, ...]:
    """Return all facts: those in which the sides differ, and those in which they do not."""
    lack = lack_of(runs)
    logs = [run.source == "log" for run in runs]
    fold = lack is None and not (any(logs) and not all(logs))
    rows = sorted(_facts(runs, fold=fold), key=lambda row: GROUPS.index(row.group))
    return tuple(following([_not_of_logs(not_compared(_judged(row, rows), lack), logs) for row in rows]))


def _not_of_logs(row: Row, logs: Sequence[bool]) -> Row:
    """Return what only a launcher says as no difference where a log stands beside sides that have it alike."""
    if not any(logs) or all(logs) or not row.differs or not is_launchers(row):
        return row
    told = [value for value, log in zip(row.values, logs, strict=True) if not log]
    return msgspec.structs.replace(row, differs=not same(told), counts=False, why=NO_VARIABLES)


def _judged(row: Row, rows: Sequence[Row]) -> Row:
    """Return a row with what its values and the table of nature say of it."""
    settled = row.group == "tenants"  # by size: two tenants are the same though their pids differ
    differs = row.differs if settled else not (same(row.values) and (row.effective is None or same(row.effective)))
    found = natural(row, rows) if differs else None
    if found is not None:
        return msgspec.structs.replace(row, differs=found.listed, counts=False, why=found.reason)
    return msgspec.structs.replace(row, differs=differs, why=row.why if differs else None)


def counted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows that can be a cause."""
    return tuple(row for row in rows if row.differs and row.counts)


def _facts(runs: Sequence[Run], *, fold: bool) -> Iterator[Row]:
    yield from _of_the_run(runs)
    yield from _of_sglang(runs)
    yield from _functions(runs)
    yield from argument_rows(runs, fold=fold)
    yield from _variables(runs)
    yield from _versions(runs)
    yield from card_rows(runs)
    yield from _visible(runs)
    yield from tenant_rows(runs)
    yield Row(group="machine", key="host", values=tuple(_hosts(run) for run in runs))


def _of_the_run(runs: Sequence[Run]) -> Iterator[Row]:
    yield Row(group="run", key="run id", values=tuple(run.run_id for run in runs))
    yield Row(group="run", key="started", values=tuple(run.started for run in runs))
    yield Row(group="run", key="pids", values=tuple([process.pid for process in run.processes] for run in runs))


def _of_sglang(runs: Sequence[Run]) -> Iterator[Row]:
    made = [run.provenance for run in runs]
    yield fact("sglang", "version", [one.sglang_version for one in made])
    yield fact("sglang", "commit", [one.sglang_commit for one in made])
    yield fact("sglang", "dirty", [one.sglang_dirty for one in made])
    yield fact("sglang", "path", [one.sglang_path for one in made])


def _functions(runs: Sequence[Run]) -> Iterator[Row]:
    tables = [run.provenance.fingerprints for run in runs]
    if any(run.source == "log" for run in runs):
        return  # a log has none: that is no function that moved
    for name in sorted({name for table in tables for name in table}):
        values = tuple(table.get(name) for table in tables)
        why = MOVED if None in values else None
        yield Row(group="functions", key=name, values=values, counts=None not in values, why=why)


def _variables(runs: Sequence[Run]) -> Iterator[Row]:
    tables = [_environment(run) for run in runs]
    unknown = None in tables
    for name in sorted({name for table in tables for name in table or ()} - VISIBLE):
        values = tuple(None if table is None else table.get(name) for table in tables)
        why = NOT_RECORDED if unknown else None
        yield Row(group="variables", key=name, values=values, counts=not unknown, why=why)


def _environment(run: Run) -> dict[str, str] | None:
    """Return the variables of a run; None where no process said which it had: all of them have one of the probe's."""
    made = run.provenance
    if run.source == "log":
        return None  # it prints none
    return made.environment if made.environment or made.versions else None


def _versions(runs: Sequence[Run]) -> Iterator[Row]:
    tables = [_all_versions(run) for run in runs]
    for name in sorted({name for table in tables for name in table} - TOLD_APART):
        yield fact("versions", name, [table.get(name) for table in tables])
    yield Row(group="versions", key="allocator", values=tuple(run.provenance.allocator_config for run in runs))


def _all_versions(run: Run) -> dict[str, Any]:
    return {**run.provenance.distributions, **run.provenance.versions}


def _visible(runs: Sequence[Run]) -> Iterator[Row]:
    tables = [_environment(run) for run in runs]
    for name in sorted(VISIBLE):
        values = tuple(None if table is None else table.get(name) for table in tables)
        yield Row(group="visible devices", key=name, values=values, counts=None not in tables)
    yield fact("visible devices", "used", [_used(run) for run in runs])


def _used(run: Run) -> list[int] | None:
    """Return the indices of the cards that the ranks have; None where some rank did not say, or has a CPU."""
    found = [None if rank.device is None or is_cpu(rank) else rank.device.index for rank in ranks_of(run)]
    if run.missing or None in found or not found:
        return None
    return sorted({index for index in found if index is not None})


def _hosts(run: Run) -> list[str]:
    return sorted({process.host for process in run.processes if process.host is not None})
