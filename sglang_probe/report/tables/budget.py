"""The tables of the KV budget: `budget`, a row a model of a rank, and `pools`, what was built of it."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final, NamedTuple

from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, JSON, REAL, TEXT, WORD
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Table, each
from sglang_probe.timeline.model import Budget, Kv, Pool, Worker


class _Row(NamedTuple):
    worker: Worker
    budget: Budget
    kv: Kv


def _budget(facts: Facts) -> Frame:
    found = [seat.process.workers for seat in facts.seats]
    rows = [_Row(one, one.budget or Budget(), one.kv or Kv()) for one in chain.from_iterable(found)]
    return Frame(rows, facts, facts.spread(map(len, found)))


def _deducted(row: Any) -> int | None:
    """Sum the deductions; None where the budget's terms are not known at all."""
    return None if row.budget.available_bytes is None else sum(row.budget.deductions.values())


BUDGET: Final = Table(
    "budget",
    "the KV budget of each rank with every term: rest = available - slack - deductions, slack = pre-load x (1 - fraction), "
    "KV tokens = rest / bytes per token",
    "a model of a process: the target, or a draft (`process`, `worker`, `draft_index` name it)",
    (
        *OWNER,
        Column("worker", WORD, "target or draft", "worker.worker", required=True),
        Column("draft_index", COUNT, "which draft", "worker.draft_index"),
        Column("model_class", WORD, "SGLang's class of the model", "worker.model_class"),
        Column("weights_bytes", BYTES, "what the weights took of the device", "worker.weights_bytes"),
        Column("weights_torch_bytes", BYTES, "the same by torch's allocated bytes", "worker.weights_torch_bytes"),
        Column("weights_reason", TEXT, "why weights_bytes is NULL", "worker.weights_reason"),
        Column(
            "weights_precision_bytes",
            BYTES,
            "how far off a log's figure may be; NULL: exact",
            "worker.weights_precision_bytes",
        ),
        Column(
            "pre_load_bytes",
            BYTES,
            "free before the weights: SGLang's, the least over the ranks",
            "budget.pre_load_bytes",
        ),
        Column(
            "available_bytes",
            BYTES,
            "free when the budget was made: SGLang's, the least over the ranks",
            "budget.available_bytes",
        ),
        Column("pre_load_local_bytes", BYTES, "this rank's own pre-load", "budget.pre_load_local_bytes"),
        Column("available_local_bytes", BYTES, "this rank's own available", "budget.available_local_bytes"),
        Column("mem_fraction_static", REAL, "the fraction in force", "budget.mem_fraction_static"),
        Column(
            "mem_fraction_static_given",
            REAL,
            "of the command line; NULL: not given there, or not known",
            "budget.mem_fraction_static_given",
        ),
        Column("static_budget_bytes", BYTES, "pre-load x fraction", "budget.static_budget_bytes"),
        Column("slack_bytes", BYTES, "pre-load x (1 - fraction), or SGLang's floor on it", "budget.slack_bytes"),
        Column("deductions_bytes", BYTES, "sum of the deductions; 0: none", each(_deducted)),
        Column("deductions", JSON, "each by its name, in bytes", "budget.deductions", required=True),
        Column("rest_bytes", BYTES, "what is left for the KV pool; negative: the start fails", "budget.rest_bytes"),
        Column("bytes_per_token", COUNT, "bytes of a token of KV cache on this rank", "budget.bytes_per_token"),
        Column("result", COUNT, "what SGLang's function returned", "budget.result"),
        Column("result_unit", WORD, "tokens or bytes", "budget.result_unit"),
        Column(
            "minimum_viable_fraction", REAL, "1 - (available - deductions) / pre-load", "budget.minimum_viable_fraction"
        ),
        Column("minimum_viable_fraction_reason", TEXT, "why that is NULL", "budget.minimum_viable_fraction_reason"),
        Column(
            "minimum_viable_fraction_printed",
            REAL,
            "SGLang's own, where its message names one",
            "budget.minimum_viable_fraction_printed",
        ),
        Column("verified", FLAG, "the terms reproduce SGLang's result; NULL: not known", "budget.verified"),
        Column("verified_reason", TEXT, "why not", "budget.verified_reason"),
        Column("state", WORD, "how `kv.profile` ended; NULL: it never began", "budget.state"),
        Column("step_id", WORD, "its step: `steps.step_id`", "budget.step"),
        Column(
            "precision_bytes",
            BYTES,
            "how far off a log's least certain term may be; NULL: exact",
            "budget.precision_bytes",
        ),
        Column("precisions", JSON, "term -> how far off it may be, in its unit", "budget.precisions", required=True),
        Column("pre_load_basis", WORD, "of a log: printed, or implied by the tokens", "budget.pre_load_basis"),
        Column("pre_load_reason", TEXT, "what it was taken from", "budget.pre_load_reason"),
        Column(
            "mem_fraction_static_basis",
            WORD,
            "of a log: message, arguments, told or default",
            "budget.mem_fraction_static_basis",
        ),
        Column(
            "mem_fraction_static_reason",
            TEXT,
            "where it was read, or why it is NULL",
            "budget.mem_fraction_static_reason",
        ),
        Column("kv_tokens", COUNT, "tokens of the KV cache that was built", "kv.tokens"),
        Column("kv_bytes", BYTES, "its bytes", "kv.bytes"),
        Column("kv_bytes_per_token", COUNT, "its bytes per token", "kv.bytes_per_token"),
        Column("kv_bytes_per_token_reason", TEXT, "what a log's was taken from", "kv.bytes_per_token_reason"),
        Column("kv_precision_bytes", BYTES, "how far off kv_bytes may be; NULL: exact", "kv.precision_bytes"),
        Column("limited_by", WORD, "memory, max_total_tokens, pp_min, hybrid_swa or target", "kv.limited_by"),
        Column("limited_by_reason", TEXT, "why that is NULL", "kv.limited_by_reason"),
        Column("profiled_tokens", COUNT, "tokens that the budget alone would allow", "kv.profiled_tokens"),
        Column("max_total_tokens_given", COUNT, "the cap of the command line", "kv.max_total_tokens_given"),
    ),
    _budget,
)


