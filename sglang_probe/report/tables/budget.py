"""The tables of the KV budget: `budget`, a row a model of a rank, and `pools`, what was built of it."""

from __future__ import annotations

from itertools import chain
from typing import Final, NamedTuple

from sglang_probe.report.tables.kinds import BYTES, COUNT, FLAG, JSON, REAL, TEXT, WORD
from sglang_probe.report.tables.spec import OWNER, Column, Facts, Frame, Part, Table, each, few, of
from sglang_probe.timeline.model import Budget, Pool, Worker

_WORKER: Final = (
    Column("worker", WORD, "target or draft", required=True),
    Column("draft_index", COUNT, "which draft"),
)


def _budget(facts: Facts) -> Frame:
    found = [seat.process.workers for seat in facts.seats]
    rows = list(chain.from_iterable(found))
    parts = {
        "owner": facts.owners(map(len, found)),
        "budget": few(row.budget for row in rows),
        "kv": few(row.kv for row in rows),
    }
    return Frame(rows, parts)


def _deducted(budget: Budget) -> int | None:
    """Sum the deductions; None where the budget's terms are not known at all."""
    return None if budget.available_bytes is None else sum(budget.deductions.values())


BUDGET: Final = Table(
    "budget",
    "the KV budget of each rank with every term: rest = available - slack - deductions, "
    "slack = pre-load x (1 - fraction), KV tokens = rest / bytes per token",
    "a model of a process: the target, or a draft (`process`, `worker`, `draft_index` name it)",
    (
        *OWNER,
        *_WORKER,
        Column("model_class", WORD, "SGLang's class of the model"),
        Column("weights_bytes", BYTES, "what the weights took of the device"),
        Column("weights_torch_bytes", BYTES, "the same by torch's allocated bytes"),
        Column("weights_reason", TEXT, "why weights_bytes is NULL"),
        Column("weights_precision_bytes", BYTES, "how far off a log's figure may be; NULL: exact"),
        *of(
            "budget",
            Column("pre_load_bytes", BYTES, "free before the weights: SGLang's, the least over the ranks"),
            Column("available_bytes", BYTES, "free when the budget was made: SGLang's, the least over the ranks"),
            Column("pre_load_local_bytes", BYTES, "this rank's own pre-load"),
            Column("available_local_bytes", BYTES, "this rank's own available"),
            Column("mem_fraction_static", REAL, "the fraction in force"),
            Column("mem_fraction_static_given", REAL, "of the command line; NULL: not given, or not known"),
            Column("static_budget_bytes", BYTES, "pre-load x fraction"),
            Column("slack_bytes", BYTES, "pre-load x (1 - fraction), or SGLang's floor on it"),
            Column("deductions_bytes", BYTES, "sum of the deductions; 0: none", each(_deducted)),
            Column("deductions", JSON, "each by its name, in bytes"),
            Column("rest_bytes", BYTES, "what is left for the KV pool; negative: the start fails"),
            Column("bytes_per_token", COUNT, "bytes of a token of KV cache on this rank"),
            Column("result", COUNT, "what SGLang's function returned"),
            Column("result_unit", WORD, "tokens or bytes"),
            Column("minimum_viable_fraction", REAL, "1 - (available - deductions) / pre-load"),
            Column("minimum_viable_fraction_reason", TEXT, "why that is NULL"),
            Column("minimum_viable_fraction_printed", REAL, "SGLang's own, where its message names one"),
            Column("verified", FLAG, "the terms reproduce SGLang's result; NULL: not known"),
            Column("verified_reason", TEXT, "why not"),
            Column("state", WORD, "how `kv.profile` ended; NULL: it never began"),
            Column("step_id", WORD, "its step: `steps.step_id`", "step"),
            Column("precision_bytes", BYTES, "how far off a log's least certain term may be; NULL: exact"),
            Column("precisions", JSON, "term -> how far off it may be, in its unit"),
            Column("pre_load_basis", WORD, "of a log: printed, or implied by the tokens"),
            Column("pre_load_reason", TEXT, "what it was taken from"),
            Column("mem_fraction_static_basis", WORD, "of a log: message, arguments, told or default"),
            Column("mem_fraction_static_reason", TEXT, "where it was read, or why it is NULL"),
        ),
        *of(
            "kv",
            Column("kv_tokens", COUNT, "tokens of the KV cache that was built", "tokens"),
            Column("kv_bytes", BYTES, "its bytes", "bytes"),
            Column("kv_bytes_per_token", COUNT, "its bytes per token", "bytes_per_token"),
            Column("kv_bytes_per_token_reason", TEXT, "what a log's was taken from", "bytes_per_token_reason"),
            Column("kv_precision_bytes", BYTES, "how far off kv_bytes may be; NULL: exact", "precision_bytes"),
            Column("limited_by", WORD, "memory, max_total_tokens, pp_min, hybrid_swa or target"),
            Column("limited_by_reason", TEXT, "why that is NULL"),
            Column("profiled_tokens", COUNT, "tokens that the budget alone would allow"),
            Column("max_total_tokens_given", COUNT, "the cap of the command line"),
        ),
    ),
    _budget,
)


class _Placed(NamedTuple):
    worker: Worker
    number: int
    pool: Pool


def _pools(facts: Facts) -> Frame:
    found = [
        [_Placed(worker, *one) for worker in seat.process.workers for one in enumerate(_built(worker))]
        for seat in facts.seats
    ]
    rows = list(chain.from_iterable(found))
    parts = {
        "owner": facts.owners(map(len, found)),
        "placed": Part(rows),
        "worker": Part([row.worker for row in rows]),
    }
    return Frame([row.pool for row in rows], parts)


def _built(worker: Worker) -> tuple[Pool, ...]:
    return () if worker.kv is None else worker.kv.pools


POOLS: Final = Table(
    "pools",
    "the pools that were built",
    "a pool of a model of a process (`process`, `worker`, `draft_index`, `pool` name it)",
    (
        *OWNER,
        *of("worker", *_WORKER),
        *of("placed", Column("pool", COUNT, "its place among the model's pools, from 0", "number", required=True)),
        Column("kind", WORD, "MHA, MLA, SWA, mamba, request, ..."),
        Column("pool_class", WORD, "SGLang's class"),
        Column("tokens", COUNT, "its tokens; of a request pool its requests"),
        Column("held_bytes", BYTES, "its bytes", "bytes"),
        Column("precision_bytes", BYTES, "how far off a log's figure may be; NULL: exact"),
        Column("dtype", WORD, "of its entries"),
        Column("page_size", COUNT, "tokens of a page"),
        Column("layers", COUNT, "layers that it holds"),
    ),
    _pools,
)
