"""Read bytes, and name what was lost and kept."""

from __future__ import annotations

from pathlib import Path

from sglang_probe.collect import Collected, Loss, read


def read_bytes(lines: bytes, tmp_path: Path) -> Collected:
    """Read one file of these bytes."""
    file = tmp_path / "events.jsonl"
    file.write_bytes(lines)
    return read([file])


def losses_of(collected: Collected) -> dict[str, int]:
    """Return how often each kind of loss was found."""
    return {loss.kind: loss.count for loss in collected.report.losses}


def loss_of(collected: Collected, kind: str) -> Loss:
    """Return the loss of one kind."""
    return next(loss for loss in collected.report.losses if loss.kind == kind)


def seqs_of(collected: Collected) -> list[int]:
    """Return the sequence numbers of every event that was kept."""
    return [record.seq for run in collected.runs for member in run.members for record in member.process.records]
