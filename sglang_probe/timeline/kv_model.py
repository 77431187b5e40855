"""The KV budget of a model in a process, and what came of it: the structures, in bytes. What is unknown is None."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["ok", "error", "died", "interrupted", "open"]
PreLoadBasis = Literal["printed", "implied", "unknown"]
"""printed: what a log says was free before the weights, an estimate; implied: by the tokens that SGLang got from it."""
FractionBasis = Literal["message", "arguments", "told", "default"]
"""SGLang's message; its resolved arguments; the user, who was asked for what a log does not hold; SGLang's default."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The KV budget's formula with its values (`kv.profile`).

    Worked example: pre-load 93.999 GiB, fraction 0.55, available 21.697 GiB. static budget = 93.999 x 0.55 = 51.699;
    slack = 93.999 x (1 - 0.55) = 42.300; rest = 21.697 - 42.300 = -20.603 GiB; minimum viable fraction
    = 1 - 21.697 / 93.999 = 0.7692.
    """

    pre_load_bytes: int | None = None
    """SGLang's: the minimum over ranks."""
    available_bytes: int | None = None
    """SGLang's: the minimum over ranks."""
    pre_load_local_bytes: int | None = None
    available_local_bytes: int | None = None
    mem_fraction_static: float | None = None
    """In force: what the function used."""
    mem_fraction_static_given: float | None = None
    """From the command line; None when it was not given there or no process said."""
    static_budget_bytes: int | None = None
    slack_bytes: int | None = None
    deductions: dict[str, int] = {}
    rest_bytes: int | None = None
    bytes_per_token: int | None = None
    result: int | None = None
    result_unit: str | None = None
    minimum_viable_fraction: float | None = None
    minimum_viable_fraction_reason: str | None = None
    minimum_viable_fraction_printed: float | None = None
    """SGLang's own, where its message names one."""
    verified: bool | None = None
    verified_reason: str | None = None
    formula: str | None = None
    state: State | None = None
    """State of the `kv.profile` step; None where it never began."""
    step: str | None = None
    """Id of the `kv.profile` step it comes from."""
    precision_bytes: int | None = None
    """How far off its least certain term may be; None: exact."""
    precisions: dict[str, int | float] = {}
    """Term -> how far off it may be, in its own unit, carried through every sum."""
    pre_load_basis: PreLoadBasis | None = None
    pre_load_reason: str | None = None
    """What the pre-load memory was taken from, where SGLang's own was not observed."""
    mem_fraction_static_basis: FractionBasis | None = None
    mem_fraction_static_reason: str | None = None
    """Where the fraction was read, or why it is not known, where no probe observed it."""


class Pool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One pool, as built."""

    kind: str | None = None
    pool_class: str | None = None
    tokens: int | None = None
    """Requests, for a request pool."""
    bytes: int | None = None
    dtype: str | None = None
    page_size: int | None = None
    layers: int | None = None
    precision_bytes: int | None = None


class Kv(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The KV cache that a worker ended up with."""

    tokens: int | None = None
    bytes: int | None = None
    bytes_per_token: int | None = None
    pools: tuple[Pool, ...] = ()
    limited_by: str | None = None
    """memory, max_total_tokens, pp_min, hybrid_swa, target (a draft sized by its target)."""
    limited_by_reason: str | None = None
    profiled_tokens: int | None = None
    """What the budget alone would allow."""
    max_total_tokens_given: int | None = None
    precision_bytes: int | None = None
    """How far off `bytes` may be; None: exact."""
    bytes_per_token_precision: int | None = None
    bytes_per_token_reason: str | None = None
    """What `bytes_per_token` was taken from, where no probe observed it."""


class Worker(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One model in a process: the target, or a draft."""

    worker: str
    draft_index: int | None = None
    weights_bytes: int | None = None
    """Cost of `weights.load` on the device: -delta of its free memory."""
    weights_torch_bytes: int | None = None
    """The same by torch's allocated bytes."""
    weights_reason: str | None = None
    """Why weights_bytes is None."""
    weights_precision_bytes: int | None = None
    """How far off weights_bytes may be; None: exact."""
    model_class: str | None = None
    budget: Budget | None = None
    kv: Kv | None = None
