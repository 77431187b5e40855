"""Rules about endings that are not the device's memory, about what is not known, and about a server that is well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sglang_probe.explain.effects import was_refused
from sglang_probe.explain.model import Finding, Lever
from sglang_probe.explain.oom import shortage_of
from sglang_probe.explain.oom_message import is_host_memory
from sglang_probe.explain.phrases import gpu, on_ranks
from sglang_probe.explain.rules.log_endings import after_ready, last_begun, not_memory_in_a_log, remarks
from sglang_probe.explain.sayings import no_room
from sglang_probe.explain.subject import Subject, label, labels, raised_at
from sglang_probe.figures import exception_type, fraction, gib, listed, number
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Failure, Process, Step
from sglang_probe.timeline.processes import ended_ns, is_cpu

PLENTY: Final = 1 << 30
"""Free on the device: from here on nothing that SGLang allocates at once after the pools is refused."""
HOST_SCARCE: Final = 2 << 30
"""Available on the host: below it the kernel may end a process (the OOM killer)."""


def not_memory(subject: Subject) -> Iterator[Finding]:
    """The run failed with another error, or a process was ended from outside, with memory to spare."""
    launcher = _gone_alone(subject)
    if launcher is not None:
        yield _never_began(launcher)
    if subject.is_log and (not subject.failed or subject.budget_failed or shortage_of(subject) or no_room(subject)):
        yield from after_ready(subject)
        yield from remarks(subject)
    if not subject.failed or subject.budget_failed or shortage_of(subject) is not None or no_room(subject) is not None:
        return
    run = subject.run
    said = "" if run.failure is None else run.failure.message or ""
    if was_refused(subject):
        return  # the rule of the spread says it
    if subject.is_log:
        yield from not_memory_in_a_log(subject)
        return
    process, step = _anchor(subject)
    if process is None or step is None:
        return
    free = _free(process, step)
    host = _host_available(process)
    if run.outcome == "died":
        yield _died(subject, process, step, free, host)
    elif is_host_memory(f"{run.failure.type if run.failure else ''}: {said}"):
        yield _host(process, said)
    elif run.lost_peer and run.failure is not None:
        yield _lost(subject, process)
    elif run.failure is not None:
        yield _raised(subject, process, step, step.failure or run.failure, free)


def unfinished(subject: Subject) -> Iterator[Finding]:
    """The record ends in the middle of a start: where each rank is, and what was free there. Nothing is claimed."""
    run = subject.run
    if subject.is_log:
        yield from last_begun(subject)
        return
    if run.outcome not in {"starting", "unknown"}:
        return
    places: dict[str, list[Process]] = {}
    for process in subject.ranks:
        steps = [step for step in process.steps if step.state == "open"]
        if steps:
            places.setdefault(max(steps, key=lambda step: step.depth).phase, []).append(process)
    for phase, processes in places.items():
        free = [size for process in processes if (size := _free(process, _deepest(process))) is not None]
        room = f" with {gib(min(free))} GiB free" if free else ""
        least = f" ({gib(max(free))} at most)" if free and gib(min(free)) != gib(max(free)) else ""
        alone = len(places) > 1 and len(processes) < len(subject.ranks) / 2
        yield Finding(
            rule="unfinished",
            severity="warning" if alone else "info",
            ranks=labels(processes),
            says=f"The record ends in {phase}, {on_ranks(subject, processes)}{room}{least}; whether it ended"
            " is not in"
            f" the record.{' The other ranks are elsewhere: look at these first.' if alone else ''}",
            numbers={"phase": phase, "free_bytes": min(free, default=None)},
            confidence="certain",
        )


def _deepest(process: Process) -> Step:
    return max((step for step in process.steps if step.state == "open"), key=lambda step: step.depth)


def unexplained(subject: Subject) -> Iterator[Finding]:
    """Nothing known fits: what would have to be recorded to know. Asked only where no rule names a cause."""
    run = subject.run
    if run.outcome == "unknown" and run.unread_files:
        return  # then how it ended lies in them
    if not subject.failed and (run.outcome != "unknown" or subject.is_log):
        return  # a text that just ends says where: the rule of the unfinished
    reason = f" ({run.outcome_reason})" if run.outcome_reason else ""
    yield Finding(
        rule="unexplained",
        severity="error" if subject.failed else "warning",
        says=f"Nothing that was recorded explains how this run ended{reason}.",
        numbers={"outcome": run.outcome, "failed_phase": run.failed_phase},
        notes=tuple(_missing(subject)),
        confidence="certain",
    )


def _gone_alone(subject: Subject) -> Process | None:
    """Return the launcher that is gone, of a run in which no rank began; None of any other."""
    run = subject.run
    if run.outcome != "unknown" or run.unread_files or any(one.alive is not False for one in run.processes):
        return None
    if any(one.role == "scheduler" or one.rank is not None or one.steps for one in run.processes):
        return None
    return next((one for one in run.processes if one.role == "launcher"), None)


def _never_began(launcher: Process) -> Finding:
    return Finding(
        rule="not_memory",
        severity="error",
        says=f"The launcher (pid {launcher.pid}) ended before any rank began: no memory of a device was asked for yet.",
        lever=Lever(
            says="read the server's last lines: an argument, the path of a model or an import stops it this early"
        ),
        notes=("if there were ranks, the probe was not on their PYTHONPATH: `sglang-probe doctor` looks",),
        confidence="likely",
    )


def _anchor(subject: Subject) -> tuple[Process | None, Step | None]:
    """Return the raising frame's step, or the last phase begun on the process that is gone."""
    run = subject.run
    blamed = [process for process in subject.ranks if process.label == run.failed_label] or list(subject.ranks)
    for process in blamed:
        ends = [step for step in process.steps if step.state in {"error", "died"}]
        if ends:
            return process, max(ends, key=lambda step: step.depth)
    for process in blamed:
        unfinished = [step for step in process.steps if step.state in {"open", "interrupted"}]
        if unfinished:
            return process, max(unfinished, key=lambda step: step.depth)
    return None, None


