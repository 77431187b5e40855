"""What a start takes after the KV pools, as this run measured it, and what SGLang itself would set aside.

Measured: what was free when the budget was computed, less the KV pools, less what is free at the end of the start.
Assumed: SGLang's own reserve (`reserve`), from which it computes a fraction that is not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sglang_probe.catalogue.releases import order
from sglang_probe.explain.reserve import SINCE, Knobs, Variant, reserve_mib, variant_of
from sglang_probe.explain.scaling import MIB
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.explain.told import Told, knobs_of, knobs_on, largest_of, sizes_of
from sglang_probe.timeline.model import Process

ONLY_BEFORE: Final = frozenset({"additional_ports", "disable_mla", "file_storage_pth", "n_share_experts_fusion"})
"""Arguments that only releases up to 0.4.6 have: each of 0.2.0 to 0.4.6.post5 has one, by SGLang's ServerArgs."""
FROM_0_4_7_POST1: Final = "enable_return_hidden_states"
FROM_0_5_9: Final = "attn_cp_size"
"""Arguments that every release has from this one on, and none before."""
_ANY_CARD: Final = 0.0
"""MiB of a card that is not known: SGLang's least reserve on large ones is left out."""


class RuleOfThumb(NamedTuple):
    """SGLang's own reserve for a server of this size, and what it hangs on."""

    bytes: int
    knobs: Knobs
    variant: Variant = Variant()
    whose: str = "SGLang's own"

    def with_knobs(self, *, max_bs: int | None = None, prefill_tokens: int | None = None) -> RuleOfThumb:
        """Return the rule with other settings."""
        knobs = self.knobs._replace(
            max_bs=self.knobs.max_bs if max_bs is None else max_bs,
            prefill_tokens=self.knobs.prefill_tokens if prefill_tokens is None else prefill_tokens,
        )
        return self._replace(bytes=int(reserve_mib(knobs, self.variant) * MIB), knobs=knobs)

    @property
    def formula(self) -> str:
        """Return the rule with its values, in MiB, as far as it is the same in every release."""
        knobs = self.knobs
        return (
            f"512 + max({knobs.prefill_tokens}, 2048) x 1.5 + {knobs.max_bs} x 2"
            f" + {knobs.tp * knobs.pp} / 8 x 1024 = {self.bytes / MIB:,.0f} MiB"
        )


def rule_of_thumb(subject: Subject) -> RuleOfThumb | None:
    """Return SGLang's own reserve for activations and graphs; None where an argument of it is not known."""
    told = Told(subject.run)
    whole = knobs_of(subject, told, _captured(subject))
    knobs = whole or knobs_on(_ANY_CARD, told, decode_max_bs(subject) or 0)
    if knobs is None:
        return None
    variant = _variant(subject, whole)
    return RuleOfThumb(int(reserve_mib(knobs, variant) * MIB), knobs, variant, _whose(subject))


def _whose(subject: Subject) -> str:
    """Return whose rule it is: releases before it computed a fraction in other ways."""
    release = subject.run.provenance.sglang_version
    older = _is_older(subject) if release is None else order(release) < order(SINCE)
    return f"SGLang {SINCE}'s" if older else "SGLang's own"


def _is_older(subject: Subject) -> bool:
    """Say whether a log that names no release has the arguments of one before the rule: these took a fixed fraction by
    tensor parallelism, or computed it in other ways."""
    known = (subject.run.provenance.effective or {}).keys()
    return bool(known & ONLY_BEFORE) or (FROM_0_4_7_POST1 in known and FROM_0_5_9 not in known)


def _variant(subject: Subject, knobs: Knobs | None) -> Variant:
    """Return the form of the rule that gives this run's own fraction; the plainest where none does."""
    seat = subject.tightest
    in_force = None if seat is None else seat.budget.mem_fraction_static
    found = None if knobs is None or in_force is None else variant_of(knobs, in_force)
    return Variant() if found is None or found.after_capture is not None else found


def decode_max_bs(subject: Subject) -> int | None:
    """Return the largest batch of the decode graphs; 0 where graphs are off, None where nothing says."""
    if subject.effective("disable_cuda_graph") is True:
        return 0
    return largest_of(Told(subject.run), _captured(subject))


def _captured(subject: Subject) -> Sequence[int]:
    """Return the sizes of graphs that the target captured."""
    graphs = (
        sizes_of(step.attributes.get("sizes"))
        for process in subject.ranks
        for step in process.steps
        if step.phase == "graph.capture" and step.worker != "draft" and step.attributes.get("graph") != "prefill"
    )
    return next((sizes for sizes in graphs if sizes), ())


def taken_after(seat: Seat) -> int | None:
    """Return what this rank's start took after the budget beside the KV pools, in bytes; None where it is not known.

    It holds request pool, attention, graphs and what lies between the steps. A start that did not come to its end has
    not taken all of it.
    """
    profile = next((step for step in reversed(seat.process.steps) if step.phase == "kv.profile"), None)
    end = end_of_start(seat.process)
    if profile is None or profile.free_bytes is None or end is None or seat.worker.kv is None:
        return None
    pools = seat.worker.kv.bytes
    return None if pools is None else profile.free_bytes - pools - end


def end_of_start(process: Process) -> int | None:
    """Return what was free when `scheduler.init` had ended well; None where it has not. In a log the first rank alone
    prints it: of another it is what was free after its last phase."""
    roots = [step for step in process.steps if step.phase == "scheduler.init" and step.state == "ok"]
    if not roots or roots[-1].free_bytes is not None:
        return roots[-1].free_bytes if roots else None
    printed = [step.free_bytes for step in process.steps if step.precision_bytes and step.phase == "graph.capture"]
    return printed[-1] if printed else None