class _PoolRow(NamedTuple):
    worker: Worker
    pool: Pool
    index: int


def _pools(facts: Facts) -> Frame:
    found = [
        [_PoolRow(worker, pool, index) for worker in seat.process.workers for index, pool in enumerate(_built(worker))]
        for seat in facts.seats
    ]
    return Frame(list(chain.from_iterable(found)), facts, facts.spread(map(len, found)))


def _built(worker: Worker) -> tuple[Pool, ...]:
    return () if worker.kv is None else worker.kv.pools


POOLS: Final = Table(
    "pools",
    "the pools that were built",
    "a pool of a model of a process (`process`, `worker`, `draft_index`, `pool_index` name it)",
    (
        *OWNER,
        Column("worker", WORD, "target or draft", "worker.worker", required=True),
        Column("draft_index", COUNT, "which draft", "worker.draft_index"),
        Column("pool_index", COUNT, "its place among the model's pools, from 0", "index", required=True),
        Column("kind", WORD, "MHA, MLA, SWA, mamba, request, ...", "pool.kind"),
        Column("pool_class", WORD, "SGLang's class", "pool.pool_class"),
        Column("tokens", COUNT, "its tokens; of a request pool its requests", "pool.tokens"),
        Column("held_bytes", BYTES, "its bytes", "pool.bytes"),
        Column("precision_bytes", BYTES, "how far off a log's figure may be; NULL: exact", "pool.precision_bytes"),
        Column("dtype", WORD, "of its entries", "pool.dtype"),
        Column("page_size", COUNT, "tokens of a page", "pool.page_size"),
        Column("layers", COUNT, "layers that it holds", "pool.layers"),
    ),
    _pools,
)