def _free(process: Process, step: Step) -> int | None:
    """Return what was free at that moment: at the step's end, else at the last reading before."""
    if step.free_bytes is not None:
        return step.free_bytes
    if step.free_before_bytes is not None:
        return step.free_before_bytes
    known = [
        (ended, one.free_bytes)
        for one in process.steps
        if one.free_bytes is not None and (ended := ended_ns(one)) is not None
    ]
    if known:
        return max(known)[1]
    return next((one.free_bytes for one in reversed(process.steps) if one.free_bytes is not None), None)


def _host_available(process: Process) -> int | None:
    readings = [one for step in process.steps for one in (step.before, step.after) if one is not None]
    known = [one.host_available_bytes for one in readings if one.host_available_bytes is not None]
    return min(known, default=None)


def _died(subject: Subject, process: Process, step: Step, free: int | None, host: int | None) -> Finding:
    scarce = host is not None and host < HOST_SCARCE
    device = "" if free is None else f" {gib(free)} GiB were free on {gpu(process, subject)} at its last reading."
    hint = (
        f" The host had {gib(host)} GiB available: the kernel's OOM killer is likely (dmesg -T | grep -i 'out of"
        " memory')."
        if scarce
        else " Nobody writes why: a signal from outside (kill, a scheduler of jobs, the kernel's OOM killer), or"
        " a crash in"
        " native code (a segmentation fault)."
    )
    suspects = _suspects(subject)
    who = f"{label(process)} (pid {process.pid})" if subject.run.failed_label else "A rank"
    if suspects:
        device = device.replace("at its last", f"at {label(process)}'s last")
    on_cpu = is_cpu(process)  # whose OOM is a signal, not an exception
    no_oom = ": not an out-of-memory error of the device, which would have been raised and recorded"
    return Finding(
        rule="not_memory",
        severity="error",
        ranks=(label(process),) if subject.run.failed_label else (),
        says=(_which_first(suspects, step) if suspects else f"{who} ended in {step.phase} without an exception")
        + f"{'' if on_cpu else no_oom}.{device}{hint}",
        numbers={"free_bytes": free, "host_available_bytes": host},
        lever=Lever(
            says=f"look at the host's log for {_pids(suspects or (process,))} (dmesg -T, journalctl -k) and at the"
            " server's last lines"
        ),
        notes=_peers(subject),
        confidence="likely" if scarce or (free or 0) >= PLENTY else "possible",
    )


