"""Rules about whose device it is: two ranks on one, a context where none belongs, two servers on the same cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from sglang_probe.explain.counterfactual import Outcome, given_back
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.phrases import gpu
from sglang_probe.explain.subject import Subject, label, labels
from sglang_probe.figures import gib, listed, number
from sglang_probe.timeline.model import Neighbour, Process

ON_GPUS = "cuda"


def shared_device(subject: Subject) -> Iterator[Finding]:
    """Two ranks of the run hold their memory on one device."""
    by_device: defaultdict[tuple[str, str], list[Process]] = defaultdict(list)
    for process in subject.ranks:
        if process.device is not None and process.device.uuid is not None and process.device.kind != "cpu":
            by_device[process.host, process.device.uuid].append(process)
    for (_, uuid), together in by_device.items():
        if len(together) > 1:
            yield Finding(
                rule="shared_device",
                severity="error" if subject.failed else "warning",
                ranks=labels(together),
                says=f"{listed(labels(together), 8)} are on one device, {gpu(together[0])} ({uuid}): each finds the"
                " other's weights and pools gone from its budget",
                numbers={"device": uuid, "pids": [process.pid for process in together]},
                lever=Lever(
                    flag="--base-gpu-id",
                    basis="unknown",
                    says="give each rank a device of its own: CUDA_VISIBLE_DEVICES, --base-gpu-id, --gpu-id-step",
                ),
                confidence="certain",
            )


def stray_context(subject: Subject) -> Iterator[Finding]:
    """A process of the run holds memory on a device that is not its own."""
    own = {(process.host, process.pid): process for process in subject.run.processes}
    for process in subject.ranks:
        for neighbour in process.neighbours:
            other = own.get((process.host, neighbour.pid))
            if neighbour.kind == "run" and (other is None or not _same_device(process, other)):
                yield _stray(subject, process, neighbour, other)


def _stray(subject: Subject, process: Process, neighbour: Neighbour, other: Process | None) -> Finding:
    name = label(other) if other is not None else neighbour.name or "a process of this run"
    size = neighbour.bytes if neighbour.bytes is not None else neighbour.peak_bytes
    held = "memory" if size is None else f"{gib(size)} GiB"
    home = "has no device of its own" if other is None or other.label is None else f"belongs on {gpu(other)}"
    effect = None if size is None else given_back(subject, {label(process): size})
    return Finding(
        rule="stray_context",
        severity="warning",
        ranks=(label(process),),
        says=f"{name} (pid {neighbour.pid}) holds {held} on {gpu(process)}, where it does not belong: it {home}. Most"
        f" often that is a CUDA context, of about half a GiB. {_cost(effect)}",
        numbers={"pid": neighbour.pid, "bytes": size},
        lever=Lever(
            gain_bytes=None if effect is None else effect.gain_bytes,
            gain_tokens=None if effect is None else effect.gain_tokens,
            says="find what touches that device in this process: a torch call without an index, before set_device",
        ),
        confidence="certain",
    )


def _cost(effect: Outcome | None) -> str:
    if effect is None:
        return "It is gone from this rank's budget."
    tokens = "" if not effect.gain_tokens else f", {number(effect.gain_tokens)} KV tokens"
    return f"It costs {gib(effect.gain_bytes)} GiB of KV budget{tokens}."


def _same_device(process: Process, other: Process) -> bool:
    mine, theirs = process.device, other.device
    return mine is not None and theirs is not None and mine.uuid == theirs.uuid and mine.index == theirs.index


def is_server(neighbour: Neighbour) -> bool:
    """Say whether a foreign process is a live process of another SGLang server."""
    named = (neighbour.name or "").startswith("sglang::")
    return neighbour.kind == "foreign" and named and not neighbour.left_over and not neighbour.gone
