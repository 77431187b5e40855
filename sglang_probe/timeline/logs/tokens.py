"""What a token takes of the KV cache on one rank, and how many there are, as a log tells it."""

from __future__ import annotations

from typing import NamedTuple

from sglang_probe.collect.logs.model import Fact
from sglang_probe.timeline.logs.measured import Measured, measured, total
from sglang_probe.timeline.logs.seats import Seat
from sglang_probe.timeline.logs.told import Told
from sglang_probe.timeline.model import Kv, Pool


class TokenSize(NamedTuple):
    """Bytes of one token; `precision` 0: exact."""

    bytes: int
    precision: int
    reason: str


def kv_of(seat: Seat, owner: int, told: Told, size: TokenSize | None, served: int | None = None) -> Kv | None:
    """Return the KV cache that a model ended up with, as far as its lines say; None where none speaks of it.

    `served`: the tokens that another rank prints: from 0.5.2 on only the first does, for all.
    """
    pools = pools_of(seat, owner)
    tokens = tokens_of(seat, owner)
    if tokens is None and owner == 0:
        tokens = served
    if not pools and tokens is None:
        return None
    held = held_of(seat, owner)
    limited_by, reason = _limited(seat, owner, told, tokens, hybrid=any(pool.kind == "SWA" for pool in pools))
    cap = next(iter(seat.of(owner, "kv_cap")), None)
    asked = None if cap is None else cap.count("asked")
    given = told.count("max_total_tokens")
    return Kv(
        tokens=tokens,
        bytes=None if held is None else held.bytes,
        precision_bytes=None if held is None else held.precision or None,
        bytes_per_token=None if size is None else size.bytes,
        bytes_per_token_precision=None if size is None else size.precision or None,
        bytes_per_token_reason=None if size is None else size.reason,
        pools=pools,
        limited_by=limited_by,
        limited_by_reason=reason,
        profiled_tokens=None if cap is None else cap.count("profiled"),
        max_total_tokens_given=given if asked is None else asked,
    )


def tokens_of(seat: Seat, owner: int) -> int | None:
    """Return how many tokens a model's cache has: as the scheduler serves with, else as its pool was built."""
    if owner == 0:
        served = seat.of(0, "capacity")
        if served:
            return served[-1].count("max_total_num_tokens")
    sized = [fact for fact in seat.of(owner, "kv_post_capture") if fact.count("tokens") is not None]
    if sized:
        return sized[-1].count("tokens")
    window = _window(seat, owner)
    if window is not None:
        return window.count("full") or window.count("swa")
    built = [fact for fact in seat.of(owner, "kv_alloc") if fact.values.get("bound") is not True]
    return built[0].count("tokens") if built else None


def _window(seat: Seat, owner: int) -> Fact | None:
    found = seat.of(owner, "swa_tokens", "swa_mem")
    return found[0] if found else None


def pools_of(seat: Seat, owner: int) -> tuple[Pool, ...]:
    """Return the pools that were printed, in that order. One sized before graph capture only reserves addresses."""
    window = _window(seat, owner)
    found = []
    for fact in seat.of(owner, "kv_alloc", "mamba_alloc", "kv_post_capture"):
        pool = _pool(fact, window)
        if pool is not None:
            found.append(pool)
    return tuple(found)


def _pool(fact: Fact, window: Fact | None) -> Pool | None:
    if fact.kind == "mamba_alloc":
        held = state_bytes(fact)
        kind, tokens = "mamba", None  # it has slots of states, not tokens
    elif fact.kind == "kv_post_capture":
        held, kind, tokens = measured(fact, "kv"), "all", fact.count("tokens")
    else:
        held = pool_bytes(fact)
        tokens = fact.count("tokens")
        kind = "MLA" if fact.amount("kv") is not None else "MHA"
        is_window = window is not None and tokens == window.count("swa") != window.count("full")
        kind = "SWA" if is_window else kind
        held = None if fact.values.get("bound") is True else held
    if held is None:
        return None
    return Pool(
        kind=kind,
        tokens=tokens,
        bytes=held.bytes,
        precision_bytes=held.precision or None,
        dtype=fact.text("dtype"),
    )


