"""What else would make room, each with its gain computed from this run's own numbers.

The room of a server is what its budget may use once the fraction is free to move:
    room = available - deductions - wanted tokens - what comes after the pools
Every gain is in that currency. Memory taken before the weights counts in full, not by the fraction; what comes after
the pools counts as SGLang's rule of thumb sets it aside. Room below 0 is the amount by which no fraction works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sglang_probe.explain.counterfactual import compared
from sglang_probe.explain.feasible import Interval
from sglang_probe.explain.formula import terms_of
from sglang_probe.explain.model import Basis, Lever
from sglang_probe.explain.reserve import LEAST_TOKENS, activations_mib
from sglang_probe.explain.scaling import MIB
from sglang_probe.explain.set_aside import decode_max_bs, rule_of_thumb
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.figures import gib, number
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.values import as_number

HALVED: Final = {"bfloat16": "fp8", "float16": "fp8", "torch.bfloat16": "fp8", "torch.float16": "fp8"}
"""Types of weights that an 8-bit quantization halves."""


def levers_of(subject: Subject, seat: Seat, interval: Interval | None) -> list[Lever]:
    """Return what would help a budget that left nothing: the fraction where one works, else what makes room for one."""
    moved = _fraction(seat, interval)
    if moved is not None:
        return [moved]
    room = None if interval is None or interval.empty_by_bytes is None else -interval.empty_by_bytes
    found = [lever for find in _FINDERS for lever in find(subject, seat)]
    judged = [_judged(lever, room) for lever in found]
    return sorted(judged, key=lambda lever: (not lever.enough, -(lever.gain_bytes or 0)))


def _fraction(seat: Seat, interval: Interval | None) -> Lever | None:
    terms, value = terms_of(seat.budget), None if interval is None else interval.advice
    if terms is None or value is None or value <= terms.fraction:
        return None
    outcome = compared(seat, terms, terms._replace(fraction=value))
    tokens = "" if outcome.gain_tokens is None else f", {number(outcome.gain_tokens)} tokens"
    return Lever(
        flag="--mem-fraction-static",
        value=value,
        gain_bytes=outcome.gain_bytes,
        gain_tokens=outcome.gain_tokens,
        enough=outcome.starts,
        basis="measured" if interval is None or interval.highest is None else interval.highest.basis,
        says=f"the budget is then {gib(outcome.rest_bytes)} GiB{tokens}",
    )


def _judged(lever: Lever, room: int | None) -> Lever:
    """Say whether a lever is enough. What it gives in tokens hangs on the fraction that is then chosen."""
    gain = lever.gain_bytes or 0
    return Lever(
        flag=lever.flag,
        value=lever.value,
        gain_bytes=lever.gain_bytes,
        enough=None if room is None else room + gain > 0,
        basis=lever.basis,
        says=lever.says,
    )


def _lever(flag: str, value: object, gain: int, says: str, basis: Basis = "scaled") -> Lever:
    return Lever(flag=flag, value=value, gain_bytes=gain, says=says, basis=basis)


def _tp(subject: Subject, seat: Seat) -> Iterator[Lever]:
    size, weights = as_number(subject.effective("tp_size", "tp")), seat.worker.weights_bytes
    if size and weights is not None:
        says = f"weights of {gib(weights)} GiB would be about {gib(weights // 2)}, if every one of them is split evenly"
        yield _lever("--tp", int(size) * 2, weights // 2, says)


def _quantized(_: Subject, seat: Seat) -> Iterator[Lever]:
    load = next((step for step in seat.process.steps if step.phase == "weights.load" and step.worker == "target"), None)
    weights = seat.worker.weights_torch_bytes or seat.worker.weights_bytes
    kind = None if load is None or load.attributes.get("quantization") else str(load.attributes.get("dtype"))
    if weights is not None and kind in HALVED:
        says = f"weights of {gib(weights)} GiB in {kind} would be about half in 8 bits"
        yield _lever("--quantization", HALVED[kind], weights // 2, says)


def _draft_off(_: Subject, seat: Seat) -> Iterator[Lever]:
    weights = sum(one.weights_bytes or 0 for one in seat.process.workers if one.worker == "draft")
    if weights:
        says = "without it the draft's weights are not loaded; its KV cache and graphs go too and are not counted here"
        yield _lever("--speculative-algorithm", "off", weights, says, "measured")


def _requests(subject: Subject, seat: Seat) -> Iterator[Lever]:
    states, given = seat.budget.deductions.get("mamba"), as_number(subject.effective("max_running_requests"))
    if states:
        says = "half as many requests need half of the recurrent states"
        yield _lever("--max-running-requests", None if given is None else max(int(given) // 2, 1), states // 2, says)


def _custom_allreduce(_: Subject, seat: Seat) -> Iterator[Lever]:
    cost = None if seat.process.pre_load is None else seat.process.pre_load.custom_allreduce_bytes
    if cost:
        says = "what it took before the weights comes back; small all-reduces get slower"
        yield _lever("--disable-custom-all-reduce", None, cost, says, "measured")


def _graphs(subject: Subject, _: Seat) -> Iterator[Lever]:
    batch = decode_max_bs(subject)
    if batch and batch > 1:
        gain = (batch - batch // 2) * 2 * MIB
        yield _lever("--cuda-graph-max-bs", batch // 2, gain, "SGLang sets 2 MiB a batch size aside", "assumed")


def _chunk(subject: Subject, _: Seat) -> Iterator[Lever]:
    thumb = rule_of_thumb(subject)
    chunk = 0 if thumb is None else thumb.knobs.prefill_tokens
    if chunk > LEAST_TOKENS:
        half = max(chunk // 2, LEAST_TOKENS)
        gain = int((activations_mib(chunk) - activations_mib(half)) * MIB)
        says = "SGLang sets 1.5 MiB a token of a chunk aside for activations"
        yield _lever("--chunked-prefill-size", half, gain, says, "assumed")


def _kv_dtype(subject: Subject, seat: Seat) -> Iterator[Lever]:
    token, wanted = token_bytes(seat.worker), subject.wanted_tokens
    if token and subject.effective("kv_cache_dtype") in {None, "auto", "bfloat16", "bf16"}:
        says = f"a token takes {number(token // 2)} B instead of {number(token)}"
        says += "" if wanted else ": more tokens, and no room for the first"
        yield _lever("--kv-cache-dtype", "fp8_e5m2", wanted * (token - token // 2), says)


def _context(_: Subject, seat: Seat) -> Iterator[Lever]:
    pools = () if seat.worker.kv is None else seat.worker.kv.pools
    table = next((pool.bytes for pool in pools if pool.kind == "request" and pool.bytes), None)
    if table:
        says = f"the request pool of {gib(table)} GiB is requests x context x 4 B: half of either, half of it"
        yield _lever("--context-length", None, table // 2, says)


_FINDERS: Final[tuple[Callable[[Subject, Seat], Iterator[Lever]], ...]] = (
    _tp, _quantized, _draft_off, _requests, _custom_allreduce, _kv_dtype, _graphs, _chunk, _context,
)  # fmt: skip
