"""What a token takes of the KV cache, of a run that only a log tells of: as printed, or by the model it seems to be.

Printed are a pool's bytes with two decimals and its tokens: 8.58 GiB over 131,072 is 70,287 B, good to 41. The one
shape of the model's class that lies within that is exact: 70,272. Where no pool is printed, the class, the weights of
all ranks and what the pools took of the free memory must leave exactly one shape. Weights of 8 or 4 bits fit many a
small model that is not listed, so they count where the run says that it is quantized, or where it says nothing and a
printed pool confirms the shape.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from typing import Final, NamedTuple

from sglang_probe.catalogue.models import PLAIN, QUANTIZED, Guess, bytes_per_token
from sglang_probe.explain.model import Basis
from sglang_probe.explain.subject import Seat, Subject
from sglang_probe.explain.told import positive
from sglang_probe.figures import number
from sglang_probe.timeline.arithmetic import token_bytes
from sglang_probe.timeline.model import Process, Step, Worker

_LABEL: Final = re.compile(r"\b(DP|TP)(\d+)")
LEAST_PART: Final = 0.85
"""Of what the pools took, the part that is the KV cache's at least: the rest is the requests' pool and rounding."""


class TokenSize(NamedTuple):
    """Bytes of a token on one rank."""

    bytes: int
    precision: int
    """How far off: 0 for the exact size of a shape."""
    says: str
    """Where it is from, for a person."""
    basis: Basis


def token_size(subject: Subject, process: Process, worker: Worker) -> TokenSize | None:
    """Return what a token takes on this rank; None where neither a pool nor a model tells it."""
    told = worker.budget.bytes_per_token if worker.budget is not None else None
    kv = worker.kv
    size, off = (told, 0) if kv is None or kv.bytes_per_token is None else (kv.bytes_per_token, _off(worker))
    if size is None:
        return _by_model(subject, process, worker)
    if not off:
        return TokenSize(size, 0, f"{number(size)} B", "measured")
    printed = f"{number(size)} +- {number(off)} B, by the pool's size and tokens"
    guess = _guess(subject, worker, size - off, size + off, printed=True)
    if guess is None:
        return TokenSize(size, off, printed, "measured")
    return TokenSize(guess.bytes, 0, f"{_of(guess)}; printed: {printed}", "assumed")


def bytes_of_token(subject: Subject, seat: Seat) -> int | None:
    """Return what a token takes as recorded; of a log that does not print it, by the model that it seems to be."""
    known = token_bytes(seat.worker)
    guess = seat_token(subject, seat) if known is None and subject.is_log else None
    return known if guess is None else guess.bytes


def seat_token(subject: Subject, seat: Seat) -> TokenSize | None:
    """Return the same for a seat; of a run with events what the budget says."""
    return token_size(subject, seat.process, seat.worker)


def _off(worker: Worker) -> int:
    return 0 if worker.kv is None else worker.kv.bytes_per_token_precision or 0


def _by_model(subject: Subject, process: Process, worker: Worker) -> TokenSize | None:
    took, tokens = pool_step(process), None if worker.kv is None else worker.kv.tokens
    least = most = None
    if took is not None and took.cost_bytes is not None and tokens:
        most = (took.cost_bytes + (took.precision_bytes or 0)) / tokens
        least = LEAST_PART * took.cost_bytes / tokens
    guess = _guess(subject, worker, least, most)
    return None if guess is None else TokenSize(guess.bytes, 0, _of(guess), guess.basis)


def _of(guess: Guess) -> str:
    return f"{number(guess.bytes)} B ({guess.says}, if it is {guess.of_model}: assumed)"


def _guess(
    subject: Subject, worker: Worker, least: float | None, most: float | None, *, printed: bool = False
) -> Guess | None:
    """Return the one shape of the model's class that fits; a rank that prints nothing is taken for like this one.

    `printed`: whether the bounds are those of a printed pool, good to a part in a thousand.
    """
    targets = [one for process in subject.ranks for one in process.workers if one.worker == "target"]
    known = next((one for one in (worker, *targets) if one.model_class is not None and one.weights_bytes), None)
    if not subject.is_log or known is None or known.model_class is None or known.weights_bytes is None:
        return None
    world, heads = sharing(subject)
    if world == 1 and least is None and positive(subject.effective("tp_size")) is None:
        return None  # one rank of how many?
    dtype = subject.effective("kv_cache_dtype")
    return bytes_per_token(
        known.model_class,
        known.weights_bytes * world,
        heads,
        dtype if isinstance(dtype, str) else None,
        least=least,
        most=most,
        bits=_bits(subject, printed),
        mla=subject.effective("disable_mla") is not True and subject.effective("enable_mla") is not False,
    )


def _bits(subject: Subject, printed: bool) -> Collection[int] | None:
    """Return the bits that a parameter may have; None where only the model's own are likely."""
    quantized = quantization_told(subject)
    if quantized is None:
        return (*PLAIN, *QUANTIZED) if printed else None
    return QUANTIZED if quantized else PLAIN


def quantization_told(subject: Subject) -> bool | None:
    """Return whether the weights are quantized, as the run says; None where it does not say.

    `quantization=None` among the arguments says nothing: a checkpoint names its own. From 0.5.10 on `Load weight end`
    names that, in place of the dtype, so a line with neither says that there is none, if the arguments ask for none.
    """
    loads = [
        step.attributes
        for process in subject.ranks
        for step in process.steps
        if step.phase == "weights.load" and step.worker != "draft" and step.attributes.get("model_class") is not None
    ]
    asked = subject.effective("quantization")
    if any(load.get("quantization") for load in loads) or asked not in {None, "unquant"}:
        return True
    if asked is None and not (loads and subject.run.provenance.effective):
        return None
    return False if asked is not None or all(load.get("dtype") is None for load in loads) else None


def sharing(subject: Subject) -> tuple[int, int]:
    """Return how many ranks hold one copy of the weights, and how many share its heads, by arguments or else labels.

    Data-parallel attention numbers TP through (`DP1 TP5`), and a copy is spread over all; replicas each begin at TP0.
    """
    tensor, replicas = positive(subject.effective("tp_size")), positive(subject.effective("dp_size"))
    if tensor is not None:
        groups_of_heads = (replicas or 1) if subject.effective("enable_dp_attention") is True else 1
        return tensor, max(1, tensor // groups_of_heads)
    by_dp: defaultdict[int, set[int]] = defaultdict(set)
    for process in subject.ranks:
        told = {name: int(count) for name, count in _LABEL.findall(process.label or "")}
        by_dp[told.get("DP", 0)].add(told.get("TP", 0))
    groups = list(by_dp.values()) or [{0}]
    heads = max(map(len, groups))
    attention = len(groups) > 1 and not set.intersection(*groups)
    return (sum(map(len, groups)) if attention else heads), heads


def pool_step(process: Process) -> Step | None:
    """Return the step of the target's KV pools, all together."""
    return next((step for step in process.steps if step.phase == "kv.pool" and step.worker != "draft"), None)
