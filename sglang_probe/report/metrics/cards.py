"""What the cards of a run are and hold, in OpenTelemetry's words (`hw.gpu.*`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sglang_probe.report.metrics.catalogue import CARD_LIMIT, CARD_USAGE, CARD_UTILIZATION, Sample
from sglang_probe.report.names import clipped
from sglang_probe.report.series import RunClock
from sglang_probe.timeline.model import Device, Process, Run
from sglang_probe.timeline.processes import is_cpu, last_ledger

VENDORS: Final = ("NVIDIA", "AMD", "Intel")


def card_samples(run: Run, name: str) -> Iterator[Sample]:
    """Yield size and use of each card once, by the rank that read it last."""
    driver = driver_version(run)
    for process in _last_readers(run):
        device = process.device or Device()
        model = clipped(device.name or "")
        host, uuid, short = clipped(process.host or ""), card_id(device), _short_name(device)
        labels = (name, host, uuid, "gpu", short, model, _vendor(model), driver)
        step = last_ledger(process)
        total = None if step is None else step.ledger_total_bytes
        free = None if step is None or step.ledger is None else step.ledger.free
        used = None if total is None or free is None else total - free
        yield Sample(CARD_LIMIT, labels, device.total_bytes if total is None else total)
        yield Sample(CARD_USAGE, labels, used)
        yield Sample(CARD_UTILIZATION, labels, None if used is None or not total else used / total)


def card_id(device: Device | None) -> str:
    """Return what tells a card from the others of its host: its UUID, else SGLang's number of it."""
    if device is None or device.kind == "cpu":
        return ""
    return clipped(device.uuid or ("" if device.index is None else f"gpu-{device.index}"))


def driver_version(run: Run) -> str:
    """Return the version of the driver; nothing where it is unknown or hosts differ in it."""
    differs = any(one.key == "version of driver" for one in run.provenance.differs)
    return "" if differs else clipped(run.provenance.versions.get("driver") or "")


def _last_readers(run: Run) -> list[Process]:
    clock = RunClock(run)
    last: dict[tuple[str | None, str], tuple[float, Process]] = {}
    for process in run.processes:
        if process.device is None or is_cpu(process) or not card_id(process.device):
            continue
        key = (process.host, card_id(process.device))
        at = _read_at(process, clock)
        if key not in last or at > last[key][0]:
            last[key] = (at, process)
    return [process for _, process in last.values()]


def _read_at(process: Process, clock: RunClock) -> float:
    step = last_ledger(process)
    if step is None:
        return -1.0
    at = clock.end_s(process, step)
    at = clock.begin_s(process, step) if at is None else at
    return 0.0 if at is None else at


def _short_name(device: Device) -> str:
    return "" if device.index is None else f"GPU {device.index}"


def _vendor(model: str) -> str:
    return next((vendor for vendor in VENDORS if model.upper().startswith(vendor.upper())), "")
