"""What a budget says of itself, and sums of what may be unknown, for the ledger, the findings and the reports alike."""

from __future__ import annotations

import math
from typing import Final

from sglang_probe.figures import GIB
from sglang_probe.timeline.model import Budget, Worker

SAME_BYTES: Final = GIB // 2000
"""Half of the last decimal shown: what differs by less looks the same, and may be the rounding of SGLang's floats."""


MOST_BELOW: Final = GIB // 2
"""By how much a pre-load memory may lie below the one printed later: others that gave a little back meanwhile."""
MOST_ABOVE: Final = 5 * GIB // 2
"""By how much it may lie above: what a communicator and its context take between the two readings."""


def could_be_pre_load(means: int, off: int, printed: int, total: int | None) -> bool:
    """Say whether a pre-load memory that figures imply, good to `off` bytes, may have been SGLang's.

    It was read shortly before the printed one, and on a card of `total` bytes, where the text names that.
    """
    near = printed - MOST_BELOW - off <= means <= printed + MOST_ABOVE + off
    return near and (total is None or means - off < total)


def left_nothing(budget: Budget) -> bool:
    """Say whether the budget has no room for a token."""
    return any(known is not None and known <= 0 for known in (budget.rest_bytes, budget.result))


def plain_slack(budget: Budget) -> float | None:
    """Return pre-load x (1 - mem_fraction_static) in bytes; None where one of them is unknown or no number."""
    if budget.pre_load_bytes is None or budget.mem_fraction_static is None:
        return None
    slack = budget.pre_load_bytes * (1 - budget.mem_fraction_static)
    return slack if math.isfinite(slack) else None


def floor_binds(budget: Budget) -> bool:
    """Say whether SGLang's floor on the slack decides, and not the fraction."""
    plain = plain_slack(budget)
    return plain is not None and budget.slack_bytes is not None and abs(budget.slack_bytes - plain) >= SAME_BYTES


def estimate_of(budget: Budget) -> int | None:
    """Return by how much pre-load memory that a log printed may be off from SGLang's own; None where it is no estimate.

    SGLang's own is (available - rest - deductions) / (1 - fraction), as exactly as these are known. Nothing gives
    memory back before the weights, so SGLang's is no less than the printed one. Worked example: 0.005 GiB of available
    memory and 0.011 of a rest told by its tokens, over 1 - 0.909, are 0.18 GiB.
    """
    if budget.pre_load_basis != "printed" or budget.pre_load_bytes is None:
        return None
    own = budget.precisions.get("pre_load_bytes", 0)
    fraction, rest, available = budget.mem_fraction_static, budget.rest_bytes, budget.available_bytes
    if fraction is None or rest is None or available is None or not 0 < fraction < 1 or budget.verified is None:
        return math.ceil(own)
    implied = (available - rest - sum(budget.deductions.values())) / (1 - fraction)
    open_ = (budget.precisions.get("available_bytes", 0) + budget.precisions.get("rest_bytes", 0)) / (1 - fraction)
    return max(math.ceil(implied + open_ - budget.pre_load_bytes), math.ceil(own))


def is_capped(worker: Worker) -> bool:
    """Say whether --max-total-tokens limits a worker's KV cache, and not memory."""
    return worker.kv is not None and worker.kv.limited_by == "max_total_tokens"


def token_bytes(worker: Worker) -> int | None:
    """Return the bytes that a token takes of a worker's KV cache on one rank; None where nothing says."""
    own = None if worker.budget is None else worker.budget.bytes_per_token
    return own or (None if worker.kv is None else worker.kv.bytes_per_token) or None


def less(more: int | None, taken: int | None) -> int | None:
    """Return the difference; None where one of the two is unknown."""
    return None if more is None or taken is None else more - taken
