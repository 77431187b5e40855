"""Rules about how a log ends: in the middle of a phase, by what is not memory, or with lines that only look fatal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sglang_probe.explain.model import Confidence, Finding, Lever
from sglang_probe.explain.not_memory import Other, other_in, other_of
from sglang_probe.explain.oom_message import parse
from sglang_probe.explain.phrases import on_ranks
from sglang_probe.explain.sayings import saying_in
from sglang_probe.explain.subject import Subject, label, labels, raised_at
from sglang_probe.figures import exception_type, gib
from sglang_probe.timeline.label_ranges import named
from sglang_probe.timeline.model import Failure, Process, Remark, Step

ORDER: Final = ("dist.init", "weights.load", "kv.profile", "attention.init", "kv.pool", "graph.capture")
"""Phases as they follow: of several that are open the furthest was begun last."""
LOOKS_FATAL: Final = "It looks fatal and is not"
LOOK_FATAL: Final = "These look fatal and are not"
ELSEWHERE: Final = "Not the device's memory"
PLENTY: Final = 1 << 30
"""Free on the device: from here on nothing that SGLang allocates at once after the pools is refused."""


def last_begun(subject: Subject) -> Iterator[Finding]:
    """Where a text ends that does not say how the start ended. Nothing is claimed of what came after."""
    if subject.run.outcome not in {"unknown", "starting"} or not subject.ranks:
        return
    begun = [(process, step) for process in subject.ranks for step in process.steps
             if step.state == "open" and step.depth > 0]  # fmt: skip
    phase = max((step.phase for _, step in begun), key=_place, default=None)
    if phase is not None and not (phase == "kv.pool" and _pools_ended(subject)):
        who = _once(process for process, step in begun if step.phase == phase)
        free = [step.free_before_bytes for _, step in begun if step.phase == phase]
        says = f"The text just ends: the last phase begun is {phase}, {on_ranks(subject, who)}{_room(free)}."
        yield _ends(phase, who, free, says)
        return
    ended = [(process, step) for process in subject.ranks for step in process.steps
             if step.state == "ok" and step.depth]  # fmt: skip
    phase = max((step.phase for _, step in ended), key=_place, default=None)
    if phase is not None:
        who = _once(process for process, step in ended if step.phase == phase)
        free = [step.free_bytes for _, step in ended if step.phase == phase]
        yield _ends(phase, who, free, f"The text just ends: the last phase that it shows is {phase}{_room(free)}.")


def _once(processes: Iterable[Process]) -> list[Process]:
    """Return each rank once: it has a step for all its pools, and one for each of them."""
    return list({id(process): process for process in processes}.values())


def _ends(phase: str, who: Sequence[Process], free: Sequence[int | None], says: str) -> Finding:
    return Finding(
        rule="unfinished",
        severity="info",
        ranks=labels(who),
        says=f"{says} What came of it is unknown from this text.",
        numbers={"phase": phase, "free_bytes": min((one for one in free if one is not None), default=None)},
        lever=Lever(says="give the whole log, or what was written last: the end says how it ended"),
        confidence="certain",
    )


def _place(phase: str) -> int:
    return ORDER.index(phase) if phase in ORDER else -1


def _pools_ended(subject: Subject) -> bool:
    """Say whether a rank came past its pools: then a pool whose end is not printed is no place to stop at."""
    return any(step.phase == "kv.pool" and step.state == "ok" and step.depth == 1 and step.free_bytes is not None
               for process in subject.ranks for step in process.steps)  # fmt: skip


def _room(free: Sequence[int | None]) -> str:
    known = [one for one in free if one is not None]
    if not known:
        return ""
    most = "" if gib(min(known)) == gib(max(known)) else f" ({gib(max(known))} at most)"
    return f" with {gib(min(known))} GiB free{most}"


def not_memory_in_a_log(subject: Subject) -> Iterator[Finding]:
    """The error that ended the start is not the device's memory; and lines that look fatal and are not."""
    run = subject.run
    if subject.failed and run.failure is not None:
        yield _raised(subject, run.failure)
    elif run.outcome == "died":
        yield _host_memory(subject) if _was_killed(subject) else _died(subject)
    yield from remarks(subject)