def _suspects(subject: Subject) -> tuple[Process, ...]:
    """Return the processes of which one went first where the launcher is among them, and no error tells more."""
    run = subject.run
    gone = [one for one in run.processes if one.alive is False]
    launchers = [one for one in gone if one.role == "launcher" and one.label is None]
    if run.failed_label or run.failure is not None or not launchers:
        return ()
    return (*launchers, *(one for one in gone if one.label is not None))


def _which_first(suspects: tuple[Process, ...], step: Step) -> str:
    names = named(labels(suspects))
    return f"{names} ({_pids(suspects)}) are gone, without an exception in {step.phase}; which went first is not known"


def _pids(processes: tuple[Process, ...]) -> str:
    return f"{'pid' if len(processes) == 1 else 'pids'} {listed([one.pid for one in processes], 8)}"


def _raised(subject: Subject, process: Process, step: Step, failure: Failure, free: int | None) -> Finding:
    kind = exception_type(failure.type)
    first = next(iter((failure.message or "").splitlines()), "without a message")
    plenty = free is not None and free >= PLENTY
    device = (
        "what was free then is not known"
        if free is None
        else f"{gib(free)} GiB were free on {gpu(process, subject)} at that moment"
    )
    where = raised_at(failure) or step.phase
    return Finding(
        rule="not_memory",
        severity="error",
        ranks=(label(process),),
        says=f"{kind} in {step.phase} on {label(process)}, and {device}: {_whether(free)}. It says: {first[:300]}",
        numbers={"free_bytes": free, "exception": kind, "raised_in": where},
        lever=Lever(says=f"read it as an error of its own: raised in {where}"),
        confidence="likely" if plenty else "possible",
    )


def _whether(free: int | None) -> str:
    if free is not None and free >= PLENTY:
        return "not memory"
    return "its words are not about memory, and so little was free that a library may have run out of it silently"


def _lost(subject: Subject, process: Process) -> Finding:
    said = "" if subject.run.failure is None else next(iter((subject.run.failure.message or "").splitlines()), "")
    return Finding(
        rule="not_memory",
        severity="error",
        ranks=(label(process),),
        says=f"The first error, on {label(process)}, only reports a lost peer: {said[:300]} What ended that one is"
        " not in this"
        " record.",
        lever=Lever(says="give the other ranks' files too, and look at their last lines in the server's log"),
        confidence="likely",
    )


def _host(process: Process, said: str) -> Finding:
    first = next(iter(said.splitlines()), "")  # a MemoryError says nothing
    return Finding(
        rule="not_memory",
        severity="error",
        ranks=(label(process),),
        says="This is about the host's memory or a kernel's shared memory, not the device's: no"
        f" --mem-fraction-static moves it. {f'It says: {first[:300]}' if first else 'It has no message.'}",
        lever=Lever(
            says="more host memory, a larger /dev/shm (--shm-size, --ipc=host), or smaller tiles of that kernel"
        ),
        confidence="certain",
    )


def _peers(subject: Subject) -> tuple[str, ...]:
    run = subject.run
    if run.lost_peer and run.failure is not None:
        first = next(iter((run.failure.message or "").splitlines()), "")
        return (f"the first error only reports a lost peer ({first[:300]}): it is a consequence",)
    return ()


def _missing(subject: Subject) -> Iterator[str]:
    run = subject.run
    if subject.is_log:
        yield "the text holds neither an exception that explains it, nor SGLang's own words: give the whole log"
        return
    if run.health.absent_roles:
        yield f"no hook saw {listed(run.health.absent_roles, 6)}: `sglang-probe targets` says why"
    if run.missing:
        noun = "rank" if len(run.missing) == 1 else "ranks"
        yield f"{noun} {named([one.world_rank for one in run.missing])} wrote nothing: give their files too"
    if run.unread_files:
        yield f"{number(run.unread_files)} files of this run lie beside those that were given"
    if not any(process.steps for process in run.processes):
        yield "no memory step was recorded: was the probe on PYTHONPATH of the schedulers? `sglang-probe doctor` looks"
    if run.failure is None:
        yield "no exception was recorded: the server's own log may have the last words"
    unsure = [seat for seat in subject.seats if seat.budget.verified is False]
    if unsure:
        f = fraction(unsure[0].budget.mem_fraction_static)
        yield f"the budget's terms (fraction {f}) do not give SGLang's result: {unsure[0].budget.verified_reason}"
