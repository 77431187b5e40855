"""Who else held memory of the cards: the cards of a run, and the processes on them that are not of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sglang_probe.explain.diff.model import Row
from sglang_probe.explain.diff.values import NOT_RECORDED, SAME_TENANT, near, same
from sglang_probe.figures import GIB
from sglang_probe.timeline.model import Device, Neighbour, Process, Run
from sglang_probe.timeline.processes import is_cpu, last_ledger, ranks_of

UNLISTED: Final = "in use before"

Tenant = dict[str, Any]
"""pid, name, bytes (at most) and left_over of a process."""


def on_a_cpu(runs: Sequence[Run]) -> bool:
    """Say whether a rank of one of them has the host's memory."""
    return any(is_cpu(rank) for run in runs for rank in ranks_of(run))


def _card_of(process: Process, *, several_hosts: bool) -> str | None:
    """Return what the card of a rank is called: `GPU 0`, with its host where there are several."""
    if process.device is None or process.device.index is None or is_cpu(process):
        return None
    card = f"GPU {process.device.index}"
    return f"{process.host}: {card}" if several_hosts else card


def tenants_on(process: Process) -> list[Tenant] | None:
    """Return who else held memory of a rank's card, those with most first; None where it cannot be told."""
    foreign = [one for one in process.neighbours if one.kind == "foreign"]
    if not foreign and not _could_tell(process):
        return None
    return [_tenant(one) for one in sorted(foreign, key=lambda one: (-(one.peak_bytes or 0), one.pid))]


def _could_tell(process: Process) -> bool:
    step = last_ledger(process)
    return step is not None and step.ledger is not None and step.ledger.foreign is not None


def _tenant(one: Neighbour) -> Tenant:
    return {"pid": one.pid, "name": one.name, "bytes": one.peak_bytes, "left_over": one.left_over}


def tenant_rows(runs: Sequence[Run]) -> Iterator[Row]:
    """Return for each card who else was on it, and what was in use on it where nobody can be named."""
    tables = [_by_card(run) for run in runs]
    for card in sorted({card for table in tables for card in table}, key=_card_order):
        ranks = [table.get(card) for table in tables]
        found = [None if rank is None else tenants_on(rank) for rank in ranks]
        known = None not in found
        differs = not _same_tenants(found)
        why = None if known or not differs else "who was on the card is not known of every side"
        yield Row(group="tenants", key=card, values=tuple(found), counts=known, differs=differs, why=why)
        before = [None if rank is None or rank.pre_load is None else rank.pre_load.unlisted_bytes for rank in ranks]
        if not known and None not in before:
            differs = not near(before, SAME_TENANT)
            yield Row(group="tenants", key=f"{card}, {UNLISTED}", values=tuple(before), differs=differs)


def _card_order(card: str) -> tuple[str, int]:
    host, _, index = card.rpartition(" ")
    return host, int(index)


def _by_card(run: Run) -> dict[str, Process]:
    """Return for each card the rank that saw most of it."""
    found: dict[str, Process] = {}
    ranks = ranks_of(run)
    several_hosts = len({rank.host for rank in ranks}) > 1
    for process in ranks:
        card = _card_of(process, several_hosts=several_hosts)
        if card is not None and len(process.neighbours) >= len(getattr(found.get(card), "neighbours", ())):
            found[card] = process
    return found


def _same_tenants(found: Sequence[list[Tenant] | None]) -> bool:
    """Say whether all sides had the same neighbours: by name and size, since a pid says nothing from run to run."""
    if None in found:
        return all(one is None for one in found)
    lists = [[] if one is None else one for one in found]
    if not same([[(one["name"], one["left_over"]) for one in tenants] for tenants in lists]):
        return False
    return all(near([one["bytes"] for one in column], SAME_TENANT) for column in zip(*lists, strict=True))


def card_rows(runs: Sequence[Run]) -> Iterator[Row]:
    """Return what the cards are, and how many; on a CPU what is counted is the host."""
    for key, values in (
        ("name", [_counted(run, _name) for run in runs]),
        ("total", _totals(runs)),
        ("count", [_count(run) for run in runs]),
        ("driver", [run.provenance.versions.get("driver") for run in runs]),
    ):
        yield fact("cards", key, values)


def fact(group: Any, key: str, values: Sequence[Any]) -> Row:
    """Return a fact that does not count where a side does not know it."""
    unknown = None in values
    return Row(
        group=group,
        key=key,
        values=tuple(values),
        counts=not unknown,
        why=NOT_RECORDED if unknown else None,
    )


def _totals(runs: Sequence[Run]) -> list[Any]:
    """Return the sizes of the cards; a log's, of two decimals, is that of the others where it may be."""
    found = [_counted(run, _total) for run in runs]
    exact = [one for one, run in zip(found, runs, strict=True) if run.source != "log" and isinstance(one, int)]
    for place, run in enumerate(runs):
        size = found[place]
        if run.source == "log" and isinstance(size, int):
            found[place] = next((one for one in exact if abs(one - size) <= HUNDREDTH), size)
    return found


HUNDREDTH: Final = GIB // 100
"""Of a card's size, as torch's messages print it."""


def _name(device: Device) -> Any:
    return "CPU" if device.kind == "cpu" else device.name


def _total(device: Device) -> Any:
    return None if device.kind == "cpu" else device.total_bytes


def _counted(run: Run, what: Any) -> Any:
    """Return what all cards of a run are; a list, most first, where they are not one kind."""
    found = Counter(what(rank.device) for rank in ranks_of(run) if rank.device is not None)
    found.pop(None, None)
    kinds = sorted(found, key=str)
    return kinds[0] if len(kinds) == 1 else kinds or None


def _count(run: Run) -> int | None:
    """Return how many cards the ranks have; None where some of them were not seen."""
    if run.missing or run.unread_files or not ranks_of(run):
        return None
    if run.source == "log" and any(rank.device is None for rank in ranks_of(run)):
        return None  # no log names a card
    devices = [(rank.host, rank.device) for rank in ranks_of(run) if rank.device is not None]
    return len({(host, "CPU" if device.kind == "cpu" else device.uuid or device.index) for host, device in devices})