def _raised(subject: Subject, failure: Failure) -> Finding:
    said = f"{failure.type or ''}: {failure.message or ''}"
    other, free = other_in(said), last_free(subject)
    plenty = free is not None and free >= PLENTY
    said_first = f"It says: {next(iter((failure.message or '').splitlines()), 'without a message')[:300]}"
    where = f"{f' in {subject.run.failed_phase}' if subject.run.failed_phase else ''}{_on(subject)}"
    room = "" if free is None else f" The last that was printed as free is {gib(free)} GiB{_verdict(plenty)}."
    if other is not None:
        says = f"{exception_type(failure.type)}{where} is about {other.what}: not the device's memory. {said_first}"
    elif subject.run.lost_peer:
        says = f"The first error{where} only reports a lost peer: what ended that one is not in this text."
        says = f"{says}{_silent(subject)} {said_first}"
    else:
        says = f"{exception_type(failure.type)}{where}, and its words are not about memory.{room} {said_first}"
    sure: Confidence = "certain" if other is not None else "likely" if plenty else "possible"
    return Finding(
        rule="not_memory",
        severity="error",
        ranks=() if subject.run.failed_label is None else (subject.run.failed_label,),
        says=says,
        numbers={"free_bytes": free, "exception": exception_type(failure.type), "what": other.name if other else None},
        lever=Lever(says=_do(subject, failure, other)),
        confidence=sure,
    )


def after_ready(subject: Subject) -> Iterator[Finding]:
    """What ended a server that was ready, or went wrong in it, where it is not the device's memory."""
    words = [(one, f"{one.what}: {one.message or ''}") for one in subject.run.later]
    found = [one for one, said in words if parse(said) is None and saying_in(said) is None]
    if not found or subject.run.outcome != "ready":
        return
    first = found[0]
    other = other_in(f"{first.what}: {first.message or ''}")
    said = next(iter((first.message or "").splitlines()), "")[:300]
    ended = "ended" if first.kind == "gone" else f"met {first.what}"
    about = "" if other is None else f" It is about {other.what}: not the device's memory."
    more = f" {len(found) - 1} more came after it." if len(found) > 1 else ""
    yield Finding(
        rule="not_memory",
        severity="error",
        ranks=() if first.label is None else (first.label,),
        says=f"The server was ready, and then it {ended}.{about} It says: {said.removesuffix('.')}.{more}",
        numbers={"what": None if other is None else other.name, "exception": first.what},
        lever=None if other is None or other.do is None else Lever(says=other.do),
        confidence="certain" if other is not None else "possible",
    )


def _verdict(plenty: bool) -> str:
    return ": not memory" if plenty else ", so little that a library may have run out of it silently"


def _silent(subject: Subject) -> str:
    """Name the ranks that printed no error: one of them ended first."""
    silent = [label(one) for one in subject.ranks if not any(step.state == "error" for step in one.steps)]
    if not silent or len(silent) == len(subject.ranks):
        return ""
    return f" {named(silent)} printed no error: look there first."


def _do(subject: Subject, failure: Failure, other: Other | None) -> str:
    if other is not None and other.do is not None:
        return other.do
    if subject.run.lost_peer:
        return "look for the process that ended first: its last lines, and the host's log (dmesg -T, journalctl -k)"
    place = raised_at(failure)
    return f"read it as an error of its own{f': raised in {place}' if place else ''}"


def _died(subject: Subject) -> Finding:
    run, free = subject.run, last_free(subject)
    room = "" if free is None else f" The last that was printed as free is {gib(free)} GiB."
    ended = next((remark for remark in run.remarks if remark.kind == "ended"), None)
    other = None if ended is None else other_in(ended.text)
    why = (
        f"it is {other.what}"
        if other is not None
        else "an out-of-memory error of the device would have been raised and printed; a signal from outside, or the"
        " kernel's OOM killer where the host was short, is likelier"
    )
    return Finding(
        rule="not_memory",
        severity="error",
        ranks=() if run.failed_label is None else (run.failed_label,),
        says=f"A process was ended{f' in {run.failed_phase}' if run.failed_phase else ''} without an exception:"
        f" {why}.{room} It says: {run.outcome_reason or '-'}",
        numbers={"free_bytes": free, "what": None if other is None else other.name},
        lever=Lever(says="look at the host's log (dmesg -T, journalctl -k) for the process"),
        confidence="likely",
    )


def _was_killed(subject: Subject) -> bool:
    return any(remark.kind == "ended" and remark.what == "killed" for remark in subject.run.remarks)