def state_bytes(fact: Fact) -> Measured | None:
    """Return what a cache of recurrent states holds: all its parts that are printed."""
    parts = [measured(fact, name) for name in ("conv", "ssm", "intermediate_ssm", "intermediate_conv")]
    return total([part for part in parts if part is not None])


def pool_bytes(fact: Fact) -> Measured | None:
    """Return what a pool holds: its keys and values, printed apart or together."""
    whole = measured(fact, "kv")
    return whole if whole is not None else total([measured(fact, "k"), measured(fact, "v")])


def held_of(seat: Seat, owner: int) -> Measured | None:
    """Return what all pools of keys and values hold; a hybrid's own sum counts, if it is printed."""
    hybrid = [fact for fact in seat.of(owner, "swa_mem") if fact.values.get("bound") is not True]
    if hybrid:
        return measured(hybrid[-1], "size")
    parts = [pool for pool in pools_of(seat, owner) if pool.kind != "mamba"]
    return total([None if pool.bytes is None else Measured(pool.bytes, pool.precision_bytes or 0) for pool in parts])


def printed_token_size(seat: Seat, owner: int, told: Told) -> TokenSize | None:
    """Return a token's bytes by the one pool that a rank printed: its bytes over its tokens and one page of padding."""
    facts = [fact for fact in seat.of(owner, "kv_alloc") if fact.values.get("bound") is not True]
    held = pool_bytes(facts[0]) if len(facts) == 1 and _window(seat, owner) is None else None
    tokens = facts[0].count("tokens") if held is not None else None
    if held is None or not tokens or tokens < 0:
        return None
    slots = tokens + (told.count("page_size") or 1)
    precision = -(-held.precision // slots)
    return TokenSize(round(held.bytes / slots), precision, "the pool's bytes over its tokens, as printed")


def cell_size(seat: Seat, told: Told) -> TokenSize | None:
    """Return what a token takes of the budget: of the drafts' pools, too, that were loaded before it was computed.

    From 0.5.14 on SGLang loads drafts first and shares the budget among all. None where one of the pools is not known.
    """
    own = printed_token_size(seat, 0, told)
    drafts = [printed_token_size(seat, owner, told) for owner in _loaded_before_pools(seat)]
    if own is None or not drafts:
        return own
    known = [own, *(draft for draft in drafts if draft is not None)]
    if len(known) <= len(drafts):
        return None
    return TokenSize(sum(one.bytes for one in known), sum(one.precision for one in known), own.reason)


def _loaded_before_pools(seat: Seat) -> set[int]:
    """Return the drafts whose weights were loaded before the first pool was built."""
    found: set[int] = set()
    for fact, owner in zip(seat.facts, seat.owners, strict=True):
        if fact.kind in {"kv_alloc", "pool_end"}:
            break
        if fact.kind == "weights_end" and owner:
            found.add(owner)
    return found


def _limited(
    seat: Seat, owner: int, told: Told, tokens: int | None, *, hybrid: bool
) -> tuple[str | None, str | None]:
    """Return what decided the number of tokens, or None and why the log does not tell."""
    given, page = told.count("max_total_tokens"), told.count("page_size") or 1
    answers: tuple[tuple[bool, str | None, str | None], ...] = (
        (owner > 0, "target", None),
        (tokens is None, None, "the number of tokens is not known"),
        (bool(seat.of(0, "kv_cap")), "memory", "--max-total-tokens was larger than what the budget allowed"),
        (_is_resized(seat), "post_capture", "sized again from what the graphs left"),
        (given is not None and tokens == given // page * page, "max_total_tokens", None),
        (hybrid, None, "a hybrid pool shares the budget among its layers: the numbers do not compare"),
        (told.caps_tokens is None, None, "the log does not say whether --max-total-tokens was given"),
        (given is not None, None, f"{tokens} tokens are not --max-total-tokens ({given}), and nothing else is named"),
        ((told.count("pp_size") or 1) > 1, None, "a stage of the pipeline with less may have decided"),
    )
    return next(((by, reason) for holds, by, reason in answers if holds), ("memory", None))


def _is_resized(seat: Seat) -> bool:
    return any(fact.text("what") == "sized" for fact in seat.of(0, "kv_post_capture"))
