"""What memory of others did to a run: did it make the difference, and what did it cost?"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from sglang_probe.explain.counterfactual import Outcome, given_back
from sglang_probe.explain.model import Confidence, Severity
from sglang_probe.explain.oom import Shortage, shortage_of
from sglang_probe.explain.others import Burden, Held
from sglang_probe.explain.phrases import mib
from sglang_probe.explain.subject import Subject, label
from sglang_probe.figures import added, gib, number
from sglang_probe.timeline.model import Process

BALANCED: Final = 0.9
"""SGLang refuses ranks of which the least free has less than this part of the most. Source: its imbalance check."""
UNBALANCED: Final = "memory capacity is unbalanced"
"""In the words of that check."""


class Effect(NamedTuple):
    """What memory of others did to the run."""

    severity: Severity
    says: str
    confidence: Confidence = "certain"
    gain_bytes: int | None = None
    gain_tokens: int | None = None
    enough: bool | None = None
    formula: str | None = None


def effect_of(subject: Subject, burden: Burden, all_of_them: Burden) -> Effect:
    """Say what a burden did. `all_of_them` is that of every other process: together may do what none does alone."""
    alone = _effect(subject, burden)
    if alone.enough is False and burden != all_of_them:
        joint = _effect(subject, all_of_them)
        if joint.enough:
            says = f"Alone it does not make the difference, with the others' memory it does. {joint.says}"
            return alone._replace(severity="error", says=says, formula=joint.formula)
    return alone


def _effect(subject: Subject, burden: Burden) -> Effect:
    if subject.budget_failed:
        return _on_budget(subject, burden)
    shortage = shortage_of(subject)
    if shortage is not None and shortage.short_bytes is not None:
        return _on_shortage(subject, shortage, shortage.short_bytes, burden)
    if was_refused(subject):
        return _on_spread(subject, burden)
    if subject.failed:
        return Effect("warning", "Nothing shows that it is why this run failed", "possible")
    outcome = given_back(subject, burden)
    if outcome is None:
        return Effect("warning", "What it cost this run is not known: no budget was recorded")
    tokens = "" if not outcome.gain_tokens else f", {number(outcome.gain_tokens)} KV tokens"
    says = f"It cost this run {gib(outcome.gain_bytes)} GiB of KV budget{tokens}"
    return Effect("warning", says, gain_bytes=outcome.gain_bytes, gain_tokens=outcome.gain_tokens)


def _on_budget(subject: Subject, burden: Burden) -> Effect:
    outcome, seat = given_back(subject, burden), subject.tightest
    if outcome is None or seat is None or seat.budget.rest_bytes is None or outcome.proves_nothing:
        says = "Whether that is the cause cannot be told: the budget's terms do not give its result, or one is unknown"
        return Effect("warning", says, "possible")
    rest, gain = seat.budget.rest_bytes, outcome.gain_bytes
    after = gib(rest + gain)
    effect = Effect(
        "warning",
        f"It is not the cause: without it the budget would still be {after} GiB",
        gain_bytes=gain,
        gain_tokens=outcome.gain_tokens,
        enough=outcome.starts,
        formula=f"rest without it = {gib(rest)} + {added(rest + gain, -rest)} = {after} GiB",
    )
    if not outcome.starts:
        return effect
    return effect._replace(severity="error", says=_would_have_started(outcome), confidence=_certain_if(outcome.sure))


def _would_have_started(outcome: Outcome) -> str:
    if outcome.sure:
        return "Without it this server would have started"
    return "Without it this server would have started, if no rank whose figures are not here is poorer still"


def _on_shortage(subject: Subject, shortage: Shortage, short: int, burden: Burden) -> Effect:
    """Of an allocation that failed: what would have been free there beyond what the KV pools would have taken of it?"""
    held = burden.get(shortage.label, Held())
    pools = _to_pools(subject, shortage, burden)
    spare = held.now - pools
    into = "" if not pools else f" ({gib(held.now)} less the {gib(pools)} that the KV pools would have taken)"
    if spare > short:
        says = (
            f"Without it the {mib(shortage.wanted_bytes)} that {shortage.label} asked for would have been there{into}"
        )
        return Effect("error", says, gain_bytes=spare, enough=True)
    says = f"Without it {shortage.label} would still have been short by {mib(short - spare)}{into}"
    return Effect("warning", says, gain_bytes=spare or None, enough=False)


def _to_pools(subject: Subject, shortage: Shortage, burden: Burden) -> int:
    """Return what the KV pools would have taken of it: nothing before they are made, or where a cap limits them."""
    outcome = given_back(subject, burden) if shortage.pools_made and not shortage.is_capped else None
    return 0 if outcome is None else max(outcome.gain_bytes, 0)


def was_refused(subject: Subject) -> bool:
    """Say whether SGLang refused the start because its ranks have unlike amounts free."""
    failure = subject.run.failure
    return subject.failed and failure is not None and UNBALANCED in (failure.message or "")


def _on_spread(subject: Subject, burden: Burden) -> Effect:
    free = {label(one): size for one in subject.ranks if (size := free_before_weights(one)) is not None}
    if len(free) < 2:
        return Effect(
            "warning", "Whether that is why the ranks differ cannot be told: one rank alone is here", "possible"
        )
    back = {who: size + burden.get(who, Held()).now for who, size in free.items()}
    if is_even(back.values()) and not is_even(free.values()):
        says = "Without it the ranks would have been alike, and SGLang would have gone on"
        return Effect("error", says, enough=True)
    return Effect("warning", "Without it the ranks would still differ by more than SGLang allows", enough=False)


def is_even(free: Collection[int]) -> bool:
    """Say whether SGLang takes ranks with so much free for alike."""
    return min(free) >= BALANCED * max(free)


def free_before_weights(process: Process) -> int | None:
    """Return what was free on a rank when its distributed init ended or failed."""
    inits = [step for step in process.steps if step.phase == "dist.init" and step.free_bytes is not None]
    return inits[0].free_bytes if inits else None


def _certain_if(sure: bool) -> Confidence:
    return "certain" if sure else "likely"