def _host_memory(subject: Subject) -> Finding:
    """A signal 9 that comes first: no line says why, and the host's OOM killer is the likeliest sender."""
    run, free = subject.run, last_free(subject)
    room = "" if free is None else f" On the device {gib(free)} GiB were free when it was last printed."
    return Finding(
        rule="host_memory",
        severity="error",
        ranks=() if run.failed_label is None else (run.failed_label,),
        says=f"A process was ended by signal 9{f' in {run.failed_phase}' if run.failed_phase else ''}, without an"
        f" exception: from outside, or by the kernel's OOM killer where the host's memory is short.{room} It is not the"
        f" device's memory, which would have raised an error. It says: {run.outcome_reason or '-'}",
        numbers={"free_bytes": free, "phase": run.failed_phase, "what": "host_killed"},
        lever=Lever(says="look at the host's log: dmesg -T | grep -i 'out of memory', journalctl -k, the pod's last"
                    " state"),
        confidence="possible",
    )


def remarks(subject: Subject) -> Iterator[Finding]:
    """Lines that are not memory, whatever became of the run."""
    lead = _names(subject)
    for name, lines in _alike(subject, "not_memory").items():
        if name != lead:
            yield _elsewhere(subject, name, lines)


def _alike(subject: Subject, kind: str) -> dict[str, list[Remark]]:
    alike: dict[str, list[Remark]] = {}
    for remark in subject.run.remarks:
        if remark.kind == kind:
            alike.setdefault(remark.what, []).append(remark)
    return alike


def looks_fatal(subject: Subject) -> Iterator[Finding]:
    """Lines that look fatal and are not, in one finding; none of a server that is well, where nobody asks."""
    quiet_ones = _alike(subject, "harmless") if subject.is_log else {}
    is_well = subject.run.outcome == "ready" and not subject.run.later and not _alike(subject, "not_memory")
    if quiet_ones and not is_well:
        count = sum(remark.count for lines in quiet_ones.values() for remark in lines)
        shown = "; ".join(f"{_what(name)} ({_places(lines)})" for name, lines in quiet_ones.items())
        yield Finding(
            rule="not_memory",
            severity="info",
            says=f"{LOOKS_FATAL if count == 1 else LOOK_FATAL}: {shown}.",
            numbers={"what": sorted(quiet_ones), "lines": count},
            confidence="certain",
        )


def _names(subject: Subject) -> str | None:
    """Return what the error that ended the start is known by: the rule has said it then."""
    if subject.run.outcome == "died" and _was_killed(subject):
        return "host_killed"
    later = [other_in(f"{one.what}: {one.message or ''}") for one in subject.run.later]
    if subject.run.outcome == "ready":
        return next((one.name for one in later if one is not None), None)
    failure = subject.run.failure if subject.failed else None
    other = None if failure is None else other_in(f"{failure.type or ''}: {failure.message or ''}")
    return None if other is None else other.name


def _elsewhere(subject: Subject, name: str, lines: Sequence[Remark]) -> Finding:
    other = other_of(name) or other_in(lines[0].text)
    said = str(lines[0].values.get("message") or lines[0].text)
    return Finding(
        rule="not_memory",
        severity="info" if subject.run.outcome == "ready" else "warning",
        ranks=tuple(dict.fromkeys(one.label for one in lines if one.label is not None)),
        says=f"{ELSEWHERE}: {_what(name)} ({_places(lines)}): {next(iter(said.splitlines()), '')[:200]}",
        numbers={"what": name, "lines": sum(one.count for one in lines)},
        lever=None if other is None or other.do is None else Lever(says=other.do),
        confidence="certain" if other is not None else "likely",
    )


def _what(name: str) -> str:
    other = other_of(name)
    return name.replace("_", " ") if other is None else other.what


def _places(lines: Sequence[Remark]) -> str:
    """Return `serve.log:6 and 11 more`."""
    more = sum(one.count for one in lines) - 1
    return f"{lines[0].place.rpartition('/')[2]}{f' and {more:,} more' if more else ''}"


def _on(subject: Subject) -> str:
    failed = subject.run.failed_label
    return "" if failed is None else f" on {failed}"


def last_free(subject: Subject) -> int | None:
    """Return the least that the ranks last printed as free: of the rank that failed, if one is named."""
    blamed = [one for one in subject.ranks if label(one) == subject.run.failed_label] or list(subject.ranks)
    known = [last for process in blamed if (last := _last_of(process.steps)) is not None]
    return min(known, default=None)


def _last_of(steps: Sequence[Step]) -> int | None:
    sizes = [size for step in steps if step.depth for size in (step.free_before_bytes, step.free_bytes)]
    return next((size for size in reversed(sizes) if size is not None), None)
