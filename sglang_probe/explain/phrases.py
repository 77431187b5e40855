"""Phrases that the findings share: devices, ranks, times, and a formula with its values."""

from __future__ import annotations

from collections.abc import Sequence

from sglang_probe.explain.subject import Seat, Subject, label
from sglang_probe.figures import GIB, fraction, gib
from sglang_probe.timeline.arithmetic import floor_binds
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Process


def gpu(process: Process, subject: Subject | None = None) -> str:
    """Return how a person calls a rank's device: `GPU 5`, `GPU 5 of node-2` where the run has several hosts."""
    device = process.device
    if device is not None and device.kind == "cpu":
        return "the host"
    if device is None or device.index is None:
        return f"the device of {label(process)}"
    several = subject is not None and len({one.host for one in subject.ranks}) > 1
    return f"GPU {device.index}{f' of {process.host}' if several else ''}"


def on_ranks(subject: Subject, processes: Sequence[Process]) -> str:
    """Return `on TP5`, `on all 8 ranks`, `on TP0, TP1`."""
    size = len(subject.ranks) + len(subject.run.missing)
    if len(processes) == size and size > 1:
        return "on both ranks" if size == 2 else f"on all {size} ranks"
    return f"on {named([label(process) for process in processes])}"


def older(seconds: float | None) -> str:
    """Return by how much a process is older than the rank, as a person says it; empty where it is not known."""
    if seconds is None:
        return ""
    if seconds < 0:
        return f"began {duration(-seconds)} after this start"
    return f"began {duration(seconds)} before this start"


def duration(seconds: float) -> str:
    """Return a duration with the two units that matter: `28 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`."""
    whole = round(seconds)
    for size, unit, less, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {unit}{f' {rest} {smaller}' if rest else ''}"
    return f"{whole} s"


def signed(count: int) -> str:
    """Return bytes as GiB with their sign."""
    return f"{'-' if count < 0 else '+'}{gib(abs(count))}"


def budget_formula(seat: Seat) -> str:
    """Return the budget's formula with its values: `rest = 21.697 - 93.999 x (1 - 0.550) = -20.603 GiB`."""
    budget = seat.budget
    if floor_binds(budget) or budget.pre_load_bytes is None or budget.mem_fraction_static is None:
        slack = _known(budget.slack_bytes)
    else:
        slack = f"{gib(budget.pre_load_bytes)} x (1 - {fraction(budget.mem_fraction_static)})"
    taken = "".join(f" - {gib(size)} ({name})" for name, size in budget.deductions.items())
    return f"rest = {_known(budget.available_bytes)} - {slack}{taken} = {_known(budget.rest_bytes)} GiB"


def _known(count: int | None) -> str:
    """Inside a formula a dash would read as a minus."""
    return "unknown" if count is None else gib(count)


def mib(count: int) -> str:
    """Return bytes with the unit that keeps three figures: MiB below one GiB."""
    return f"{gib(count)} GiB" if abs(count) >= GIB else f"{count / (1 << 20):,.2f} MiB"
