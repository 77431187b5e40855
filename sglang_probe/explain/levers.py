"""What else would make room, each with its gain computed from this run's own numbers, and the fraction to go with it.

The room of a server is what its budget may use once the fraction is free to move:
    room = available - deductions - wanted tokens - what comes after the pools
Every gain is in that currency. Memory taken before the weights counts in full, not by the fraction; what comes after
the pools counts as SGLang's rule of thumb sets it aside. Room below 0 is the amount by which no fraction works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from sglang_probe.explain.counterfactual import compared
from sglang_probe.explain.feasible import Bound, Interval
from sglang_probe.explain.formula import Terms, terms_of
from sglang_probe.explain.log_tokens import bytes_of_token
from sglang_probe.explain.model import Basis, Lever
from sglang_probe.explain.reserve import LEAST_TOKENS
from sglang_probe.explain.set_aside import RuleOfThumb, rule_of_thumb
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.figures import fraction, gib, number
from sglang_probe.timeline.values import as_number

HALVED: Final = {"bfloat16": "fp8", "float16": "fp8", "torch.bfloat16": "fp8", "torch.float16": "fp8"}
"""Types of weights that an 8-bit quantization halves."""
APART: Final = 512 << 20
"""Bytes by which a load may cost the device more than torch holds of it; beyond, others moved meanwhile."""


class Now(NamedTuple):
    """The tightest rank as it is: its terms, what comes after its pools, and what is wished for."""

    subject: Subject
    seat: Seat
    terms: Terms
    thumb: RuleOfThumb | None
    wanted_bytes: int


class Change(NamedTuple):
    """One thing that can be done, and what it moves."""

    flag: str
    value: Any
    says: str
    basis: Basis = "scaled"
    available: int = 0
    """Bytes more after the weights."""
    before: int = 0
    """Bytes more before the weights, and so after them too."""
    needs: int = 0
    """Bytes less that come after the pools."""
    wanted: int = 0
    """Bytes less for the tokens that are wished for."""


def levers_of(subject: Subject, seat: Seat, interval: Interval | None) -> list[Lever]:
    """Return what would help a budget that left nothing: the fraction where one works, else what makes room for one."""
    terms = terms_of(seat.budget)
    if terms is None:
        return []
    moved = _fraction(seat, terms, interval)
    if moved is not None:
        return [moved]
    token = bytes_of_token(subject, seat) or 0
    now = Now(subject, seat, terms, rule_of_thumb(subject), subject.wanted_tokens * token)
    top = None if interval is None else interval.highest
    found = [_lever(now, change, top) for find in _FINDERS for change in find(now)]
    found.sort(key=lambda lever: (not lever.enough, -(lever.gain_bytes or 0)))
    return [*found, *_despite(now, interval)]


def real_weights(cost: int | None, torch: int | None) -> int | None:
    """Return what the weights took on the device, or what torch holds of them where others moved meanwhile."""
    return torch if torch is not None and (cost is None or cost - torch > APART) else cost


def _weights(now: Now) -> int | None:
    return real_weights(now.seat.worker.weights_bytes, now.seat.worker.weights_torch_bytes)


def _fraction(seat: Seat, terms: Terms, interval: Interval | None) -> Lever | None:
    value = None if interval is None else interval.advice
    if interval is None or value is None or value <= terms.fraction:
        return None
    outcome = compared(seat, terms, terms._replace(fraction=value))
    tokens = "" if outcome.gain_tokens is None else f", {number(outcome.gain_tokens)} tokens"
    return Lever(
        flag="--mem-fraction-static",
        value=value,
        gain_bytes=outcome.gain_bytes,
        gain_tokens=outcome.gain_tokens,
        enough=outcome.starts,
        basis="measured" if interval.highest is None else interval.highest.basis,
        says=f"the budget is then {gib(outcome.rest_bytes)} GiB{tokens}",
    )


def _despite(now: Now, interval: Interval | None) -> Iterator[Lever]:
    """A fraction that starts, where it is only SGLang's own reserve that leaves no room for one."""
    value = None if interval is None else interval.despite
    if interval is None or interval.highest is None or value is None:
        return
    if value <= max(interval.lowest, now.terms.fraction):
        return
    left = round((1 - value) * now.terms.pre_load)
    yield Lever(
        flag="--mem-fraction-static",
        value=value,
        basis="assumed",
        says=f"it would start, with {gib(left)} GiB for graphs and activations where SGLang would set"
        f" {gib(interval.highest.needs_bytes)} aside: serving may run out of memory",
    )


