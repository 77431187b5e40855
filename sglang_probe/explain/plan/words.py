"""A plan in sentences: the answer first, then what it leans on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sglang_probe.explain.plan.facts import Facts
from sglang_probe.explain.plan.forward import Outlook
from sglang_probe.explain.plan.inputs import FLAGS, Inputs, Wishes
from sglang_probe.explain.plan.model import Number, Wish
from sglang_probe.explain.plan.wishes import HOW, Resolved, fraction_for, unknown_free, unknown_tokens
from sglang_probe.explain.scaling import RULES
from sglang_probe.figures import counted, fraction, gib, number

NOT_SAID: Final = frozenset({"formula", "sum", "solved", "at_once"})
"""Rules that the formula and the table show by themselves."""
SERVING: Final = (
    "serving's activations were not measured at start-up: what is free at the end has to hold them. Beside it stands"
    " SGLang's own reserve for them, a rule of thumb (assumed)"
)


def says(resolved: Resolved, wishes: Wishes) -> Iterator[str]:
    """Return the answer."""
    planned = resolved.outlook
    impossible = resolved.rule == "solved" and resolved.holds is False
    yield from ("No fraction below 1 does what is wished; nearest to it:",) if impossible else ()
    if planned.tokens == 0:
        yield from _empty(resolved, wishes)
    elif planned.tokens is None:
        yield _without_tokens(resolved)
    else:
        yield from _tokens(resolved)
    for wish in resolved.wishes:
        yield _wish(wish, planned)
    if not impossible and any(wish.holds is False for wish in resolved.wishes):
        found = fraction_for(resolved.frame, wishes, planned.fraction)
        yield "No fraction below 1 does it." if found is None else f"It takes {fraction(found)}."


def _empty(resolved: Resolved, wishes: Wishes) -> Iterator[str]:
    planned = resolved.outlook
    at = f"At mem_fraction_static {fraction(planned.fraction)}"
    if planned.rest is not None and planned.rest > 0:
        yield f"{at} {gib(planned.rest)} GiB are left for the KV cache, less than a page: SGLang refuses to start."
    else:
        short = None if planned.rest is None else -planned.rest
        yield f"{at} the KV cache is empty by {gib(short)} GiB: SGLang refuses to start."
    if wishes.any:
        return
    found = fraction_for(resolved.frame, wishes, planned.fraction)
    exact = "" if planned.minimum is None else f" (just empty at {planned.minimum:.6f})"
    yield f"It has room from {fraction(found)} on{exact}." if found else f"No fraction below 1 gives it room{exact}."


def _without_tokens(resolved: Resolved) -> str:
    planned = resolved.outlook
    why = f"{unknown_tokens(resolved.frame)}; {HOW}"
    if planned.rest is None:
        return f"What the KV cache gets is unknown: {why}."
    at = fraction(planned.fraction)
    return f"{gib(planned.rest)} GiB for the KV cache at mem_fraction_static {at}; in tokens unknown: {why}."


def _tokens(resolved: Resolved) -> Iterator[str]:
    planned = resolved.outlook
    at_once = ""
    if planned.concurrency is not None and planned.context is not None:
        requests = counted(planned.concurrency, "request")
        at_once = f", {requests} of {number(planned.context)} tokens at once"
    capped = planned.profiled is not None and planned.tokens is not None and planned.profiled - planned.tokens
    more = f" Memory alone would allow {number(planned.profiled)}." if capped and capped >= planned.page else ""
    where = f"at mem_fraction_static {fraction(planned.fraction)}"
    yield f"{number(planned.tokens)} tokens {where}: {gib(planned.rest)} GiB of KV cache{at_once}.{more}"
    if planned.free is None:
        yield f"What stays free after the start is unknown: {unknown_free(resolved.frame)}."
    elif planned.free >= 0:
        yield f"{gib(planned.free)} GiB stay free after the start."
    else:
        yield (
            f"But it would run out of memory before it is ready: attention, graphs and what else comes after the pools"
            f" need {gib(-planned.free)} GiB more than is left."
        )


def _wish(wish: Wish, planned: Outlook) -> str:
    show = gib if wish.flag == "--free" else number
    unit = {"--tokens": "tokens", "--concurrency": "requests", "--free": "GiB"}[wish.flag]
    asked = f"{wish.flag} {show(wish.wanted)}"
    if wish.spare is None:
        return f"Whether {asked} holds is unknown."
    if wish.holds:
        return f"{asked} holds, with {show(wish.spare)} {unit} to spare."
    return f"{asked} does not hold: {show(-wish.spare)} {unit} short{_in_gib(wish, planned)}."


def _in_gib(wish: Wish, planned: Outlook) -> str:
    """What is short, in memory of the KV cache."""
    wanted = {"--tokens": wish.wanted, "--concurrency": wish.wanted * (planned.context or 0)}.get(wish.flag)
    if not wanted or not planned.token or planned.rest is None:
        return ""
    short = wanted * planned.token - planned.rest
    return f", so the cache is short by {gib(short)} GiB" if short > 0 else ""


def assumptions(facts: Facts, resolved: Resolved, numbers: Sequence[Number]) -> Iterator[str]:
    """Return what the plan leans on: what is not measured, then each rule that was used."""
    inputs = resolved.frame.inputs
    yield SERVING
    yield from _of_run(facts)
    yield from _of_inputs(facts, resolved)
    used = dict.fromkeys(one.rule for one in numbers if one.rule is not None and one.rule not in NOT_SAID)
    if inputs.tp is not None and inputs.quantization is not None:
        used["weights_tp"] = None
    for rule in used:
        if rule is not None and rule != "activations":
            whose = [one.name for one in numbers if one.rule == rule]
            which = f" ({', '.join(whose)})" if rule in {"as_measured", "like"} else ""
            yield f"{rule}: {RULES[rule].says}{which}"


def _of_run(facts: Facts) -> Iterator[str]:
    if facts.on_cpu:
        yield "the device is a CPU: its memory is the host's, and what its phases cost is noise of the host's"
    if facts.tenants_gone:
        yield "another process that was on a card is gone since: what it held while the budget was made is in it still"
    if facts.source.ranks < facts.world:
        seen = f"{facts.source.ranks} of {counted(facts.world, 'rank')}"
        yield f"the budget of {seen} was seen; SGLang's minimum counts them all"
    if facts.verified is False:
        yield "the probe could not reproduce SGLang's own result from this run's terms: the plan may be off as much"
    if facts.like is not None:
        yield f"what this run never came to is taken from {facts.like.run_id} (--like)"
    if facts.terms.floor is not None:
        yield "SGLang's floor on the slack is taken as in this run"


def _of_inputs(facts: Facts, resolved: Resolved) -> Iterator[str]:
    inputs = resolved.frame.inputs
    if inputs.tenants is not None:
        yield "others' memory is NVML's figure for them, which is some MiB a process less than what the device lost"
    if inputs.custom_all_reduce is True and facts.custom_all_reduce_bytes is None:
        yield "the custom all-reduce's cost was not measured in this run: the plan is without it, so a little high"
    if facts.tp == 1 and inputs.tp is not None:
        yield "one rank has no communicator and no custom all-reduce to measure: the plan is without them, so high"
    if inputs.draft is True:
        yield "a draft model was not measured in this run: the plan is without it, so high"
    if _fraction_kept(facts, resolved, inputs):
        yield (
            "no fraction was given, and SGLang's default hangs on what was changed; no form of its rule that is known"
            " gives this run's own fraction, so the run's is kept"
        )
    if inputs.context_length is not None and facts.context is None:
        yield "the run's own context length was not recorded: the request pool is taken as it was"


def _fraction_kept(facts: Facts, resolved: Resolved, inputs: Inputs) -> bool:
    moves = (inputs.tp, inputs.cuda_graph_max_bs, inputs.chunked_prefill_size)
    unknown = not facts.fraction_given and facts.variant is None
    return unknown and resolved.rule is None and inputs.mem_fraction_static is None and any(moves)


def repeated(asked: Inputs, kept: Inputs) -> Iterator[str]:
    """Name the flags that change nothing."""
    for name, flag in FLAGS.items():
        if getattr(asked, name) is not None and getattr(kept, name) is None:
            yield f"{flag} changes nothing: the run has it so"
