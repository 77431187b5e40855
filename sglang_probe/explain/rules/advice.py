"""The rule that checks SGLang's own advice before anybody follows it: right in arithmetic, and right as a diagnosis?

SGLang says both "increase" (no room for the KV cache at start-up) and "lower" (out of memory in capture or serving). It
says the latter at every exception of a capture, also where another process was killed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from sglang_probe.explain.feasible import at_least, interval_of
from sglang_probe.explain.model import Confidence, Finding
from sglang_probe.explain.oom import shortage_of, why_lowering_frees_nothing
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.rules.endings import PLENTY
from sglang_probe.explain.rules.fraction import contradicts
from sglang_probe.explain.rules.log_endings import last_free
from sglang_probe.explain.rules.tenants import cause_elsewhere
from sglang_probe.explain.subject import Subject
from sglang_probe.figures import fraction, gib

_RAISE: Final = re.compile(
    r"(?:increase|raise)\s+`?--mem-fraction-static|larger `?--mem-fraction-static", re.IGNORECASE
)
_LOWER: Final = re.compile(
    r"--mem-fraction-static`? to a smaller value|(?:decrease|lower|reduce|reducing)\s+`?--mem-fraction-static",
    re.IGNORECASE,
)
_EXPAND: Final = re.compile(r"expandable_segments")
RAISE: Final = "SGLang advises to raise --mem-fraction-static"
LOWER: Final = "SGLang advises to lower --mem-fraction-static"
EXPAND: Final = "PyTorch advises expandable_segments against fragmentation"
UNCOMPUTED: Final = "no budget that left nothing was recorded, or its terms do not give SGLang's own result"


def advice(subject: Subject) -> Iterator[Finding]:
    """Whether what SGLang's message advises is right here."""
    said = "" if subject.run.failure is None or not subject.failed else subject.run.failure.message or ""
    if _RAISE.search(said):
        yield _raise(subject)
    if _LOWER.search(said):
        yield _lower(subject)
    if _EXPAND.search(said) and shortage_of(subject) is not None:
        yield from _expand(subject)


def _raise(subject: Subject) -> Finding:
    """Say whether more fraction is what a start needs."""
    seat, elsewhere = subject.tightest, cause_elsewhere(subject)
    interval = None if seat is None or not subject.budget_failed else interval_of(subject, seat)
    if seat is None or interval is None or contradicts(seat):
        return _finding(RAISE, f"This cannot be confirmed: {UNCOMPUTED}.", "possible")
    lowest = at_least(interval.lowest)
    right = f"Arithmetically right, for from {lowest} on something is left"
    if elsewhere is not None:
        given = fraction(seat.budget.mem_fraction_static)
        return _finding(RAISE, f"{right}, and diagnostically wrong: {elsewhere}, and {given} would do without that.")
    if interval.empty_by_bytes is not None:
        short = gib(interval.empty_by_bytes)
        by_rule = (
            ""
            if interval.highest is None or not interval.highest.whose
            else f"by {interval.highest.whose} rule of thumb "
        )
        says = f"{right}, and no help: {by_rule}no fraction leaves enough for what follows, by {short} GiB."
        return _finding(RAISE, says, "likely")
    named = seat.budget.minimum_viable_fraction_printed is not None
    unsaid = "It does not say how high it may go." if named else f"It does not say how far: at least {lowest}."
    return _finding(RAISE, f"Right here. {unsaid}")


def _lower(subject: Subject) -> Finding:
    """Say whether less fraction is what a capture needs."""
    shortage = shortage_of(subject)
    if shortage is not None:
        short = "" if shortage.short_bytes is None else f" by at least {mib(shortage.short_bytes)}"
        why = why_lowering_frees_nothing(shortage)
        if why is not None:
            return _finding(LOWER, f"The device was out of memory, and a lower fraction frees nothing here: {why}.")
        return _finding(LOWER, f"Right here: the device was out of memory. The static budget must give way{short}.")
    free = _free_at_error(subject)
    when = " were free when it failed"
    if free is None and subject.is_log:
        free, when = last_free(subject), " were the last that was printed as free"
    lost = " and only reports a lost peer" if subject.run.lost_peer else ""
    if free is None or free < PLENTY:
        amount = "What was free is not known" if free is None else f"{gib(free)} GiB{when}"
        says = (
            f"It says so at every exception of a capture: no diagnosis. {amount}: whether it was memory cannot be told."
        )
        return _finding(LOWER, says, "possible")
    return _finding(
        LOWER,
        f"It says so at every exception of a capture: no diagnosis. This one is not about memory{lost}."
        f" {gib(free)} GiB{when}.",
    )


def _expand(subject: Subject) -> Iterator[Finding]:
    shortage = shortage_of(subject)
    idle = None if shortage is None else shortage.said.unallocated
    if shortage is None or idle is None or not shortage.wanted_bytes:
        return
    if idle >= shortage.wanted_bytes:
        return  # the rule of fragmentation says it
    verdict = (
        f"Not the cause: only {mib(idle)} are reserved and unallocated, and {mib(shortage.wanted_bytes)} were wanted."
    )
    yield _finding(EXPAND, verdict)


def _free_at_error(subject: Subject) -> int | None:
    for process in subject.ranks:
        if process.label == subject.run.failed_label or subject.run.failed_label is None or subject.run.lost_peer:
            known = [step.free_bytes for step in process.steps if step.state == "error" and step.free_bytes is not None]
            if known:
                return known[0]
    return None


def _finding(advice: str, verdict: str, confidence: Confidence = "certain") -> Finding:
    return Finding(rule="advice", severity="info", says=f"{advice}. {verdict}", confidence=confidence)
