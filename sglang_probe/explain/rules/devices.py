"""Rules about whose device it is: two ranks on one, a context where none belongs, two servers on the same cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.explain.effects import Effect, effect_of
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.others import burden_of
from sglang_probe.explain.phrases import gpu
from sglang_probe.explain.subject import Subject, label, labels
from sglang_probe.figures import gib
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Neighbour, Process

_DUPLICATE: Final = "Duplicate GPU detected"
"""NCCL, where two ranks of a communicator are on one device."""


def shared_device(subject: Subject) -> Iterator[Finding]:
    """Two ranks of the run hold their memory on one device."""
    by_device: defaultdict[tuple[str | None, str], list[Process]] = defaultdict(list)
    for process in subject.ranks:
        if process.device is not None and process.device.uuid is not None and process.device.kind != "cpu":
            by_device[process.host, process.device.uuid].append(process)
    for (_, uuid), together in by_device.items():
        if len(together) > 1:
            yield Finding(
                rule="shared_device",
                severity="error" if _made_the_difference(subject, together) else "warning",
                ranks=labels(together),
                says=f"{named(labels(together))} are on one device, {gpu(together[0], subject)} ({uuid}): each"
                " finds"
                " the other's weights and pools gone from its budget",
                numbers={"device": uuid, "pids": [process.pid for process in together]},
                lever=Lever(
                    flag="--base-gpu-id",
                    basis="unknown",
                    says="give each rank a device of its own: CUDA_VISIBLE_DEVICES, --base-gpu-id, --gpu-id-step",
                ),
                confidence="certain",
            )


def _made_the_difference(subject: Subject, together: Sequence[Process]) -> bool:
    """Say whether the run failed of it: NCCL says so, or without the others' memory there had been room."""
    said = "" if subject.run.failure is None else subject.run.failure.message or ""
    if _DUPLICATE in said:
        return subject.failed
    here = {process.pid for process in together}
    mates = burden_of(subject, lambda process, one: process.pid in here and one.kind == "run" and one.pid in here)
    return effect_of(subject, mates, mates).enough is True


def stray_context(subject: Subject) -> Iterator[Finding]:
    """A process of the run holds memory on a device that is not its own."""
    strays = burden_of(subject, lambda process, one: is_stray(subject, process, one))
    if not strays:
        return
    effect = effect_of(subject, strays, strays)
    for process in subject.ranks:
        for neighbour in process.neighbours:
            if is_stray(subject, process, neighbour):
                yield _stray(subject, process, neighbour, subject.by_pid.get((process.host, neighbour.pid)), effect)


def is_stray(subject: Subject, process: Process, neighbour: Neighbour) -> bool:
    """Say whether a process of the run is on a rank's device without belonging there."""
    if neighbour.kind != "run":
        return False
    other = subject.by_pid.get((process.host, neighbour.pid))
    return other is None or not _same_device(process, other)


def _stray(subject: Subject, process: Process, neighbour: Neighbour, other: Process | None, effect: Effect) -> Finding:
    name = label(other) if other is not None else neighbour.name or "a process of this run"
    size = size_of(neighbour)
    amount = "memory" if size is None else f"{gib(size)} GiB"
    home = "has no device of its own" if other is None or other.label is None else f"belongs on {gpu(other, subject)}"
    return Finding(
        rule="stray_context",
        severity=effect.severity,
        ranks=(label(process),),
        says=f"{name} (pid {neighbour.pid}) holds {amount} on {gpu(process, subject)}, where it does not belong:"
        f" it {home}."
        f" Most often that is a CUDA context, of about half a GiB. {effect.says}.",
        numbers={"pid": neighbour.pid, "bytes": size},
        formula=effect.formula,
        lever=Lever(
            gain_bytes=effect.gain_bytes,
            gain_tokens=effect.gain_tokens,
            enough=effect.enough,
            says="find what touches that device in this process: a torch call without an index, before set_device",
        ),
        confidence=effect.confidence,
    )


def size_of(neighbour: Neighbour) -> int | None:
    """Return what a process holds, or held at most where it is gone or was not read again."""
    return neighbour.bytes if neighbour.bytes is not None else neighbour.peak_bytes


def _same_device(process: Process, other: Process) -> bool:
    mine, theirs = process.device, other.device
    return mine is not None and theirs is not None and mine.uuid == theirs.uuid and mine.index == theirs.index


def is_server(neighbour: Neighbour) -> bool:
    """Say whether a foreign process is a process of another SGLang server that lives, or lived then."""
    return neighbour.kind == "foreign" and (neighbour.name or "").startswith("sglang::") and not neighbour.left_over