def _lever(now: Now, change: Change, top: Bound | None) -> Lever:
    """Return a change as a lever: what room it makes, and which fraction is to go with it."""
    terms = now.terms._replace(
        pre_load=now.terms.pre_load + change.before,
        available=now.terms.available + change.before + change.available,
    )
    gain = change.before + change.available + change.needs + change.wanted
    if top is None:
        return Lever(flag=change.flag, value=change.value, gain_bytes=gain, basis=change.basis, says=change.says)
    needs = top.needs_bytes - change.needs
    lowest = terms.fraction_for(now.wanted_bytes - change.wanted)
    after = Interval(
        lowest, now.subject.wanted_tokens, top._replace(fraction=1 - needs / terms.pre_load), terms.pre_load
    )
    value = after.advice
    with_it = (
        "" if value is None or lowest < terms.fraction <= value else f", with --mem-fraction-static {fraction(value)}"
    )
    return Lever(
        flag=change.flag,
        value=change.value,
        gain_bytes=gain,
        enough=value is not None,
        basis=change.basis,
        says=f"{change.says}{with_it}",
    )


def _tp(now: Now) -> Iterator[Change]:
    size, weights = as_number(now.subject.effective("tp_size", "tp")), _weights(now)
    if size and weights is not None:
        says = f"weights of {gib(weights)} GiB would be about {gib(weights // 2)}, if every one of them is split evenly"
        yield Change("--tp", int(size) * 2, says, available=weights // 2)


def _quantized(now: Now) -> Iterator[Change]:
    steps = now.seat.process.steps
    load = next((step for step in steps if step.phase == "weights.load" and step.worker == "target"), None)
    weights = now.seat.worker.weights_torch_bytes or _weights(now)
    kind = None if load is None or load.attributes.get("quantization") else str(load.attributes.get("dtype"))
    if weights is not None and kind in HALVED:
        says = f"weights of {gib(weights)} GiB in {kind} would be about half in 8 bits"
        yield Change("--quantization", HALVED[kind], says, available=weights // 2)


def _draft_off(now: Now) -> Iterator[Change]:
    weights = sum(one.weights_bytes or 0 for one in now.seat.process.workers if one.worker == "draft")
    if weights:
        says = "without it the draft's weights are not loaded; its KV cache and graphs go too and are not counted here"
        yield Change("--speculative-algorithm", "off", says, "measured", available=weights)


def _requests(now: Now) -> Iterator[Change]:
    states = now.seat.budget.deductions.get("mamba")
    given = as_number(now.subject.effective("max_running_requests"))
    if states:
        value = None if given is None else max(int(given) // 2, 1)
        says = "half as many requests need half of the recurrent states"
        yield Change("--max-running-requests", value, says, available=states // 2)


def _custom_allreduce(now: Now) -> Iterator[Change]:
    way = now.seat.process.pre_load
    if way is not None and way.custom_allreduce_bytes:
        says = "what it took before the weights comes back; small all-reduces get slower"
        yield Change("--disable-custom-all-reduce", None, says, "measured", before=way.custom_allreduce_bytes)


def _graphs(now: Now) -> Iterator[Change]:
    batch = 0 if now.thumb is None else now.thumb.knobs.max_bs
    if now.thumb is not None and batch > 1:
        gain = now.thumb.bytes - now.thumb.with_knobs(max_bs=batch // 2).bytes
        says = "SGLang sets 2 MiB a batch size aside" + LEAST_HOLDS * (gain == 0)
        yield Change("--cuda-graph-max-bs", batch // 2, says, "assumed", needs=gain)


def _chunk(now: Now) -> Iterator[Change]:
    chunk = 0 if now.thumb is None else now.thumb.knobs.prefill_tokens
    if now.thumb is not None and chunk > LEAST_TOKENS:
        half = max(chunk // 2, LEAST_TOKENS)
        gain = now.thumb.bytes - now.thumb.with_knobs(prefill_tokens=half).bytes
        says = "SGLang sets 1.5 MiB a token of a chunk aside for activations" + LEAST_HOLDS * (gain == 0)
        yield Change("--chunked-prefill-size", half, says, "assumed", needs=gain)


LEAST_HOLDS: Final = ", and no less than 10 GiB on this card"


def _kv_dtype(now: Now) -> Iterator[Change]:
    token, wanted = bytes_of_token(now.subject, now.seat), now.subject.wanted_tokens
    if token and now.subject.effective("kv_cache_dtype") in {None, "auto", "bfloat16", "bf16"}:
        says = f"a token takes {number(token // 2)} B instead of {number(token)}"
        says += "" if wanted else ": more tokens, and no room for the first"
        yield Change("--kv-cache-dtype", "fp8_e5m2", says, wanted=wanted * (token - token // 2))


def _context(now: Now) -> Iterator[Change]:
    pools = () if now.seat.worker.kv is None else now.seat.worker.kv.pools
    table = next((pool.bytes for pool in pools if pool.kind == "request" and pool.bytes), None)
    if table:
        says = f"the request pool of {gib(table)} GiB is requests x context x 4 B: half of either, half of it"
        yield Change("--context-length", None, says, needs=table // 2)


_FINDERS: Final[tuple[Callable[[Now], Iterator[Change]], ...]] = (
    _tp, _quantized, _draft_off, _requests, _custom_allreduce, _kv_dtype, _graphs, _chunk, _context,
)  # fmt: skip
