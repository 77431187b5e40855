"""The numbers of a plan: the run's beside the planned, each with its basis and the rule that made it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.forward import Outlook, at_once, outlook, share_of
from sglang_probe.explain.plan.frame import frame_of, splits_unknown, turned_off
from sglang_probe.explain.plan.inputs import Inputs
from sglang_probe.explain.plan.model import Number, Unit
from sglang_probe.explain.plan.wishes import Resolved, unknown_free, unknown_tokens
from sglang_probe.explain.scaling import RULES

REFUSED: Final = "SGLang refuses to start with an empty KV cache"


class Row(NamedTuple):
    """One number: the field of an outlook, its unit, and the rule that moves it where no input names another."""

    field: str
    name: str
    unit: Unit = "bytes"
    rule: str = "sum"


ROWS: Final = (
    Row("tenants", "tenants_bytes"),
    Row("custom_all_reduce", "custom_allreduce_bytes", rule="given_back"),
    Row("communicators", "communicators_bytes"),
    Row("pre_load", "pre_load_bytes"),
    Row("weights", "weights_bytes"),
    Row("draft_weights", "draft_weights_bytes"),
    Row("before", "else_before_bytes"),
    Row("available", "available_bytes"),
    Row("fraction", "mem_fraction_static", "fraction"),
    Row("slack", "slack_bytes", rule="formula"),
    Row("rest", "rest_bytes", rule="formula"),
    Row("minimum", "minimum_viable_fraction", "fraction", "formula"),
    Row("token", "bytes_per_token", "bytes a token"),
    Row("page", "page_size", "tokens"),
    Row("tokens", "tokens", "tokens", "formula"),
    Row("context", "context_length", "tokens"),
    Row("concurrency", "concurrency", "requests", "at_once"),
    Row("kv", "kv_pool_bytes", rule="pool"),
    Row("slots", "max_running_requests", "requests", "requests"),
    Row("requests", "request_pool_bytes", rule="request_pool"),
    Row("attention", "attention_bytes"),
    Row("graphs", "graphs_bytes", rule="graphs"),
    Row("beside", "else_after_bytes"),
    Row("free", "free_bytes"),
    Row("activations", "activations_bytes", rule="activations"),
)
AFTER: Final = frozenset({"kv", "slots", "requests", "attention", "graphs", "beside", "free", "concurrency"})
"""What a run that stopped before has not measured itself."""
OPTIONAL: Final = frozenset({"tenants", "draft_weights"})
"""Left out where there is none."""
LOG_LACKS: Final = {
    "custom_all_reduce": "a log does not print what communication took",
    "communicators": "a log does not print what communication took",
    "requests": "a log does not print it by itself: it is in the other use after the budget",
    "attention": "a log does not print it by itself: it is in the other use after the budget",
}
"""Numbers that no log has, and why."""
MOVES: Final = frozenset({"tp", "cuda_graph_max_bs", "max_running_requests", "context_length", "draft", "quantization"})
"""Inputs that may move what no rule moves."""


def own_outlook(facts: Facts) -> Outlook:
    """Return the run replayed with its own settings."""
    return outlook(frame_of(facts, Inputs()), facts.fraction)


def numbers_of(facts: Facts, resolved: Resolved) -> Iterator[Number]:
    """Return every number of the plan."""
    now, planned = own_outlook(facts), resolved.outlook
    for row in ROWS:
        run, then = _measured(facts, now, row.field), getattr(planned, row.field)
        if row.field in OPTIONAL and not run and not then:
            continue
        yield _number(facts, resolved, row, run, then)
        if row.field == "slack":
            yield from _deductions(facts, now, planned)
    yield _spare(facts, now, planned)


def _measured(facts: Facts, now: Outlook, field: str) -> int | float | None:
    """Return what the run itself had: never what was taken from another run, or what only the plan estimates."""
    own = facts.own
    context = None if "context" in facts.borrowed else facts.context
    tokens = facts.tokens if facts.tokens is not None else 0 if now.tokens == 0 else None
    itself: dict[str, int | float | None] = {
        "tokens": tokens,
        "token": None if "token" in facts.borrowed or facts.assumed_token else facts.token,
        "context": context,
        "concurrency": at_once(tokens, context, own.slots),
        "kv": own.kv,
        "slots": own.slots,
        "requests": own.requests,
        "attention": own.attention,
        "graphs": own.graphs_bytes,
        "beside": own.beside,
        "free": own.free,
    }
    value: int | float | None = itself[field] if field in itself else getattr(now, field)
    return value


def _number(facts: Facts, resolved: Resolved, row: Row, run: int | float | None, then: int | float | None) -> Number:
    rule = _rule(facts, resolved, row, same=run == then)
    basis = RULES[rule].basis if rule else "measured"
    says = RULES[rule].says if rule in RULES else None
    if _is_given(resolved, row.field):
        basis, rule, says = "given", None, None
    if then is None:
        basis, rule, says = "unknown", None, _reason(facts, resolved, row.field)
    low, high = _range(resolved.outlook, row.field)
    return Number(
        name=row.name, unit=row.unit, run=run, planned=then, lowest=low, highest=high, basis=basis, rule=rule, says=says
    )


def _range(planned: Outlook, field: str) -> tuple[int | None, int | None]:
    """Return both ends of a number that is known only as a range."""
    if field == "tokens" and planned.tokens_most is not None:
        return planned.tokens, planned.tokens_most
    if field == "token" and planned.token_least is not None:
        return planned.token_least, planned.token
    return None, None


def _is_given(resolved: Resolved, field: str) -> bool:
    inputs = resolved.frame.inputs
    given = {
        "fraction": inputs.mem_fraction_static is not None and resolved.rule is None,
        "tenants": inputs.tenants is not None,
        "context": inputs.context_length is not None,
        "page": inputs.page_size is not None,
        "token": inputs.token_bytes is not None,
        "draft_weights": inputs.draft is False,
    }
    return given.get(field, False)


def _rule(facts: Facts, resolved: Resolved, row: Row, *, same: bool) -> str | None:
    """Return the rule that made a number; None: it is as measured in this run, and nothing that is planned moves it."""
    inputs = resolved.frame.inputs
    by_inputs = _by_inputs(facts, resolved, inputs).get(row.field)
    if by_inputs is not None and not (same and by_inputs == "share"):
        return by_inputs
    if row.field == "activations":
        return row.rule
    lent = facts.borrowed.get(row.field)
    if lent is not None:
        moved = row.field == "graphs" and (inputs.cuda_graph_max_bs is not None or inputs.draft is False)
        return row.rule if moved else lent
    return None if same else row.rule


def _by_inputs(facts: Facts, resolved: Resolved, inputs: Inputs) -> dict[str, str | None]:
    """Return for each field the rule that the inputs ask for, where they ask for one."""
    moved = any(getattr(inputs, name) is not None for name in MOVES)
    tp, alone = inputs.tp is not None, inputs.tp == 1
    weights = "quantization" if inputs.quantization is not None else "weights_tp" if tp else None
    return {
        "fraction": resolved.rule,
        "custom_all_reduce": "alone" if alone and turned_off(facts, inputs) else None,
        "communicators": "alone" if alone else "as_measured" if tp else None,
        "pre_load": "as_measured" if tp and not alone else None,
        "weights": weights,
        "draft_weights": weights,
        "before": "as_measured" if tp or weights else None,
        "token": _token_rule(facts, inputs),
        "tokens": "share" if share_of(facts) != 1 else None,
        "kv": None if facts.after.pools else "pool_plain",
        "slots": None if facts.slots_replay else "as_measured",
        "attention": "as_measured" if moved else None,
        "beside": "as_measured" if moved else None,
    }


def _token_rule(facts: Facts, inputs: Inputs) -> str | None:
    if splits_unknown(facts, inputs):
        return "token_unknown"
    if inputs.kv_cache_dtype is not None:
        return "token_dtype"
    if inputs.tp is None and facts.assumed_token and inputs.token_bytes is None and "token" not in facts.borrowed:
        return "token_model"
    if inputs.tp is None:
        return "token_mean" if facts.mean_token and inputs.token_bytes is None else None
    return "token_mla" if facts.latent else "token_heads" if inputs.kv_heads is not None else "token_tp"


def _deductions(facts: Facts, now: Outlook, planned: Outlook) -> Iterator[Number]:
    for name, taken in planned.deductions.items():
        run = now.deductions.get(name)
        rule = "mamba" if name == "mamba" and facts.mamba is not None and run != taken else None
        yield Number(
            name=f"deductions.{name}",
            unit="bytes",
            run=run,
            planned=taken,
            basis=RULES[rule].basis if rule else "measured",
            rule=rule,
            says=RULES[rule].says if rule else None,
        )


def _spare(facts: Facts, now: Outlook, planned: Outlook) -> Number:
    kept = ((facts.own.free, now.activations), (planned.free, planned.activations))
    run, then = (None if free is None or reserve is None else free - reserve for free, reserve in kept)
    return Number(
        name="spare_bytes",
        unit="bytes",
        run=run,
        planned=then,
        basis="unknown" if then is None else "assumed",
        rule=None if then is None else "activations",
        says="one of the two is not known" if then is None else RULES["activations"].says,
    )


def _reason(facts: Facts, resolved: Resolved, field: str) -> str:
    """Say why a planned number is unknown."""
    frame, planned = resolved.frame, resolved.outlook
    lacks = LOG_LACKS.get(field) if facts.source.source == "log" and planned.tokens != 0 else None
    if lacks is not None:
        return lacks
    if field == "custom_all_reduce":
        return "its buffers were not built in this run" if not facts.custom_all_reduce else "not measured in this run"
    if frame.context is None and frame.facts.context is not None and field in {"context", "requests", "free", "slots"}:
        return "the model's own context length is not known: the run was given another"
    if field in AFTER and planned.tokens == 0:
        return REFUSED
    if field in {"token", "tokens", "kv", "concurrency", "slots", "requests"} and planned.tokens is None:
        return unknown_tokens(frame)
    if field in AFTER:
        return unknown_free(frame) if field != "concurrency" else "the context length was not recorded"
    if field in {"available", "slack", "rest", "before", "minimum"} and frame.available is None:
        return unknown_tokens(frame)
    return "a floor on the slack decides, not the fraction" if field == "minimum" else "not recorded in this run"
